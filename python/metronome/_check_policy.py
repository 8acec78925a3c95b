# SPDX-License-Identifier: Apache-2.0
"""Random cases for a policy, and the smallest that it fails."""

import copy
import dataclasses
import json
import random
import re
import warnings
from collections.abc import Iterator
from typing import Any, Optional

from ._errors import MetronomeError, ScenarioError
from ._policy import Integer, Policy, install, make, own_keys, register
from ._result import Result
from ._run import run
from ._scenario import Scenario

# Plans of a case whose policy gets on: each of its tokens is a plan at most, with preemptions.
_MOST_PLANS = 20_000


# Of keys of our own policies: from, to, and the unit of both.
_RANGES = {"max_num_batched_tokens": (16, 256, 1), "prefill_chunk_size": (1, 64, 1),
           "max_prefill_chunks_per_step": (0, 3, 1), "max_num_partial_prefills": (0, 3, 1),
           "min_chunk_size": (1, 8, 1), "chunk_size": (16, 128, 1),
           "enable_dynamic_chunking_schedule": (0, 1, 1), "low_chunk_size": (1, 2, 32),
           "high_chunk_size": (2, 6, 32), "chunk_schedule_max_tokens": (1, 300, 1),
           "chunk_schedule_stages": (1, 6, 1)}
_SWITCHES = ("enable_dynamic_chunking_schedule",)


class _Endless(MetronomeError):
    pass


@dataclasses.dataclass
class PolicyCheck:
    """What ``check_policy`` found.

    Attributes:
        num_cases: scenarios that were run, each twice
        fault: what is wrong in the smallest failing case; None: nothing was found
        scenario: that case; None: none failed
        seed: draws the same cases again
    """

    name: str
    num_cases: int
    seed: int
    fault: Optional[str] = None
    scenario: Optional[Scenario] = None

    def __bool__(self) -> bool:
        return self.fault is None

    def __str__(self) -> str:
        if self.fault is None:
            return f"policy {self.name}: {self.num_cases} random cases passed (seed {self.seed})"
        return (f"policy {self.name}: {self.fault}\n\nthe smallest case that was found (case "
                f"{self.num_cases} of seed {self.seed}, made smaller):\n{self.scenario}")


def check_policy(policy: type[Policy], cases: int = 200, seed: int = 1,
                 show: bool = True) -> PolicyCheck:
    """Runs a policy through random scenarios, and looks for what no policy may do.

    The cases vary requests, their lengths and arrivals, shared prefixes, the KV cache (from room
    for one request on), limits, and the policy's keys. Each must end with every request served, and
    give the same decisions again. The engine checks every plan: the token budget, the running
    requests, KV blocks, and that nobody computes a token twice or without room for it.

    Args:
        policy: the class, which is registered
        cases: how many
        seed: of the cases
        show: print the answer
    """
    register(policy)
    found = PolicyCheck(policy.name, 0, seed)
    for number in range(cases):
        found.num_cases = number + 1
        case = _random_case(policy, random.Random(f"{seed} {number}"))
        fault = fault_of(policy, case)
        if fault is None:
            continue
        case, found.fault = _smallest(policy, case, fault)
        found.scenario = Scenario(_text_of(case), policy.name)
        break
    if show:
        print(found)
    return found


def _random_case(policy: type[Policy], draw: random.Random) -> dict[str, Any]:
    """A scenario with small numbers, where limits are often met."""
    block_size = draw.choice([1, 4, 16])
    longest_prompt = draw.choice([1, 10, 40, 200])
    longest_output = draw.choice([1, 5, 30])
    prefix = draw.randint(1, longest_prompt) if draw.random() < 0.3 else 0
    longest = prefix + longest_prompt + longest_output
    per_request = -(-longest // block_size)
    scheduler: dict[str, Any] = {"policy": policy.name}
    for key in policy.keys:
        if key in _RANGES and (draw.random() < 0.7 or key == "max_num_batched_tokens"):
            least, most, unit = _RANGES[key]
            value = unit * draw.randint(least, most)
            scheduler[key] = value == 1 if key in _SWITCHES else value
    for key, value in own_keys(policy).items():
        if draw.random() < 0.5:
            draw_one = draw.randint if isinstance(value, Integer) else draw.uniform
            scheduler[key] = draw_one(value.least, value.most)
    most_seqs = draw.choice([1, 2, 4, 8, 16])
    if "max_num_batched_tokens" in scheduler:  # a step must have room for a decode of each
        most_seqs = min(most_seqs, scheduler["max_num_batched_tokens"])
        if "min_chunk_size" in scheduler:
            scheduler["min_chunk_size"] = min(scheduler["min_chunk_size"],
                                              scheduler.get("prefill_chunk_size", 8))
            least = most_seqs + scheduler["min_chunk_size"]
            scheduler["max_num_batched_tokens"] = max(scheduler["max_num_batched_tokens"], least)
    workload: dict[str, Any] = {
        "num_requests": draw.choice([1, 2, 5, 12, 30]),
        "arrivals": {"process": "poisson", "rate": draw.choice([1, 50, 1000, 100000])},
        "prompt_tokens": {"distribution": "uniform", "min": 1, "max": longest_prompt},
        "output_tokens": {"distribution": "uniform", "min": 1, "max": longest_output},
    }
    kv_cache: dict[str, Any] = {
        "block_size": block_size,
        "num_blocks": per_request + draw.choice([0, 1, per_request, 8 * per_request]),
        "allocation": draw.choice(["incremental", "eager"]),
        "enable_prefix_caching": prefix > 0 or draw.random() < 0.2,
    }
    if prefix > 0:
        workload["prefix"] = {"kind": "groups", "num_groups": draw.randint(1, 3),
                              "prefix_tokens": prefix}
    return {
        "seed": draw.randint(0, 10**6), "model": "llama-3.2-3b", "hardware": "h200",
        "engine": {"max_num_seqs": most_seqs,
                   "max_model_len": longest,
                   "async_depth": draw.choice([1, 1, 2])},
        "kv_cache": kv_cache, "scheduler": scheduler, "workload": workload,
    }


def fault_of(policy: type[Policy], case: dict[str, Any]) -> Optional[str]:
    """What is wrong with a registered policy in a case; None: nothing.

    Raises:
        ScenarioError: the case is no valid scenario
    """
    digests = []
    for _ in range(2):
        try:
            result = _run_watched(policy, case)
        except ScenarioError:
            raise
        except MetronomeError as error:
            # Of the engine's checks, what they say.
            return re.sub(r"^internal error: (.*) \(.* is false at \S+\)$", r"\1", str(error))
        except Exception as error:  # of the policy
            return f"raises {type(error).__name__}: {error}"
        figures = result.summary
        served = figures["completed"] + figures["never_fits"]
        if served != case["workload"]["num_requests"]:
            return f"{case['workload']['num_requests'] - served} requests are not served"
        digests.append(result.digest)
    if digests[0] != digests[1]:
        return ("the same case gives other decisions the second time; allowed: decisions that "
                "follow from the books alone")
    return None


def _run_watched(policy: type[Policy], case: dict[str, Any]) -> Result:
    """A run whose policy is stopped where it makes no end."""

    class Watching(policy):  # type: ignore[misc, valid-type]
        num_plans = 0  # those that compute nothing, too

        def fill(self, books: Any) -> None:
            self.num_plans += 1
            if self.num_plans > _MOST_PLANS:
                raise _Endless("the requests make no end: some are preempted again and again, or "
                               "steps compute nothing")
            super().fill(books)

    install(policy, lambda values: make(Watching, values))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return run(case).only
    finally:
        install(policy, lambda values: make(policy, values))


def _smaller(case: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Cases that are a little smaller."""
    def changed(*path: str) -> Iterator[dict[str, Any]]:
        value = case
        for name in path[:-1]:
            value = value.get(name, {})
        number = value.get(path[-1])
        if not isinstance(number, int) or isinstance(number, bool):
            return
        for less in sorted({1, number // 2, number - 1}):
            if 1 <= less < number:
                one = copy.deepcopy(case)
                target = one
                for name in path[:-1]:
                    target = target[name]
                target[path[-1]] = less
                yield one

    def without(*path: str, value: Any = None) -> Iterator[dict[str, Any]]:
        one = copy.deepcopy(case)
        target = one
        for name in path[:-1]:
            target = target.get(name, {})
        if path[-1] not in target or target[path[-1]] == value:
            return
        if value is None:
            del target[path[-1]]
        else:
            target[path[-1]] = value
        yield one

    yield from changed("workload", "num_requests")
    yield from without("workload", "prefix")
    yield from without("kv_cache", "enable_prefix_caching", value=False)
    yield from without("kv_cache", "allocation", value="incremental")
    yield from without("engine", "async_depth", value=1)
    yield from changed("workload", "prompt_tokens", "max")
    yield from changed("workload", "output_tokens", "max")
    yield from changed("engine", "max_num_seqs")
    yield from changed("kv_cache", "num_blocks")
    for key in list(case["scheduler"]):
        if key != "policy":
            yield from without("scheduler", key)


def _smallest(policy: type[Policy], case: dict[str, Any],
              fault: str) -> tuple[dict[str, Any], str]:
    """A case that still fails, and of which no smaller one does."""
    goes_on = True
    while goes_on:
        goes_on = False
        for one in _smaller(case):
            try:
                other = fault_of(policy, one)
            except ScenarioError:
                continue
            if other is not None:
                case, fault, goes_on = one, other, True
                break
    return case, fault


def _text_of(case: dict[str, Any]) -> str:
    return "".join(f"{key}: {json.dumps(value)}\n" for key, value in case.items())
