# SPDX-License-Identifier: Apache-2.0
"""Scenarios in each of the forms that a caller may have."""

import dataclasses
import difflib
import json
import os
from collections.abc import Iterable, Mapping
from typing import Any, TypedDict, Union, Unpack

from . import _native
from ._errors import ArgumentError


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A scenario as a text. Every function takes one in the place of a file.

    Attributes:
        yaml: the text of a scenario file
        name: its name in results and messages
        notes: what an answer about it must say, such as flags that are not simulated
        engine_version: the release that a command names; empty: none
    """

    yaml: str
    name: str = "scenario"
    notes: tuple[str, ...] = ()
    engine_version: str = ""

    def __str__(self) -> str:
        return self.yaml

    def _repr_html_(self) -> str:
        import html
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        return f"<pre>{html.escape(self.yaml)}</pre><ul>{notes}</ul>"

    def save(self, path: "str | os.PathLike[str]") -> None:
        """Writes the text to a new file."""
        with open(path, "x", encoding="utf-8") as file:
            file.write(self.yaml)


class Described(TypedDict, total=False):
    """A scenario by a server's command, or by a model and a GPU: options of the command line.

    Lengths are tokens: ``1500``, ``"500-2000"`` (evenly between them) or ``"1020:4142"``
    (lognormal, median and p99). Limits are milliseconds.
    """

    gpu: str  # a name of `metronome list hardware`, or a file; NAME=PRICE adds the price of an hour
    model: str  # in the place of the command's
    engine: str  # of a model, or of flags without the server's name
    engine_version: str  # "0.11.0"
    quantization: str
    tp: int  # tensor parallel size
    rate: float  # requests per second, Poisson
    clients: int  # in a closed loop, each with one request at a time
    prompt: "str | int"  # tokens
    output: "str | int"  # tokens
    requests: int  # how many
    chat: bool  # lengths and limits of people who chat
    rag: bool  # those of questions over passages
    workload: str  # one of `metronome list workloads`
    sharegpt: "str | os.PathLike[str]"  # a file with conversations
    tokenizer: "str | os.PathLike[str]"  # tokenizer.json that measures them
    trace: "str | os.PathLike[str]"  # a file with other requests
    ttft: float  # limit of the first token, ms
    itl: float  # limit of every gap between tokens, ms
    tpot: float  # limit of the mean gap of a request, ms


class Searched(Described, total=False):
    """Goals of a search, and engines that share the requests, beside ``Described``.

    A goal is in the place of the scenario's key of ``slo``.
    """

    target_itl: float  # limit of every gap between tokens, ms
    target_itl_share: float  # the share of the gaps within it: 0.5, 0.9, 0.95, 0.99 or 1
    target_longest: float  # limit of the longest gap, beside a share, ms
    target_ttft: float  # limit of the first token, ms: of the p99, or in tune of each request
    target_rate: float  # least tokens per second of a running answer while prompts are computed
    target_throughput: float  # least output tokens per second
    target_cost: float  # most that a million output tokens cost, with price_per_gpu_hour
    replicas: int  # so many engines share the requests: short for the key fleet.replicas
    router: str  # who gives each request to a replica: short for fleet.router


def split(options: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Those of ``Searched`` alone, and those that describe a scenario."""
    own = {name: value for name, value in options.items()
           if name in Searched.__annotations__ and name not in Described.__annotations__}
    return own, {name: value for name, value in options.items() if name not in own}


#: A path, a name of ``metronome list scenarios``, YAML, a mapping, or a Scenario.
ScenarioLike = Union[str, "os.PathLike[str]", Mapping[str, Any], Scenario]


def flag_of(name: str) -> str:
    return "--" + name.replace("_", "-")


def arguments_of(options: Mapping[str, Any]) -> list[str]:
    """The words of a command line with these options; None and False leave one out."""
    words: list[str] = []
    for name, value in options.items():
        if value is None or value is False:
            continue
        if value is True:
            words.append(flag_of(name))
            continue
        many = isinstance(value, Iterable) and not isinstance(value, (str, bytes, Mapping))
        for one in value if many else (value,):
            words.append(f"{flag_of(name)}={plain(one)}")
    return words


def plain(value: Any) -> str:
    """A value as a scenario file has it; of a policy or router of Python, its name."""
    if isinstance(value, str):
        return value
    if isinstance(value, type):
        if isinstance(getattr(value, "name", None), str):
            return value.name  # type: ignore[attr-defined]
        raise ArgumentError(f"{value.__name__} is a class without a name; allowed: a policy or a "
                            "router that is registered")
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return json.dumps(value, allow_nan=False, default=_known)


def _known(value: Any) -> Any:
    """What ``json`` does not know."""
    if hasattr(value, "item") and getattr(value, "ndim", 0) == 0:  # NumPy's numbers
        return value.item()
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, (type, os.PathLike)):
        return plain(value)
    raise ArgumentError(f"'{value}' is a {type(value).__name__}; allowed: numbers, texts, lists "
                        "and mappings")


def assignments_of(sets: "Mapping[str, Any] | None") -> list[str]:
    """{"seed": 3} -> ["seed=3"]."""
    if sets is None:
        return []
    if not isinstance(sets, Mapping):
        raise ArgumentError("sets: is no mapping; allowed: {KEY: VALUE}, such as {\"seed\": 3}")
    return [f"{key}={plain(value)}" for key, value in sets.items()]


def is_text(scenario: str) -> bool:
    """Whether a string is YAML, not a path."""
    return "\n" in scenario or scenario.lstrip().startswith("{")


def composed(command: "str | None", options: Mapping[str, Any]) -> Scenario:
    """As ``scenario``; with None instead of a command, a model on a GPU."""
    refuse_unknown(options)
    name, yaml, notes, version = _native.compose(arguments_of({"command": command, **options}))
    return Scenario(yaml, name, tuple(notes), version)


def scenario(command: "str | None" = None, **described: Unpack[Described]) -> Scenario:
    """The scenario that a server's command, or a model on a GPU, means.

    Args:
        command: a server's command as pasted, from a shell, a Dockerfile, compose or k8s YAML, or
            the arguments in a log
        **described: see ``Described``; ``gpu`` is required

    >>> print(metronome.scenario("vllm serve Qwen/Qwen3-8B", gpu="h100", rate=4, chat=True))
    """
    return composed(command, described)


def refuse_unknown(described: Mapping[str, Any]) -> None:
    for name in described:
        if name in Described.__annotations__:
            continue
        near = difflib.get_close_matches(name, Described.__annotations__, 1)
        hint = f", did you mean '{near[0]}'?" if near else ""
        raise ArgumentError(f"{name}: no such argument{hint}; allowed: "
                            f"{', '.join(Described.__annotations__)}")


def source_of(scenario: ScenarioLike) -> "_native.ScenarioSource":
    """A scenario in the form that the native functions take."""
    if isinstance(scenario, Scenario):
        return _native.ScenarioSource(scenario.name, scenario.yaml, notes=list(scenario.notes))
    if isinstance(scenario, Mapping):
        return _native.ScenarioSource("scenario", json.dumps(scenario, default=_known), False)
    if isinstance(scenario, str) and is_text(scenario):
        return _native.ScenarioSource("scenario", scenario)
    if isinstance(scenario, str) and " " in scenario.strip() and not os.path.exists(scenario):
        raise ArgumentError("gpu: is missing; a server's command needs it: gpu=\"h100\", with its "
                            "requests, such as rate=4, chat=True")
    if isinstance(scenario, (str, os.PathLike)):
        return _native.ScenarioSource(os.fspath(scenario))
    raise ArgumentError(f"scenario: is a {type(scenario).__name__}; allowed: a path, a name of "
                        "`metronome list scenarios`, YAML, a mapping, a Scenario, or a server's "
                        "command together with gpu=")
