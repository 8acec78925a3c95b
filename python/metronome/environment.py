# SPDX-License-Identifier: Apache-2.0
"""A scheduler as an environment of gymnasium: a learner decides what each step computes.

Needs gymnasium and NumPy. Importing it registers the policy ``environment``.
"""

import itertools
import queue
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Optional, Union

import gymnasium
import numpy

from ._policy import Books, Integer, Policy, register
from ._result import Result
from ._run import run
from ._scenario import ScenarioLike

#: From the milliseconds that a step took, the requests that decoded in it, and those that waited
#: for their first token: what it cost.
Cost = Callable[[float, int, int], float]

_numbers = itertools.count()
_open: "dict[int, SchedulerEnv]" = {}
_PROMPTS = 256  # of the queue whose tokens are counted


class _Abandoned(Exception):
    """A run that its environment no longer wants."""


@register
class _Asks(Policy):
    """decides as the learner of a gymnasium environment does"""

    name = "environment"
    environment = Integer(0, 0, 2**31, "environment: which one of the process")

    def __init__(self) -> None:
        self.env = _open[self.environment]

    def fill(self, books: Books) -> None:
        self.env._fill(books)


class SchedulerEnv(gymnasium.Env[numpy.ndarray, Any]):
    """Each action is the token budget of a step's prompts, and how many requests are admitted.

    An episode is a run of the scenario. Decodes come first in each step; then the budget goes to
    begun prompts, then to new ones. Steps in which nobody has a prompt to compute pass by
    themselves. A step without a decode computes a prompt even where the action says none.

    ``observation_space`` is a Box of ``NAMES``: counts of requests and tokens, a share, and
    milliseconds, as they are. The reward is minus what passed since the last action cost.
    ``info["result"]`` of the last step is the ``Result``.

    Args:
        scenario: as for ``run``; of its scheduler only the environment decides
        sets: values of keys
        variant: which one, if the scenario has several
        budgets: tokens for prompts in a step, from which an action chooses by place
        admissions: how many requests may leave the queue in a step, from which an action chooses;
            None: as many as fit, and an action is a budget alone
        cost: of a step; None: each decode in a step beyond ``slo.itl_ms`` costs 1, and each
            ``slo.ttft_ms`` of waiting for a first token costs 1; without them 50 and 1000 ms
    """

    metadata = {"render_modes": []}
    #: What an observation has, in order.
    NAMES = ("decoding", "prefilling", "waiting", "prefilling_tokens", "waiting_tokens",
             "head_waits_ms", "free_blocks", "kv_tokens", "last_step_ms")

    def __init__(self, scenario: ScenarioLike, sets: Optional[Mapping[str, Any]] = None, *,
                 variant: Optional[str] = None,
                 budgets: Sequence[int] = (0, 64, 128, 256, 512, 1024, 2048, 4096),
                 admissions: Optional[Sequence[int]] = None, cost: Optional[Cost] = None):
        self.budgets = tuple(budgets)
        self.admissions = None if admissions is None else tuple(admissions)
        if max(self.budgets) < 1:
            raise ValueError("budgets: has none above 0; allowed: one or more")
        self._least = min(budget for budget in self.budgets if budget > 0)
        config = dict(run(scenario, sets, variants=variant or ()).only.config)
        self._number = next(_numbers)
        config["scheduler"] = {"policy": "environment", "environment": self._number}
        self._config = config
        slo = config.get("slo") or {}
        itl, ttft = slo.get("itl_ms") or 50.0, slo.get("ttft_ms") or 1000.0
        self._cost: Cost = cost or (
            lambda ms, decodes, waiting: decodes * (ms > itl) + waiting * ms / ttft)
        self.observation_space = gymnasium.spaces.Box(0, numpy.inf, (len(self.NAMES),),
                                                      numpy.float32)
        size = [len(self.budgets)] + ([len(self.admissions)] if self.admissions else [])
        self.action_space = (gymnasium.spaces.Discrete(size[0]) if len(size) == 1
                             else gymnasium.spaces.MultiDiscrete(size))
        self._thread: Optional[threading.Thread] = None

    # ---- The learner's side ----

    def reset(self, *, seed: Optional[int] = None,
              options: Optional[Mapping[str, Any]] = None) -> tuple[numpy.ndarray, dict[str, Any]]:
        """Begins a run; ``seed`` draws its requests, ``options`` are values of keys."""
        super().reset(seed=seed)
        self.close()
        self._told: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._asked: "queue.SimpleQueue[Any]" = queue.SimpleQueue()
        self._last_ns: Optional[int] = None
        self._counts = (0, 0)
        self._owed = 0.0
        self._last_ms = 0.0
        _open[self._number] = self
        self._thread = threading.Thread(target=self._run, args=(seed, dict(options or {})),
                                        daemon=True)
        self._thread.start()
        observation, _, is_over, info = self._next()
        if is_over:
            raise RuntimeError("the run ended before anybody had a prompt to compute")
        return observation, info

    def step(self, action: Any) -> tuple[numpy.ndarray, float, bool, bool, dict[str, Any]]:
        """Decides a step, and returns when the next one has a prompt to compute."""
        if self._thread is None:
            raise RuntimeError("there is no run; allowed: reset() first")
        places = numpy.atleast_1d(action)
        most = None if self.admissions is None else self.admissions[int(places[1])]
        self._asked.put((self.budgets[int(places[0])], most))
        observation, reward, is_over, info = self._next()
        return observation, reward, is_over, False, info

    def close(self) -> None:
        """Ends the run, if there is one."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None
        _open.pop(self._number, None)

    def _next(self) -> tuple[numpy.ndarray, float, bool, dict[str, Any]]:
        told = self._told.get()
        if isinstance(told, numpy.ndarray):
            return told, -self._taken(), False, {}
        assert self._thread is not None
        self._thread.join()
        self._thread = None
        if isinstance(told, BaseException):
            raise told
        return (numpy.zeros(len(self.NAMES), numpy.float32), -self._taken(), True,
                {"result": told})

    def _taken(self) -> float:
        owed, self._owed = self._owed, 0.0
        return owed

    # ---- The engine's side, on the thread of the run ----

    def _run(self, seed: Optional[int], sets: Mapping[str, Any]) -> None:
        told: Union[Result, BaseException, None]
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                told = run(self._config, sets, seed=seed).only
        except _Abandoned:
            return
        except BaseException as error:  # for the learner's thread
            told = error
        self._told.put(told)

    def _fill(self, books: Books) -> None:
        if self._last_ns is not None:
            self._last_ms = (books.now_ns - self._last_ns) / 1e6
            self._owed += self._cost(self._last_ms, *self._counts)
        self._last_ns = books.now_ns
        books.plan_decodes()
        decodes = books.planned_tokens
        if books.num_unfinished_prefills or books.num_waiting:
            self._told.put(self._observed(books, decodes))
            decision = self._asked.get()
            if decision is None:
                raise _Abandoned
            self._carry_out(books, *decision)
        self._counts = (decodes, books.num_waiting + books.num_unfinished_prefills)

    def _observed(self, books: Books, decodes: int) -> numpy.ndarray:
        begun = books.unfinished_prefills()
        queued = books.waiting(_PROMPTS)
        head_ms = (books.now_ns - queued[0].arrival_ns) / 1e6 if queued else 0.0
        free = books.num_free_blocks
        return numpy.array(
            [decodes, len(begun), books.num_waiting,
             sum(request.uncomputed_tokens for request in begun),
             sum(request.uncomputed_tokens for request in queued), head_ms, free,
             (books.num_blocks - free) * books.block_size, self._last_ms], numpy.float32)

    def _carry_out(self, books: Books, budget: int, most: Optional[int]) -> None:
        if books.planned_tokens == 0:  # somebody must get on
            budget, most = max(budget, self._least), None if most is None else max(most, 1)
        left = budget
        for request in books.unfinished_prefills():
            chunk = min(left, request.uncomputed_tokens)
            if chunk > 0 and request.state == "prefill" and books.plan_prefill(request, chunk):
                left -= chunk
        admitted = 0
        while left > 0 and (most is None or admitted < most):
            head = books.next_waiting()
            if head is None:
                return
            chunk = min(left, books.uncomputed_tokens(head))
            if not books.admit(head, chunk):
                return
            left -= chunk
            admitted += 1


__all__ = ["Cost", "SchedulerEnv"]
