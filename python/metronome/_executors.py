# SPDX-License-Identifier: Apache-2.0
"""Points of a sweep on other processes and machines."""

import os
import pathlib
import queue
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Optional

from . import _native

Files = Mapping[str, bytes]
#: The name, text and has_lines of a scenario that is no file.
GivenText = Optional[tuple[str, str, bool]]


def run_share(words: Sequence[str], given: GivenText, share: str) -> Files:
    """Runs a share of a sweep here, and returns its files. Called by a worker."""
    source = None if given is None else _native.ScenarioSource(*given)
    with tempfile.TemporaryDirectory(prefix="metronome-") as folder:
        out = pathlib.Path(folder, "sweep")
        arguments = [*words, f"--only={share}", f"--out={out}", "--jobs=1", "--quiet"]
        _native.command("sweep", arguments, source, [])
        return {str(path.relative_to(out)): path.read_bytes()
                for path in out.rglob("*") if path.is_file() and path.parent != out}


def answers_of(executor: Any, calls: Sequence[tuple[Any, ...]]) -> Iterator[Optional[Files]]:
    """What the workers return, as they end; None of one that was lost or failed.

    ``executor`` has ``submit``, as those of concurrent.futures and Dask's clients, or is the module
    ``ray``.
    """
    if hasattr(executor, "submit"):
        ended: "queue.Queue[Any]" = queue.Queue()
        futures = [executor.submit(run_share, *call) for call in calls]
        for future in futures:
            future.add_done_callback(ended.put)
        try:
            for _ in futures:
                yield _answer(ended.get().result)
        finally:
            for future in futures:
                future.cancel()
        return
    remote = executor.remote(max_retries=0)(run_share)
    waiting = [remote.remote(*call) for call in calls]
    try:
        while waiting:
            done, waiting = executor.wait(waiting, num_returns=1)
            for one in done:
                yield _answer(lambda one=one: executor.get(one))
    finally:
        for one in waiting:
            executor.cancel(one)


def _answer(get: Any) -> Optional[Files]:
    try:
        return get()
    except Exception:  # of any kind: the worker died, or its machine did
        return None


def keep(files: Files, folder: str, ids: "set[str]") -> None:
    """Adds the files of runs to the folder of the sweep; a run appears whole or not at all."""
    for run in {pathlib.Path(name).parts[0] for name in files} & ids:
        target = os.path.join(folder, run)
        if os.path.lexists(target):
            continue
        partial = tempfile.mkdtemp(prefix=os.path.basename(folder) + ".",
                                   dir=os.path.dirname(os.path.abspath(folder)))
        try:
            for name, content in files.items():
                if pathlib.Path(name).parts[0] == run:
                    path = pathlib.Path(partial, name)
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_bytes(content)
            os.rename(os.path.join(partial, run), target)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
