"""A tool's packages from PyPI, in a virtual environment of its own."""

import os
import subprocess
import sys


def enter(venv, packages):
    """Runs the tool again with the packages installed in `venv`; does nothing there."""
    if sys.prefix == str(venv):
        return
    if not venv.exists():
        subprocess.run([sys.executable, "-m", "venv", venv], check=True)
    python = venv / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--disable-pip-version-check",
                    *packages], check=True)
    os.execv(python, [str(python), *sys.argv])
