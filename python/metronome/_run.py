# SPDX-License-Identifier: Apache-2.0
"""Runs of scenarios."""

import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union, Unpack

from . import _native
from ._errors import ArgumentError, MetronomeWarning
from ._result import Results
from ._scenario import (Described, ScenarioLike, assignments_of, composed, refuse_unknown,
                        source_of)

#: Called with the variant's name, its requests that ended, and all of its requests.
Progress = Callable[[str, int, int], None]


def show_progress(name: str, done: int, total: int) -> None:
    """A line on standard error, drawn again and again."""
    end = "\n" if done == total else ""
    print(f"\r{name}: {done} of {total} requests", end=end, file=sys.stderr, flush=True)


def chosen_source(scenario: Optional[ScenarioLike],
                  described: Mapping[str, Any]) -> "_native.ScenarioSource":
    """A scenario, or what a command and options describe."""
    if not described:
        if scenario is None:
            raise ArgumentError("scenario: is missing; allowed: a path, YAML, a mapping, a "
                                "Scenario, or a server's command together with gpu=")
        return source_of(scenario)
    refuse_unknown(described)
    if scenario is not None and not isinstance(scenario, str):
        raise ArgumentError(f"{next(iter(described))}: describes a scenario, but there is one; "
                            "allowed: a server's command, or sets= for keys of a scenario")
    return source_of(composed(scenario, described))


def run(scenario: Optional[ScenarioLike] = None, sets: Optional[Mapping[str, Any]] = None, *,
        variants: Union[str, Sequence[str]] = (), backend: str = "sim", seed: Optional[int] = None,
        progress: Union[bool, None, Progress] = None, **described: Unpack[Described]) -> Results:
    """Runs every variant of a scenario, simulated or for real.

    The results are those of ``metronome run``, and ``results.save(folder)`` writes its files. Other
    threads of Python go on meanwhile; Ctrl-C ends the run.

    Args:
        scenario: a path, a name of ``metronome list scenarios``, YAML, a mapping, a Scenario, or a
            server's command together with ``gpu``. Paths in a text are relative to the current
            folder.
        sets: values of keys, as ``--set``: ``{"workload.arrivals.rate": 20}``;
            ``variants.NAME.KEY`` for one variant
        variants: names of the variants to run; none: all of them
        backend: ``sim``, a cost model of ``hardware``; or ``cpu``, the model itself on this machine
        seed: in the place of the scenario's
        progress: True for a line on standard error; or a function that is called about 20 times a
            second with the variant's name, its requests that ended, and all of its requests
        **described: a scenario without a file; see ``Described``

    Raises:
        ScenarioError: the scenario is not valid; it names file, line, key and what is allowed
        ArgumentError: an argument is not
        RunError: the run failed
        KeyboardInterrupt: Ctrl-C

    >>> results = metronome.run("quickstart", {"workload.arrivals.rate": 4})
    >>> results["chunked-512"].summary["p99_itl_ms"]
    """
    source = chosen_source(scenario, described)
    names = [variants] if isinstance(variants, str) else list(variants)
    tell = show_progress if progress is True else progress or None
    natives = _native.run(source, assignments_of(sets), names, seed, backend, tell)
    results = Results(natives, source.notes)
    for result in results:
        for text in result.warnings:
            warnings.warn(f"{result.name}: {text}", MetronomeWarning, stacklevel=2)
    if lost := [native.name for native in natives if native.completed == 0]:
        warnings.warn(f"no request was completed by {', '.join(lost)}", MetronomeWarning,
                      stacklevel=2)
    return results
