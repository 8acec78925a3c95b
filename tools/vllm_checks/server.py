# SPDX-License-Identifier: Apache-2.0
"""A real server during a `with` block, on loopback."""

import json
import os
import pathlib
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request

from serve_checks.server import die_with_parent

PATCHES = pathlib.Path(__file__).resolve().parent / "patches"
START_S = 900  # on a busy machine
STOP_S = 60


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Server:
    """A process that logs to a file, and answers `health` with 200 once it serves."""

    def __init__(self, command, log, environment, health="/health"):
        self.port = free_port()
        self.command = [str(part).replace("{port}", str(self.port)) for part in command]
        self.log = pathlib.Path(log)
        self.environment = {**os.environ, **environment}
        self.health = health
        self.process = None

    @property
    def url(self):
        return f"http://127.0.0.1:{self.port}"

    def __enter__(self):
        with open(self.log, "wb") as log:  # a session of its own: its processes end as a group
            self.process = subprocess.Popen(
                self.command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=self.environment, preexec_fn=die_with_parent, start_new_session=True)
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                self.ask(self.health)
                return self
            except (OSError, urllib.error.URLError):
                time.sleep(1)
        self.__exit__()
        tail = "\n".join(self.log.read_text(errors="replace").splitlines()[-15:])
        raise RuntimeError(f"{' '.join(self.command)} does not serve:\n{tail}")

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                pass
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()

    def ask(self, path, body=None, timeout_s=600):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data,
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=timeout_s) as answer:
            return answer.read()

    def metrics(self):
        return self.ask("/metrics").decode()


def variables_of(kv_gib):
    """The environment of every server."""
    return {"VLLM_CPU_KVCACHE_SPACE": str(kv_gib), "HF_HUB_OFFLINE": "1",
            "VLLM_NO_USAGE_STATS": "1", "DO_NOT_TRACK": "1"}


def vllm_server(venv, model, folder, flags, *, is_async=False, records=False, kv_gib=2,
                environment=None):
    """`vllm serve` with the flags that every run has, and these."""
    variables = {**variables_of(kv_gib), **(environment or {})}
    if is_async or records:
        variables["PYTHONPATH"] = str(PATCHES)
    if is_async:
        variables["METRONOME_ASYNC"] = "1"
    if records:
        variables["METRONOME_RECORD"] = str(folder / "decisions")
    command = [venv / "bin/vllm", "serve", model, "--served-model-name", "smollm2", "--host",
               "127.0.0.1", "--port", "{port}", "--enforce-eager",
               "--enable-logging-iteration-details", *flags]
    return Server(command, folder / "server.log", variables)
