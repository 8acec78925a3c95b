# SPDX-License-Identifier: Apache-2.0
"""A well-behaved client, served while others misbehave, and slow clients, served for a minute."""

import threading
import time

from serve_checks import server as serving
from serve_checks.server import Reader, Server, events_of, request_bytes, text_of

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
STALL_S = 5  # between two tokens: orders of magnitude above the simulated gap


class Companion:
    """Streams repeatedly during the `with` block and records disturbances."""

    FIELDS = {"prompt": "Well behaved", "max_tokens": 150, "seed": 5, "ignore_eos": True}

    def __init__(self, server, faults, what):
        self.server = server
        self.faults = faults
        self.what = what
        self.text = server.complete(**self.FIELDS)["choices"][0]["text"]
        self.has_ended = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.num_streams = 0

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.has_ended.set()
        self.thread.join()
        self.faults.expect(self.num_streams > 0, f"{self.what}: nobody else was served")

    def run(self):
        try:
            while not self.has_ended.is_set() or self.num_streams == 0:
                self.stream()
                self.num_streams += 1
        except Exception as error:
            self.faults.add(f"{self.what}: another client was disturbed: {error!r}")

    def stream(self):
        with self.server.connect(timeout_s=STALL_S) as connection:
            connection.sendall(request_bytes("/v1/completions", {**self.FIELDS, "stream": True}))
            reader = Reader(connection)
            status, _ = reader.head()
            body = b"".join(reader.chunks())
        if status != 200 or text_of(events_of(body)) != self.text:
            raise ValueError(f"status {status}, {serving.short(body[:300])}")


class SlowClients:
    """Clients that never finish. All are cut off after a minute, while others run."""

    # Timeouts of serve/server/http_server.h, and slack for a busy machine.
    HEADER_S, BODY_S, WRITE_S, SLACK_S = 10, 60, 30, 15

    def __init__(self, program):
        self.server = Server(program, SCENARIO, variant="budget")
        self.found = {}  # (status or None, seconds) by name
        self.threads = []

    def __enter__(self):
        self.server.__enter__()
        self.num_descriptors = self.server.num_descriptors()
        head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
        body_head = head + b"Content-Length: 1000\r\n\r\n"
        for name, begin, drop in (("a header in drops", b"P", b"x"), ("half a header", head, b""),
                                  ("a body in drops", body_head, b" "),
                                  ("half a body", body_head + b'{"prompt"', b""),
                                  ("a chunk in drops", head + b"Transfer-Encoding: chunked\r\n\r\n"
                                   b"ffff\r\n", b" ")):
            self.start(name, self.drop, begin, drop)
        self.start("a reader that stops", self.stop_reading)
        return self

    def __exit__(self, *_):
        self.server.__exit__()
        for thread in self.threads:
            thread.join()

    def start(self, name, call, *arguments):
        self.threads.append(threading.Thread(target=call, args=(name, *arguments)))
        self.threads[-1].start()

    def drop(self, name, begin, drop):
        """Sends a byte per second until the server closes the connection."""
        started = time.monotonic()
        status = None
        try:
            with self.server.connect(timeout_s=1) as connection:
                connection.sendall(begin)
                while True:
                    try:
                        response = Reader(connection).response()
                        status = response and response[0]
                        break
                    except TimeoutError:
                        connection.sendall(drop)
        except OSError:
            pass  # reset
        self.found[name] = (status, time.monotonic() - started)

    def stop_reading(self, name):
        """The stream's size is below the limit of unread bytes, so only a timeout can cut it
        off."""
        started = time.monotonic()
        with self.server.connect() as connection:
            connection.setsockopt(serving.socket.SOL_SOCKET, serving.socket.SO_RCVBUF, 4096)
            connection.sendall(request_bytes("/v1/completions", {
                "prompt": "x", "max_tokens": 100, "n": 40, "ignore_eos": True, "stream": True}))
            try:
                while self.server.metrics()["metronome:clients_cut_total"] == 0:
                    time.sleep(1)
                    if time.monotonic() - started > self.BODY_S + self.SLACK_S:
                        break
            except OSError:
                return  # the server was stopped
        self.found[name] = (None, time.monotonic() - started)

    def check(self, faults):
        for thread in self.threads:
            thread.join()
        limits = {"a header in drops": self.HEADER_S, "half a header": self.HEADER_S,
                  "a body in drops": self.BODY_S, "half a body": self.BODY_S,
                  "a chunk in drops": self.BODY_S, "a reader that stops": self.WRITE_S}
        for name, limit in limits.items():
            status, seconds = self.found[name]
            faults.say(f"{name}: status {status} after {seconds:.0f} s")
            faults.expect(status in (None, 408), f"{name}: status {status}")
            faults.expect(limit - 2 <= seconds <= limit + self.SLACK_S,
                          f"{name}: cut off after {seconds:.0f} s, the limit is {limit}")
        self.server.expect_rest(faults, "slow clients", self.num_descriptors)
        faults.equal(self.server.stop(), 0, "slow clients: exit code")
