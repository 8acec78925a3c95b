"""Which GPU this is, and where CUDA's libraries lie."""

import glob
import os
import re
import shutil
import subprocess
import sys

from gpu_checks.run import end_group, start_group

# Names of nvidia-smi, and those of the same devices in sim/cost/hardware.yaml.
CATALOGUE = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm",
             "NVIDIA A100-SXM4-80GB": "a100-80gb", "NVIDIA L40S": "l40s",
             "NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA GeForce RTX 5080": "rtx-5080"}
NAME_SECONDS = 20


def label(text):
    """A text as a name of files."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_")


class Gpu:
    """`name` as nvidia-smi says it, or empty; `hardware` as the catalogue names it, or empty.
    `is_silent`: nvidia-smi is there and names none."""

    def __init__(self, name, is_silent=False):
        self.name = name
        self.is_silent = is_silent
        self.hardware = CATALOGUE.get(name, "")
        self.label = self.hardware or label(name) or "unknown"

    @staticmethod
    def library_folders():
        """Where cuBLASLt may lie: where the loader looks anyway, the toolkit, PyTorch's copy."""
        folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
        for toolkit in ("/usr/local/cuda*/lib64", "/usr/local/cuda*/lib",
                        "/usr/local/cuda*/targets/*/lib"):
            folders += sorted(glob.glob(toolkit))
        for site in sys.path:
            folders += sorted(glob.glob(f"{site}/nvidia/*/lib"))
        return folders


def ask_nvidia_smi(clock, seconds=NAME_SECONDS):
    """The name of the first GPU; empty where nvidia-smi names none, or takes too long."""
    try:
        process = start_group(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
                              errors="replace")
    except OSError:
        return ""
    try:
        lines = process.communicate(timeout=clock.real(seconds))[0].splitlines()
    except subprocess.TimeoutExpired:
        end_group(process)
        return ""
    return lines[0].strip() if process.returncode == 0 and lines else ""


def find_gpu(clock):
    """The first that nvidia-smi lists, which is asked twice. Where it is missing, none is known."""
    if shutil.which("nvidia-smi") is None:
        return Gpu("")
    name = ask_nvidia_smi(clock) or ask_nvidia_smi(clock)
    return Gpu(name, is_silent=not name)
