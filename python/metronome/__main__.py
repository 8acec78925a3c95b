# SPDX-License-Identifier: Apache-2.0
"""``python -m metronome`` is the command ``metronome`` of the same wheel."""

import importlib.metadata
import os
import sys


def program() -> str:
    """The path of the command that was installed with this package."""
    for file in importlib.metadata.files("metronome") or []:
        if file.name == "metronome" and file.parent.name == "bin":
            return str(file.locate())
    sys.exit("metronome: error: the command was not installed with this package")


if __name__ == "__main__":
    path = program()
    os.execv(path, [path, *sys.argv[1:]])
