# SPDX-License-Identifier: Apache-2.0
"""Scheduling policies in Python."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Union

from . import _native
from ._errors import ArgumentError
from ._native import Books, Request


@dataclasses.dataclass(frozen=True)
class Integer:
    """A whole number among a policy's own keys, from ``least`` to ``most``."""

    default: int
    least: int
    most: int
    meaning: str  # one line, with the unit


@dataclasses.dataclass(frozen=True)
class Number:
    """A number among a policy's own keys, from ``least`` to ``most``."""

    default: float
    least: float
    most: float
    meaning: str  # one line, with the unit


class Policy:
    """Base of a scheduling policy: who computes how many tokens in the next step?

    A subclass has ``fill``, which decides a step by the functions of ``Books``; these keep KV
    blocks and counts. ``register`` makes it a policy of scenarios. Each run has an object of its
    own. The values of its keys are there before ``__init__``:

    - ``keys`` names those of ``scheduler`` that it reads: ``max_num_batched_tokens`` (also the most
      tokens of a step), ``prefill_chunk_size`` (None where nobody gives it),
      ``max_prefill_chunks_per_step``, ``max_num_partial_prefills``, ``min_chunk_size``, and those
      of engines, such as ``chunk_size``
    - attributes that are an ``Integer`` or a ``Number`` are keys of its own

    It may have ``on_enqueue(books, request)`` and ``on_end(books, request)``, which are called when
    a request joins the queue, and when it ends; and ``refusal(books, prompt_tokens, max_tokens)``,
    which returns why such a request can never be served, or None. These read the books.
    """

    #: Its name in scenarios.
    name: str
    #: One line for users.
    summary: str = ""
    #: Keys of our own policies that it reads.
    keys: tuple[str, ...] = ()

    def fill(self, books: Books) -> None:
        """Decides the step under construction. Equal books must give equal decisions."""
        raise NotImplementedError


#: A class: a policy, or a router.
Registered = TypeVar("Registered", bound=type)


#: Classes by their names.
registered: dict[str, type] = {}


def own_keys(policy: type) -> dict[str, Union[Integer, Number]]:
    """The keys of a policy's own, in order of their definition."""
    return {key: value for kind in reversed(policy.__mro__) for key, value in vars(kind).items()
            if isinstance(value, (Integer, Number))}


def make(policy: type[Policy], values: Mapping[str, Any]) -> Policy:
    """The policy of a run."""
    one = policy.__new__(policy)
    one.__dict__.update(values)
    one.__init__()
    return one


def summary_of(kind: Any) -> str:
    """One line about a class that is registered."""
    return kind.summary or (inspect.getdoc(kind) or kind.name).splitlines()[0]


def key_tuples(kind: type) -> list[tuple[str, bool, float, float, float, str]]:
    """The keys of a class's own as the native module takes them."""
    return [(key, isinstance(value, Integer), value.least, value.most, value.default,
             value.meaning) for key, value in own_keys(kind).items()]


def install(policy: type[Policy], maker: Callable[[Mapping[str, Any]], Policy]) -> None:
    """Registers a policy whose objects ``maker`` makes from the values of its keys."""
    _native.register_policy(policy.name, summary_of(policy), list(policy.keys),
                            key_tuples(policy), maker)


def register(kind: Registered) -> Registered:
    """Makes a class a policy or a router of scenarios, by its name; also as a decorator.

    A class of the same name and keys takes the place of the one before, as when a cell of a
    notebook runs again. Register before runs begin in other threads or processes.

    Raises:
        ArgumentError: a name or key that another one has, or no ``fill`` or ``choose``
    """
    from ._router import Router, install as install_router
    name = getattr(kind, "name", None)
    if not isinstance(name, str) or not name.isidentifier():
        raise ArgumentError(f"name: {name!r} is no name of a policy; allowed: letters, digits and "
                            "'_', as in name = \"shortest_first\"")
    if isinstance(kind, type) and issubclass(kind, Router):
        if kind.choose is Router.choose:
            raise ArgumentError(f"router {name}: has no choose(); allowed: a subclass of "
                                "metronome.Router with choose(self, fleet, request)")
        install_router(kind)
        registered[name] = kind
        return kind
    if not (isinstance(kind, type) and issubclass(kind, Policy)) or kind.fill is Policy.fill:
        raise ArgumentError(f"policy {name}: has no fill(); allowed: a subclass of "
                            "metronome.Policy with fill(self, books)")
    install(kind, lambda values: make(kind, values))
    registered[name] = kind
    return kind


__all__ = ["Books", "Integer", "Number", "Policy", "Request", "register"]
