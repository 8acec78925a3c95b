# SPDX-License-Identifier: Apache-2.0
"""Points of a sweep and trials of a search on other processes and machines.

An executor has ``submit``, as those of concurrent.futures and Dask's clients, or is the module
``ray``.
"""

import functools
import os
import pathlib
import queue
import shutil
import tempfile
import threading
import uuid
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Optional

from . import _native
from ._errors import ArgumentError, MetronomeWarning
from ._policy import register, registered

Files = Mapping[str, bytes]

os.register_at_fork(after_in_child=_native.forget_calls_of_parent)
_OWN_NAME = uuid.uuid4().hex  # of the process and of those that it forks


class Question(NamedTuple):
    """What a worker must know of a command: its words, and what they refer to."""

    words: tuple[str, ...]
    given: Optional[tuple[str, str, bool]]  # name, text and has_lines of a scenario that is no file
    kinds: tuple[type, ...]  # policies and routers of Python

    def source(self) -> "Optional[_native.ScenarioSource]":
        for kind in self.kinds:
            if registered.get(kind.name) is not kind:  # type: ignore[attr-defined]
                register(kind)
        return None if self.given is None else _native.ScenarioSource(*self.given)


def question_of(words: Sequence[str], given: "Optional[_native.ScenarioSource]") -> Question:
    text = " ".join(words)
    if given is not None:
        text += given.text
    elif words and os.path.isfile(words[0]):
        text += pathlib.Path(words[0]).read_text(encoding="utf-8", errors="replace")
    kinds = tuple(kind for name, kind in registered.items() if name in text)
    of_text = None if given is None else (given.name, given.text, given.has_lines)
    return Question(tuple(words), of_text, kinds)


def run_share(question: Question, share: str) -> Files:
    """Runs a share of a sweep here, and returns its files. Called by a worker."""
    with tempfile.TemporaryDirectory(prefix="metronome-") as folder:
        out = pathlib.Path(folder, "sweep")
        arguments = [*question.words, f"--only={share}", f"--out={out}", "--jobs=1", "--quiet"]
        _native.command("sweep", arguments, question.source(), [])
        return {str(path.relative_to(out)): path.read_bytes()
                for path in out.rglob("*") if path.is_file() and path.parent != out}


def _process() -> str:
    return f"{_OWN_NAME} {os.getpid()}"


@functools.lru_cache(maxsize=1)
def _trials_of(question: Question) -> "_native.TuneTrials":
    """What the trials of a search share: its settings and requests."""
    with tempfile.TemporaryDirectory(prefix="metronome-") as folder:
        arguments = [*question.words, f"--out={os.path.join(folder, 'tune')}", "--jobs=1",
                     "--quiet"]
        return _native.TuneTrials(arguments, question.source())


def run_trial(question: Question, searcher: str, setting: int, load: float,
              num_requests: int) -> Optional[str]:
    """Runs a trial of a search here, and returns its line. Called by a worker.

    None in the process of the search, which has its settings already: it runs the trial itself.
    """
    if searcher == _process():
        return None
    return _trials_of(question).line(setting, load, num_requests)


class Lost:
    """Counts what workers lost, with the first reason."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._reason = ""

    def add(self, error: BaseException) -> None:
        with self._lock:
            self._count += 1
            lines = str(error).strip().splitlines() or [""]
            self._reason = self._reason or f"{type(error).__name__}: {lines[0]}".rstrip(": ")

    def warn(self, total: int, what: str, stacklevel: int) -> None:
        if self._count:
            warnings.warn(f"{self._count} of {total} {what} were lost by their workers and run "
                          f"here; the first: {self._reason}", MetronomeWarning,
                          stacklevel=stacklevel + 1)


def check_executor(executor: Any) -> Any:
    """An executor of one of the kinds."""
    if hasattr(executor, "submit") or hasattr(executor, "remote"):
        return executor
    raise ArgumentError(f"executor: is a {type(executor).__name__}; allowed: an executor of "
                        "concurrent.futures, a client of Dask, or the module ray")


class Trials:
    """Trials of a search on an executor.

    Attributes:
        asked: how many went to workers
        lost: those that did not come back
    """

    _LOOK_SECONDS = 0.1  # between looks whether the search was interrupted

    def __init__(self, question: Question, executor: Any):
        self.asked = 0
        self.lost = Lost()
        self._call = (question, _process())
        self._executor = executor
        self._remote = None
        if not hasattr(check_executor(executor), "submit"):
            self._remote = executor.remote(max_retries=0)(run_trial)
        else:
            executor.submit(os.getpid)  # starts processes before the search has threads

    def __call__(self, setting: int, load: float, num_requests: int) -> str:
        """The line of a trial; empty for one that the search must run itself."""
        self.asked += 1
        ask = self._ask_remote if self._remote else self._submit
        try:
            return ask(*self._call, setting, load, num_requests) or ""
        except Exception as error:  # of any kind: the worker died, or its machine did
            self.lost.add(error)
            return ""

    def _submit(self, *call: Any) -> Optional[str]:
        ended = threading.Event()
        future = self._executor.submit(run_trial, *call)
        future.add_done_callback(lambda _: ended.set())
        while not ended.wait(self._LOOK_SECONDS):
            if _native.interrupting_signal():
                future.cancel()
                return None
        return future.result()

    def _ask_remote(self, *call: Any) -> Optional[str]:
        one = self._remote.remote(*call)  # type: ignore[union-attr]
        while not self._executor.wait([one], timeout=self._LOOK_SECONDS)[0]:
            if _native.interrupting_signal():
                self._executor.cancel(one)
                return None
        return self._executor.get(one)


def answers_of(executor: Any, calls: Sequence[tuple[Any, ...]],
               lost: Lost) -> Iterator[Optional[Files]]:
    """What the workers return, as they end; None of one that was lost or failed."""
    def answer(get: Callable[[], Files]) -> Optional[Files]:
        try:
            return get()
        except Exception as error:  # as for trials
            lost.add(error)
            return None

    if hasattr(executor, "submit"):
        ended: "queue.Queue[Any]" = queue.Queue()
        futures = [executor.submit(run_share, *call) for call in calls]
        for future in futures:
            future.add_done_callback(ended.put)
        try:
            for _ in futures:
                yield answer(ended.get().result)
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
                yield answer(lambda one=one: executor.get(one))
    finally:
        for one in waiting:
            executor.cancel(one)


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
