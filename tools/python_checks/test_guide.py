# SPDX-License-Identifier: Apache-2.0
"""Every example of the guide runs: those of a page in one session."""

import contextlib
import importlib.util
import io
import pathlib
import re
import subprocess
import sys
import unittest
import warnings

import common


class Guide(common.InFolder):
    def follow(self, page, least):
        warnings.simplefilter("default")
        text = (common.ROOT / "docs/guide" / page).read_text()
        blocks = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertGreaterEqual(len(blocks), least)
        names = {}
        for block in blocks:
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block, page, "exec"), names)
            self.assertTrue(printed.getvalue() or "print" not in block, block)
        return names

    def test_package(self):
        self.follow("python.md", 9)

    @unittest.skipUnless(importlib.util.find_spec("optuna"), "needs Optuna and gymnasium")
    def test_learning(self):
        names = self.follow("python_learning.md", 4)
        self.assertTrue(names["problem"].best)

    def test_policy(self):
        names = self.follow("python_policy.md", 3)
        self.assertTrue(names["found"], names["found"])
        median = {name: round(result.summary["p50_ttft_ms"])
                  for name, result in names["results"].items()}
        self.assertEqual(median, {"aged_shortest": 86, "token_budget": 190, "sarathi": 190,
                                  "vllm": 190})

    def test_picture(self):
        """The picture of the policy's page is what tools/plot_policy draws."""
        subprocess.run([sys.executable, common.ROOT / "tools/plot_policy", "ours.svg"], check=True)
        self.assertEqual(pathlib.Path("ours.svg").read_bytes(),
                         (common.ROOT / "docs/guide/python_policy.svg").read_bytes())
