# SPDX-License-Identifier: Apache-2.0
"""A server in the background of this process."""

import atexit
import os
import threading
import urllib.request
import warnings
import weakref
from collections.abc import Mapping
from typing import Any, Optional, TypedDict, Unpack

from . import _native
from ._errors import ArgumentError, MetronomeWarning
from ._result import unknown
from ._run import chosen_source
from ._scenario import Described, ScenarioLike, arguments_of, assignments_of

_LOOK_SECONDS = 0.1  # between looks whether Ctrl-C was pressed


class Served(TypedDict, total=False):
    """Options of ``metronome serve``; names of files are paths."""

    speed: float  # simulated time runs this many times as fast as real time
    model_name: str  # for clients; as in the scenario without it
    tokenizer: "str | os.PathLike[str]"  # a tokenizer.json or GGUF file; bytes without one
    chat_template: "str | os.PathLike[str]"  # a Jinja template
    generation_config: "str | os.PathLike[str]"  # sampling defaults: "auto", "vllm" or a folder
    out: "str | os.PathLike[str]"  # a folder for the results, written when the server ends
    api_key: str  # that clients must send
    allowed_hosts: str  # more names of the server, with commas between
    allowed_origins: str  # of web pages that may call it, with commas between
    ssl_certfile: "str | os.PathLike[str]"  # PEM, for HTTPS
    ssl_keyfile: "str | os.PathLike[str]"  # PEM
    drain_seconds: float  # time limit of running requests when the server ends
    max_waiting: int  # requests that wait for admission
    max_connections: int
    max_client_connections: int  # of one address
    max_client_requests: int  # of one address
    max_client_tokens: int  # prompt tokens of one address
    max_body_bytes: int  # of a request
    max_held_bytes: int  # of bodies and answers that wait
    max_unread_bytes: int  # of a stream that wait for its reader
    max_unsent_bytes: int  # of buffers of tokens
    max_record_bytes: int  # of the record of `out`; then the server ends


class Server:
    """A server that runs until ``close``, or to the end of its ``with`` block.

    Attributes:
        url: for clients: ``http://127.0.0.1:8000``; the API is below ``/v1``
        port: the port in it
    """

    url: str
    port: int

    def __init__(self, words: list[str], given: "Optional[_native.ScenarioSource]", host: str,
                 scheme: str):
        self._host = _native.ServerHost()
        self._process = os.getpid()
        self._address = (scheme, f"[{host}]" if ":" in host else host)
        self._error: Optional[BaseException] = None
        self._warnings = ""
        self._ready = threading.Event()
        self._ended = threading.Event()
        # A daemon: the interpreter ends when its other threads do, and aborts the server then.
        self._thread = threading.Thread(target=self._work, args=(words, given), daemon=True)
        self._thread.start()
        _running.add(self)

    def _work(self, words: list[str], given: "Optional[_native.ScenarioSource]") -> None:
        try:
            self._host.serve(words, given, self._listens, [])
        except BaseException as error:  # for the thread that waits
            self._error = error
        finally:
            self._ended.set()
            self._ready.set()

    def _listens(self, port: int, errors: str) -> None:
        scheme, host = self._address
        self.port = port
        self.url = f"{scheme}://{host}:{port}"
        self._warnings = errors
        self._ready.set()

    def _wait_until_ready(self) -> None:
        try:
            while not self._ready.wait(_LOOK_SECONDS):
                pass
        except KeyboardInterrupt:
            self.close(at_once=True)
            raise
        if self._ended.is_set():
            self.wait()

    def get(self, path: str) -> str:
        """The server's answer to GET, as a text: ``server.get("/metrics")``."""
        with urllib.request.urlopen(self.url + path) as answer:
            return answer.read().decode()

    @property
    def is_running(self) -> bool:
        """False after its end."""
        return not self._ended.is_set()

    def wait(self) -> None:
        """Waits until the server ends. Ctrl-C lets running requests end, and the server then.

        Raises:
            RunError: the engine failed, as by an exception of a policy
        """
        try:
            while not self._ended.wait(_LOOK_SECONDS):
                pass
        except KeyboardInterrupt:
            self.close()
            raise
        self._thread.join()
        if self._error is not None:
            raise self._error

    def close(self, at_once: bool = False) -> None:
        """Lets running requests end, and the server then; the results of ``out`` are written.

        Args:
            at_once: aborts running requests

        Raises:
            RunError: the engine failed
        """
        self._host.stop()
        if at_once:
            self._host.stop()
        while not self._ended.wait(_LOOK_SECONDS):  # so that Ctrl-C is seen
            pass
        self.wait()

    def __enter__(self) -> "Server":
        return self

    def __exit__(self, kind: Any, *_: Any) -> None:
        self.close(at_once=kind is not None)

    def __repr__(self) -> str:
        return f"<metronome.Server {self.url}{'' if self.is_running else ', ended'}>"


_running: "weakref.WeakSet[Server]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    for server in list(_running):
        if server._process != os.getpid():  # of the process that forked this one
            continue
        try:
            server.close(at_once=True)
        except Exception:  # nobody asked for it
            pass


class ServedOrDescribed(Served, Described, total=False):  # type: ignore[misc]
    """Options of a server, and a scenario without a file: ``Served`` and ``Described``."""


def serve(scenario: Optional[ScenarioLike] = None, sets: Optional[Mapping[str, Any]] = None, *,
          variant: Optional[str] = None, backend: str = "sim", host: str = "127.0.0.1",
          port: int = 0, **options: Unpack[ServedOrDescribed]) -> Server:
    """Serves the model of a scenario over an OpenAI-compatible HTTP API, as ``metronome serve``.

    The server runs in the background of this process, so that a policy of Python schedules what
    clients send. It ends with ``close``, and with the process.

    Args:
        scenario: as for ``run``; its workload is not used
        sets: values of keys
        variant: the one to serve; required if the scenario has several
        backend: ``sim``, whose steps take the predicted times and whose answers are plausible text;
            or ``cpu``, which computes the answers
        host: address to listen on
        port: to listen on; 0: any that is free
        **options: see ``Served``; and a scenario without a file, by a server's command together
            with ``gpu``, see ``Described``

    >>> with metronome.serve("quickstart", variant="chunked-512") as server:
    ...     print(server.url, server.get("/v1/models"))
    """
    described = {name: value for name, value in options.items()
                 if name not in Served.__annotations__}
    for name in described:
        if name not in Described.__annotations__:
            raise ArgumentError(unknown("serve", name,
                                        [*Served.__annotations__, *Described.__annotations__]))
    options = {name: value for name, value in options.items() if name not in described}
    source = chosen_source(scenario, described)
    words = [source.name, *arguments_of({
        "set": assignments_of(sets), "variant": variant, "backend": backend, "host": host,
        "port": port, "quiet": True, **options})]
    server = Server(words, source if source.text else None, host,
                    "https" if "ssl_certfile" in options else "http")
    server._wait_until_ready()
    for line in server._warnings.splitlines():
        warnings.warn(line.removeprefix("warning: "), MetronomeWarning, stacklevel=2)
    return server
