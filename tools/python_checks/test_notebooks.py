# SPDX-License-Identifier: Apache-2.0
"""The notebooks of docs/notebooks run in Jupyter's kernel, and print what is stored in them.

METRONOME_UPDATE_GOLDENS=1 stores what they print.
"""

import importlib.util
import json
import os
import shutil
import unittest

import common

BOOKS = sorted((common.ROOT / "docs/notebooks").glob("*.ipynb"))


def texts_of(book):
    """What each cell shows as text."""
    shown = []
    for cell in book["cells"]:
        texts = [output.get("text") or output.get("data", {}).get("text/plain", "")
                 for output in cell.get("outputs", []) if output.get("name") != "stderr"]
        shown.append((cell["id"], "".join("".join(text) for text in texts)))
    return shown


@unittest.skipUnless(importlib.util.find_spec("nbclient"), "needs nbclient and ipykernel")
class Notebooks(common.InFolder):
    def test_all(self):
        import warnings

        import nbclient
        import nbformat
        warnings.simplefilter("ignore")  # Jupyter's own
        self.assertGreaterEqual(len(BOOKS), 4)
        # In a copy of their place, as they write files beside themselves.
        books = self.folder / "docs/notebooks"
        books.mkdir(parents=True)
        fixtures = self.folder / "tests/fixtures"
        fixtures.parent.mkdir()
        fixtures.symlink_to(common.ROOT / "tests/fixtures")
        for path in BOOKS:
            stored = json.loads(path.read_text())
            book = nbformat.read(shutil.copy(path, books), as_version=4)
            nbclient.NotebookClient(book, timeout=600, kernel_name="python3",
                                    resources={"metadata": {"path": str(books)}}).execute()
            for cell in book.cells:
                cell.metadata.pop("execution", None)
            if os.environ.get("METRONOME_UPDATE_GOLDENS"):
                path.write_text(nbformat.writes(book, indent=1) + "\n")
                continue
            self.assertEqual(texts_of(book), texts_of(stored), path.name)


if __name__ == "__main__":
    unittest.main()
