# SPDX-License-Identifier: Apache-2.0
"""What the tests of the package share."""

import contextlib
import os
import pathlib
import subprocess
import tempfile
import unittest
import warnings

ROOT = pathlib.Path(os.environ["METRONOME_SOURCE_DIR"])
METRONOME = os.environ["METRONOME_BINARY"]


def command(*arguments, cwd, code=0):
    """What the command prints on standard output."""
    done = subprocess.run([METRONOME, *map(str, arguments)], cwd=cwd, capture_output=True,
                          text=True, check=False)
    if done.returncode != code:
        raise AssertionError(f"metronome {arguments}: exit code {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr


def contents(folder):
    """The bytes of each file below a folder, by its path in it."""
    folder = pathlib.Path(folder)
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in sorted(folder.rglob("*")) if path.is_file()}


class InFolder(unittest.TestCase):
    """A test in an empty current folder, with the quickstart's file in it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.enterContext(contextlib.chdir(self.folder))
        self.enterContext(warnings.catch_warnings())
        warnings.simplefilter("error")
        self.quickstart = ROOT / "scenarios/quickstart.yaml"

    def assert_same_files(self, one, other):
        ours, theirs = contents(one), contents(other)
        self.assertGreater(len(theirs), 0)
        self.assertEqual(list(ours), list(theirs))
        for name, content in theirs.items():
            self.assertTrue(ours[name] == content, f"{name} differs")
