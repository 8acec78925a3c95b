# SPDX-License-Identifier: Apache-2.0
"""A `metronome serve` process, what the system and /metrics report about it, and raw HTTP to it."""

import collections
import ctypes
import http.client
import json
import os
import pathlib
import re
import resource
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
START_S = 60  # including loading a model, on a busy machine
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Faults:
    """The faults found. A check continues after a fault, so that one run reports all of them."""

    MAX_SAID = 20  # of one section

    def __init__(self, name):
        self.name = name
        self.count = 0
        self.num_checks = 0

    def expect(self, is_good, what):
        self.num_checks += 1
        if not is_good:
            self.add(what)
        return bool(is_good)

    def equal(self, found, expected, what):
        return self.expect(found == expected, f"{what}: {short(found)}, expected {short(expected)}")

    def add(self, what):
        self.count += 1
        if self.count <= self.MAX_SAID:
            print(f"check_serve: {self.name}: {what}", file=sys.stderr, flush=True)

    def say(self, what):
        print(f"check_serve: {self.name}: {what}", flush=True)


def short(value, most=200):
    text = repr(value)
    return text if len(text) <= most else text[:most] + "..."


LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1  # linux/prctl.h


def die_with_parent():
    """For preexec_fn: the process ends when its parent ends, for any reason. It takes SIGHUP, which
    it would ignore like a parent under nohup."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


class Server:
    """Serves during the `with` block; stop() or the end of the block always ends the process."""

    def __init__(self, program, scenario, *options, variant=None, sets=(), speed=None,
                 certificate=None, environment=None, max_files=None):
        command = [str(program), "serve", str(scenario), "--port", "0"]
        self.trusted = None  # for HTTPS
        if certificate:
            self.trusted = ssl.create_default_context(cafile=certificate.cert)
            command += ["--ssl-certfile", certificate.cert, "--ssl-keyfile", certificate.key]
        if variant:
            command += ["--variant", variant]
        if speed:
            command += ["--speed", str(speed)]
        for assignment in sets:
            command += ["--set", assignment]
        self.command = [*command, *map(str, options)]
        self.environment = {**os.environ, **(environment or {})}
        self.max_files = max_files
        self.errors = tempfile.TemporaryFile("w+")
        self.process = None
        self.port = None

    def __enter__(self):
        self.process = subprocess.Popen(self.command, cwd=ROOT, env=self.environment,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True,
                                        preexec_fn=self.before_start)
        try:
            self.port = self.read_port()
        except BaseException:
            self.__exit__()
            raise
        return self

    def before_start(self):
        die_with_parent()
        if self.max_files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.max_files, self.max_files))

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.errors.close()

    def read_port(self):
        deadline = time.monotonic() + START_S
        for line in self.process.stdout:
            found = re.match(r"serving\s+https?://[^ ]+:(\d+)/v1", line)
            if found:
                return int(found.group(1))
            if time.monotonic() > deadline:
                break
        raise RuntimeError(f"{' '.join(self.command)} does not serve: {self.stderr()}")

    def stderr(self):
        self.errors.seek(0)
        return self.errors.read().strip()

    @property
    def url(self):
        scheme, host = ("https", "localhost") if self.trusted else ("http", "127.0.0.1")
        return f"{scheme}://{host}:{self.port}"

    @property
    def is_alive(self):
        return self.process.poll() is None

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def wait(self, timeout_s=60):
        """Returns the exit code; discards what is printed meanwhile."""
        self.process.communicate(timeout=timeout_s)
        return self.process.returncode

    def stop(self, timeout_s=120):
        self.signal()
        return self.wait(timeout_s)

    # ---- what the system reports ----

    def num_descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def cpu_seconds(self):
        fields = pathlib.Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / TICKS_PER_S

    def resident_bytes(self):
        pages = pathlib.Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]
        return int(pages) * PAGE_BYTES

    # ---- what the server reports ----

    def connect(self, timeout_s=30):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=timeout_s)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def ask(self, method, path, body=None, headers=(), timeout_s=60):
        """(status, headers, bytes) of one request on a new connection."""
        if isinstance(body, (dict, list)):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)
        if self.trusted:
            connection = http.client.HTTPSConnection("localhost", self.port, timeout=timeout_s,
                                                     context=self.trusted)
        try:
            connection.request(method, path, body=body, headers=dict(headers))
            response = connection.getresponse()
            return response.status, response.headers, response.read()
        finally:
            connection.close()

    def complete(self, **fields):
        """The JSON of a completion, which must succeed."""
        status, _, body = self.ask("POST", "/v1/completions", fields)
        if status != 200:
            raise RuntimeError(f"status {status}: {short(body)}")
        return json.loads(body)

    def metrics(self):
        """{name: value} of the samples without additional labels."""
        status, _, body = self.ask("GET", "/metrics")
        if status != 200:
            raise RuntimeError(f"/metrics: status {status}")
        values = {}
        for line in body.decode().splitlines():
            if not line.startswith("#") and "le=" not in line:
                name, value = line.split(" ")
                labels = re.search(r'finished_reason="(\w+)"', name)
                values[name.partition("{")[0] + (f":{labels[1]}" if labels else "")] = float(value)
        return values

    def rest(self):
        """The parts that are not idle; empty if nothing runs, waits, or holds blocks or connections."""
        metrics = self.metrics()
        names = ["vllm:num_requests_running", "vllm:num_requests_waiting",
                 "vllm:kv_cache_usage_perc"]
        busy = {name: metrics[name] for name in names if metrics[name] != 0}
        if metrics["metronome:connections"] != 1:  # the connection of this request
            busy["metronome:connections"] = metrics["metronome:connections"]
        return busy

    def expect_rest(self, faults, what, num_descriptors=None, timeout_s=15):
        """Soon after the last client has disconnected, nothing may run, wait or remain."""
        deadline = time.monotonic() + timeout_s
        while True:
            busy = self.rest()
            now_open = self.num_descriptors()
            # Connections of the request for /metrics may still be open.
            if num_descriptors is not None and now_open > num_descriptors:
                busy["descriptors"] = f"{now_open}, {num_descriptors} before"
            if not busy or time.monotonic() > deadline:
                break
            time.sleep(0.05)
        return faults.expect(not busy, f"{what}: not at rest afterwards: {busy}")


Certificate = collections.namedtuple("Certificate", ["cert", "key"])


def make_certificate(folder):
    """A certificate of localhost that signs itself, and its key."""
    made = Certificate(*(str(pathlib.Path(folder) / name) for name in ("cert.pem", "key.pem")))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                    "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost",
                    "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1", "-out", made.cert,
                    "-keyout", made.key], check=True, capture_output=True)
    return made


# ---- raw HTTP ----


def request_bytes(path, body, method="POST", headers=()):
    if isinstance(body, (dict, list)):
        body = json.dumps(body).encode()
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}",
             *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


class Reader:
    """Reads responses from a socket, as strictly as HTTP/1.1 requires."""

    def __init__(self, connection):
        self.connection = connection
        self.data = b""

    def more(self):
        part = self.connection.recv(65536)
        self.data += part
        return len(part) > 0

    def line(self):
        while b"\r\n" not in self.data:
            if not self.more():
                raise EOFError(f"the connection ended in a line: {short(self.data)}")
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def exactly(self, count):
        while len(self.data) < count:
            if not self.more():
                raise EOFError(f"the connection ended {count - len(self.data)} bytes early")
        part, self.data = self.data[:count], self.data[count:]
        return part

    def head(self):
        """(status, {name: value}); None if the connection has ended."""
        if not self.data and not self.more():
            return None
        version, status, _ = self.line().split(b" ", 2)
        if version not in (b"HTTP/1.1", b"HTTP/1.0"):
            raise ValueError(f"no HTTP: {version!r}")
        headers = {}
        while line := self.line():
            name, _, value = line.partition(b":")
            headers[name.strip().lower().decode()] = value.strip().decode()
        return int(status), headers

    def chunks(self):
        while size := int(self.line(), 16):
            yield self.exactly(size)
            if self.line() != b"":
                raise ValueError("a chunk is longer than it says")
        if self.line() != b"":
            raise ValueError("the last chunk has something behind it")

    def response(self):
        """(status, headers, body); None if the connection has ended."""
        head = self.head()
        if head is None:
            return None
        status, headers = head
        if status in (100, 204):
            return status, headers, b""
        if headers.get("transfer-encoding") == "chunked":
            return status, headers, b"".join(self.chunks())
        if "content-length" in headers:
            return status, headers, self.exactly(int(headers["content-length"]))
        while self.more():
            pass
        body, self.data = self.data, b""
        return status, headers, body


def events_of(body):
    """The events of a stream without [DONE], which must be there."""
    parts = body.decode().split("\n\n")
    if parts[-1] != "" or parts[-2] != "data: [DONE]":
        raise ValueError(f"the stream does not end with [DONE]: {parts[-2:]}")
    if any(not part.startswith("data: ") for part in parts[:-2]):
        raise ValueError("the stream has something else than data")
    return [json.loads(part[len("data: "):]) for part in parts[:-2]]


def text_of(events):
    return "".join(choice["text"] for event in events for choice in event["choices"])
