# SPDX-License-Identifier: Apache-2.0
"""The source package of llama-cpp-python, which has llama.cpp's sources and vocabulary files."""

import subprocess
import tarfile
from pathlib import Path

from parity_checks import venv


class FetchError(Exception):
    pass


def fetch(folder, is_wanted=lambda name: True):
    """Unpacks the files whose names are wanted into `folder`; the path of llama.cpp in there.

    pip asks the package's build backend for its name, so the backend is installed by hash first.
    """
    folder = Path(folder)
    backend = folder / "backend"
    download = venv.pip(backend / "bin/python", "download", "llama_cpp", "--no-deps",
                        "--no-build-isolation", "--no-binary", ":all:", "--dest", folder)
    for command in (*venv.install_commands(backend, "llama_cpp_build"), download):
        done = subprocess.run(command, check=False, text=True, capture_output=True)
        if done.returncode != 0:
            lines = (done.stderr.strip() or done.stdout.strip()).splitlines()
            raise FetchError(f"pip cannot fetch llama-cpp-python: {lines[-1] if lines else '?'}")
    with tarfile.open(next(folder.glob("llama_cpp_python-*.tar.gz"))) as package:
        package.extractall(folder, [one for one in package if is_wanted(one.name)], filter="data")
    return next(folder.glob("llama_cpp_python-*/vendor/llama.cpp"))
