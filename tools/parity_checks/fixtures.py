# SPDX-License-Identifier: Apache-2.0
"""Fixtures of hf_parity and vision_parity: small models with the values that transformers computes."""

import os
import pathlib
import shutil
import subprocess
import sys

NUM_GREEDY = 64
# The minimum gap between the two likeliest tokens, so that rounding cannot change the choice.
MIN_GAP = 1e-3

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "build/release/metronome_tests"


def add_random(commands, architectures):
    draw = commands.add_parser("random", help="write fixtures of random configurations")
    draw.add_argument("folder", type=pathlib.Path)
    draw.add_argument("--count", type=int, default=10, help="default: %(default)s")
    draw.add_argument("--seed", type=int, default=1, help="default: %(default)s")
    draw.add_argument("--only", nargs="+", metavar="ARCHITECTURE", choices=architectures,
                      default=architectures, help="of these: " + ", ".join(architectures))


def add_check(commands, tag):
    compare = commands.add_parser("check", help=f"run the test {tag} over a folder's fixtures")
    compare.add_argument("folder", type=pathlib.Path)
    compare.add_argument("--program", default=str(PROGRAM), help="default: %(default)s")


def check(arguments, tag, variable):
    """Runs the test, which reads the environment variable's folder. Returns its exit code."""
    environment = {**os.environ, variable: str(arguments.folder.resolve())}
    return subprocess.run([arguments.program, tag], env=environment, check=False).returncode


def load_libraries(tool):
    """torch, transformers and safetensors' save_file. Late, so that --help needs nothing installed."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    try:
        import torch
        import transformers
        from safetensors.torch import save_file
        from transformers.utils import logging
    except ImportError as error:
        sys.exit(f"{tool}: {error}; pip install torch transformers safetensors")
    logging.disable_progress_bar()
    # One thread: the order of sums, and so the last bits, must not depend on the number of cores.
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    return torch, transformers, save_file


def greedy_values(torch, compute_logits, prompt, num_allowed=None):
    """The expected values of a prompt, and the smallest gap of a greedy choice: 0 where it is no
    token below `num_allowed`. compute_logits(tokens) gives the logits at every position."""
    logits = compute_logits(prompt)
    rows, greedy, gap = [logits[-1]], [], float("inf")
    while True:
        best = torch.topk(rows[-1], 2)
        gap = min(gap, float(best.values[0] - best.values[1]))
        greedy.append(int(best.indices[0]))
        if num_allowed is not None and greedy[-1] >= num_allowed:
            gap = 0
        if len(greedy) == NUM_GREEDY or gap <= MIN_GAP:
            break
        rows.append(compute_logits(prompt + greedy)[-1])
    return {"prompt": torch.tensor(prompt, dtype=torch.int32), "logits": logits,
            "greedy": torch.tensor(greedy, dtype=torch.int32),
            "greedy_logits": torch.stack(rows)}, gap


def eager(model_class, torch, make, *arguments):
    """A model in float32 with eager attention and experts, by a maker of the class: "_from_config"
    or "from_pretrained"."""
    model = getattr(model_class, make)(*arguments, attn_implementation="eager",
                                       dtype=torch.float32, experts_implementation="eager")
    return model.eval()


def store_model(folder, model, dtype, **options):
    """Replaces a folder by a model's config.json and weights."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    model.to(dtype).save_pretrained(folder, **options)
    (folder / "generation_config.json").unlink(missing_ok=True)


def store_expected(folder, expected, save_file):
    """Writes expected.safetensors. Returns the bytes of the folder."""
    save_file({name: tensor.contiguous() for name, tensor in expected.items()},
              folder / "expected.safetensors")
    for path in folder.iterdir():
        path.chmod(0o644)  # safetensors makes files readable by their owner only
    return sum(path.stat().st_size for path in folder.iterdir())
