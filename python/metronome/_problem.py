# SPDX-License-Identifier: Apache-2.0
"""Settings to find, for optimisers: ask and tell."""

import dataclasses
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any, Optional, Union

from ._errors import ArgumentError, ScenarioError
from ._run import run
from ._scenario import ScenarioLike


@dataclasses.dataclass(frozen=True)
class Range:
    """Values of a key from ``low`` to ``high``: whole numbers if both are.

    Attributes:
        log: draw evenly in ratios, as for sizes
    """

    low: float
    high: float
    log: bool = False

    def __post_init__(self) -> None:
        if not self.low <= self.high or (self.log and self.low <= 0):
            raise ArgumentError(f"{self}: is no range; allowed: low <= high, and low > 0 with log")

    @property
    def is_whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)

    def at(self, place: float) -> Union[int, float]:
        """The value at a place from 0 to 1."""
        low, high = float(self.low), float(self.high)
        if self.is_whole:  # each has the same share
            low, high = low - (0 if self.log else 0.5), high + (0 if self.log else 0.5)
        value = low * (high / low) ** place if self.log else low + (high - low) * place
        return min(max(round(value), int(self.low)), int(self.high)) if self.is_whole else value


Space = Mapping[str, Union[Range, Sequence[Any]]]


@dataclasses.dataclass
class Point:
    """Values of the keys, and what came of them.

    Attributes:
        number: of the question, from 0
        values: of the space's keys
        value: what is minimised or maximised; an infinity where a limit is broken or the
            scenario is not valid; None: not told yet
        figures: of the run, as ``Result.summary``; None: not told, or not valid
        problem: why it does not count; empty: it does
    """

    number: int
    values: dict[str, Any]
    value: Optional[float] = None
    figures: Optional[dict[str, Any]] = None
    problem: str = ""


class Problem:
    """Which values of keys give the best figure?

    ``ask`` gives the next values to try, ``evaluate`` runs them, and ``tell`` keeps what came of
    them. An optimiser may ask in its own way: a ``Problem`` is an objective of Optuna's
    ``study.optimize``, and ``distributions()`` is for its ``study.ask``.

    Args:
        scenario: as for ``run``, with one variant, or ``variant``
        space: keys and their values: a ``Range``, or a list to choose from
        minimise: a figure of ``Result.summary``: ``"p99_itl_ms"``
        maximise: instead of it
        limits: the most that other figures may have: ``{"p99_ttft_ms": 500}``
        sets: values of other keys
        variant: of the scenario
        seeds: workloads of each point, of the scenario's seed and those behind it; the figures are
            their means
        seed: of the order in which ``ask`` goes through the space

    >>> problem = metronome.Problem("quickstart", {"scheduler.max_num_batched_tokens":
    ...     metronome.Range(128, 4096, log=True)}, minimise="p99_itl_ms", variant="budget-1024")
    >>> for _ in range(10):
    ...     point = problem.ask()
    ...     problem.tell(point, problem.evaluate(point))
    >>> problem.best.values
    """

    def __init__(self, scenario: ScenarioLike, space: Space, *, minimise: Optional[str] = None,
                 maximise: Optional[str] = None, limits: Optional[Mapping[str, float]] = None,
                 sets: Optional[Mapping[str, Any]] = None, variant: Optional[str] = None,
                 seeds: int = 1, seed: int = 1):
        if (minimise is None) == (maximise is None):
            raise ArgumentError("minimise: and maximise are two ways; allowed: one of them")
        if not space:
            raise ArgumentError("space: is empty; allowed: a key or more")
        self.space = {key: kind if isinstance(kind, Range) else list(kind)
                      for key, kind in space.items()}
        self.figure = minimise or maximise or ""
        self.direction = "minimize" if minimise else "maximize"
        self.limits = dict(limits or {})
        self.points: list[Point] = []
        self._scenario, self._sets, self._variant = scenario, dict(sets or {}), variant
        self._seeds = seeds
        # A lattice of irrational steps, shifted by the seed, fills the space evenly.
        self._root = _harmonious(len(self.space))
        draw = random.Random(seed)
        self._shift = [draw.random() for _ in self.space]

    def ask(self) -> Point:
        """The next values to try: they fill the space evenly."""
        number = len(self.points)
        values = {}
        for i, (key, kind) in enumerate(self.space.items()):
            place = (self._shift[i] + number / self._root ** (i + 1)) % 1.0
            values[key] = (kind.at(place) if isinstance(kind, Range)
                           else kind[int(place * len(kind))])
        point = Point(number, values)
        self.points.append(point)
        return point

    def evaluate(self, point: Union[Point, Mapping[str, Any]]) -> dict[str, Any]:
        """The figures of a run with these values; means, if there are several seeds.

        Raises:
            ScenarioError: they make no valid scenario
        """
        values = point.values if isinstance(point, Point) else dict(point)
        runs = []
        seed: Optional[int] = None  # the scenario's
        if self._variant is not None:  # which may have a value of its own
            values = {f"variants.{self._variant}.{key}": value for key, value in values.items()}
        for _ in range(self._seeds):
            results = run(self._scenario, {**self._sets, **values},
                          variants=self._variant or (), seed=seed)
            runs.append(results.only.summary)
            seed = int(results.only.config["seed"]) + 1
        if len(runs) == 1:
            return runs[0]
        return {key: (sum(one[key] for one in runs) / len(runs)
                      if all(isinstance(one[key], (int, float)) for one in runs) else value)
                for key, value in runs[0].items()}

    def tell(self, point: Point, figures: Union[Mapping[str, Any], ScenarioError]) -> float:
        """Keeps what came of a point, and returns its value."""
        point.value = math.inf if self.direction == "minimize" else -math.inf
        if isinstance(figures, ScenarioError):
            point.problem = str(figures)
            return point.value
        point.figures = dict(figures)
        for key in (self.figure, *self.limits):
            if key not in figures:
                raise ArgumentError(f"{key}: no such figure; allowed: {', '.join(figures)}")
        for key, most in self.limits.items():
            if figures[key] is None or figures[key] > most:
                point.problem = f"{key} is {figures[key]}, and at most {most} is allowed"
                return point.value
        if figures[self.figure] is None:
            point.problem = f"{self.figure} does not exist"
        else:
            point.value = float(figures[self.figure])
        return point.value

    def try_point(self, point: Point) -> float:
        """``evaluate`` and ``tell``. A scenario that is not valid is a point that does not count.

        Raises:
            ScenarioError: a key is unknown or has no effect, with any value
        """
        try:
            return self.tell(point, self.evaluate(point))
        except ScenarioError as error:
            if "unknown key" in error.problem or "has no effect" in error.problem:
                raise
            return self.tell(point, error)

    @property
    def best(self) -> Optional[Point]:
        """The best point that counts; None: there is none yet."""
        told = [point for point in self.points if point.value is not None and not point.problem]
        sign = 1 if self.direction == "minimize" else -1
        return min(told, key=lambda point: sign * point.value, default=None)

    # ---- Optuna ----

    def distributions(self) -> dict[str, Any]:
        """The space as Optuna has it, for ``study.ask(problem.distributions())``."""
        from optuna.distributions import (CategoricalDistribution, FloatDistribution,
                                          IntDistribution)
        return {key: (CategoricalDistribution(kind) if not isinstance(kind, Range)
                      else IntDistribution(int(kind.low), int(kind.high), log=kind.log)
                      if kind.is_whole else FloatDistribution(kind.low, kind.high, log=kind.log))
                for key, kind in self.space.items()}

    def __call__(self, trial: Any) -> float:
        """The objective of Optuna's ``study.optimize``, whose direction is ``direction``."""
        values = {}
        for key, kind in self.space.items():
            if not isinstance(kind, Range):
                values[key] = trial.suggest_categorical(key, kind)
            elif kind.is_whole:
                values[key] = trial.suggest_int(key, int(kind.low), int(kind.high), log=kind.log)
            else:
                values[key] = trial.suggest_float(key, kind.low, kind.high, log=kind.log)
        point = Point(len(self.points), values)
        self.points.append(point)
        value = self.try_point(point)
        if point.problem:
            trial.set_user_attr("problem", point.problem)
        return value


def _harmonious(num_keys: int) -> float:
    """The root of x^(n + 1) = x + 1, whose powers step through n dimensions evenly."""
    root = 2.0
    for _ in range(64):
        root = (1 + root) ** (1 / (num_keys + 1))
    return root
