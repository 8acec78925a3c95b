# SPDX-License-Identifier: Apache-2.0
"""A tool's packages from PyPI, by their hashes, in a virtual environment of its own."""

import fcntl
import os
import pathlib
import subprocess
import sys

REQUIREMENTS = pathlib.Path(__file__).resolve().parent.parent / "requirements"


def pip(python, verb, name, *options):
    """The command that installs or downloads what NAME.txt of tools/requirements lists."""
    return [str(part) for part in (
        python, "-m", "pip", verb, "-q", "--disable-pip-version-check", *options,
        "--require-hashes", "-r", REQUIREMENTS / f"{name}.txt")]


def install_commands(venv, name, *options):
    """The commands that make `venv` and install the wheels that NAME.txt lists; pip gets `options`
    in addition."""
    return ([sys.executable, "-m", "venv", str(venv)],
            pip(venv / "bin/python", "install", name, "--only-binary", ":all:", *options))


def enter(venv, name):
    """Runs the tool again with the packages of NAME.txt in `venv`; does nothing there."""
    if sys.prefix == str(venv):
        return
    make, install = install_commands(venv, name)
    venv.parent.mkdir(parents=True, exist_ok=True)
    # Tools of one environment may run side by side; one of them installs.
    with open(venv.with_name(f"{venv.name}.lock"), "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not venv.exists():
            subprocess.run(make, check=True)
        is_installed = subprocess.run(install).returncode == 0
    if not is_installed:
        sys.exit(f"{pathlib.Path(sys.argv[0]).name}: pip cannot install the packages of "
                 f"tools/requirements/{name}.txt; allowed: a reachable package index (see pip's "
                 "message above)")
    python = venv / "bin/python"
    os.execv(python, [str(python), *sys.argv])
