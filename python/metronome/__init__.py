# SPDX-License-Identifier: Apache-2.0
"""Metronome: which scheduler and prefill chunk size keep the gaps between tokens short?

>>> import metronome
>>> results = metronome.run("quickstart")
>>> print(results)
>>> results["chunked-512"].gaps.to_pandas()
"""

from ._commands import (Calibration, Sweep, Tuning, calibrate, diagnose, report, sweep, tune,
                        validate)
from ._errors import (ArgumentError, InternalError, MetronomeError, MetronomeWarning, RunError,
                      ScenarioError)
from ._native import version as __version__
from ._result import Page, Result, Results, Table
from ._run import run
from ._scenario import Described, Scenario, scenario

__all__ = ["ArgumentError", "Calibration", "Described", "InternalError", "MetronomeError",
           "MetronomeWarning", "Page", "Result", "Results", "RunError", "Scenario",
           "ScenarioError", "Sweep", "Table", "Tuning", "__version__", "calibrate", "diagnose",
           "report", "run", "scenario", "sweep", "tune", "validate"]
