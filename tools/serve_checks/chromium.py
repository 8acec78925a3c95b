# SPDX-License-Identifier: Apache-2.0
"""Chromium without a window."""

import shutil

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")


def command(profile):
    """The program and its options; `profile` is a folder. None: it is not installed."""
    program = next((path for path in map(shutil.which, PROGRAMS) if path), None)
    if program is None:
        return None
    return [program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--no-first-run", "--disable-extensions", "--disable-background-networking",
            "--disable-component-update", f"--user-data-dir={profile}"]
