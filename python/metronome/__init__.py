# SPDX-License-Identifier: Apache-2.0
"""Metronome: which scheduler and prefill chunk size keep the gaps between tokens short?

>>> import metronome
>>> results = metronome.run("quickstart")
>>> print(results)
>>> results["chunked-512"].gaps.to_pandas()
"""

from ._check_policy import PolicyCheck, check_policy
from ._commands import (Calibration, Diagnosis, FleetSizes, Sweep, Tuning, calibrate, catalogue,
                        diagnose, fleet, report, sweep, tune, validate)
from ._errors import (ArgumentError, InternalError, MetronomeError, MetronomeWarning, PolicyError,
                      RunError, ScenarioError)
from ._native import version as __version__
from ._policy import Books, Integer, Number, Policy, Request, register
from ._problem import Point, Problem, Range
from ._result import Page, Result, Results, Table
from ._router import Fleet, RoutedRequest, Router
from ._run import run
from ._scenario import Described, Scenario, Searched, scenario
from ._serve import Served, Server, serve

__all__ = ["ArgumentError", "Books", "Calibration", "Described", "Diagnosis", "Fleet", "FleetSizes",
           "Integer", "InternalError", "MetronomeError", "MetronomeWarning", "Number", "Page",
           "Point", "Policy", "PolicyCheck", "PolicyError", "Problem", "Range", "Request", "Result",
           "Results", "RoutedRequest", "Router", "RunError", "Scenario", "ScenarioError",
           "Searched", "Served", "Server", "Sweep", "Table", "Tuning", "__version__", "calibrate",
           "catalogue", "check_policy", "diagnose", "fleet", "register", "report", "run",
           "scenario", "serve", "sweep", "tune", "validate"]
