# SPDX-License-Identifier: Apache-2.0
"""Every example of the guide runs, from its first to its last in one session."""

import contextlib
import io
import re
import warnings

import common


class Guide(common.InFolder):
    def test_examples(self):
        warnings.simplefilter("default")
        page = (common.ROOT / "docs/guide/python.md").read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
        self.assertGreater(len(blocks), 5)
        names = {}
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, "docs/guide/python.md", "exec"), names)
            self.assertTrue(printed.getvalue() or "print" not in block, block)
