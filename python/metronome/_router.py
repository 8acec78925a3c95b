# SPDX-License-Identifier: Apache-2.0
"""Routers of a fleet in Python."""

from collections.abc import Mapping, Sequence
from typing import Any, Union

from . import _native
from ._native import Fleet, RoutedRequest
from ._policy import key_tuples, summary_of


class Router:
    """Base of a router: which replica gets the next request?

    A subclass has ``choose``. ``register`` makes it a router of scenarios, by its name in
    ``fleet.router``. Each run has an object of its own, with ``num_replicas`` and the values of its
    keys before ``__init__``: attributes that are an ``Integer`` or a ``Number`` are keys of the
    section ``fleet.NAME``.

    It may have ``on_sent(number, replica)``, ``on_first_token(number)`` and
    ``on_end(number, replica)``, which are called with the number of a request.
    """

    #: Its name in scenarios.
    name: str
    #: One line for users.
    summary: str = ""
    #: It asks for ``fleet.cached_tokens``.
    hears_blocks: bool = False
    #: Milliseconds between the reports of replicas, ``fleet.reports``; 0: it asks for none.
    report_ms: float = 0

    num_replicas: int

    def choose(self, fleet: Fleet, request: RoutedRequest) -> Union[int, Sequence[int]]:
        """The replica of ``fleet.up`` that gets the request; of several, a lot is drawn."""
        raise NotImplementedError


def make(router: type[Router], values: Mapping[str, Any]) -> Router:
    """The router of a run."""
    one = router.__new__(router)
    one.__dict__.update(values)
    one.__init__()
    return one


def install(router: type[Router]) -> None:
    _native.register_router(router.name, summary_of(router), key_tuples(router),
                            bool(router.hears_blocks), float(router.report_ms),
                            lambda values: make(router, values))


__all__ = ["Fleet", "RoutedRequest", "Router"]
