# SPDX-License-Identifier: Apache-2.0
"""Identifies the GPU and finds CUDA's libraries."""

import glob
import os
import re
import shutil
import subprocess
import sys

from gpu_checks.run import end_group, start_group

# Names in nvidia-smi, and names of the same devices in core/hardware/hardware.yaml.
CATALOGUE = {"NVIDIA H200": "h200", "NVIDIA H100 80GB HBM3": "h100-sxm",
             "NVIDIA A100-SXM4-80GB": "a100-80gb", "NVIDIA L40S": "l40s",
             "NVIDIA GeForce RTX 4090": "rtx-4090", "NVIDIA GeForce RTX 5080": "rtx-5080"}
NAME_SECONDS = 20


def label(text):
    """A text as a file name."""
    return re.sub(r"[^\w.-]+", "_", text).strip("_")


class Gpu:
    """`name` is from nvidia-smi, `hardware` from the catalogue; either may be empty. `is_silent`:
    nvidia-smi exists and names no GPU."""

    def __init__(self, name, is_silent=False):
        self.name = name
        self.is_silent = is_silent
        self.hardware = CATALOGUE.get(name, "")
        self.label = self.hardware or label(name) or "unknown"

    @staticmethod
    def folders_of_libraries():
        """Possible folders of cuBLASLt: the loader's, the toolkit's, PyTorch's."""
        folders = [folder for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
        for toolkit in ("/usr/local/cuda*/lib64", "/usr/local/cuda*/lib",
                        "/usr/local/cuda*/targets/*/lib"):
            folders += sorted(glob.glob(toolkit))
        for site in sys.path:
            folders += sorted(glob.glob(f"{site}/nvidia/*/lib"))
        return folders


def ask_nvidia_smi(clock, seconds=NAME_SECONDS):
    """The name of the first GPU; empty if nvidia-smi names none or takes too long."""
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
    """The first GPU that nvidia-smi lists; asks twice. Without nvidia-smi no GPU is known."""
    if shutil.which("nvidia-smi") is None:
        return Gpu("")
    name = ask_nvidia_smi(clock) or ask_nvidia_smi(clock)
    return Gpu(name, is_silent=not name)
