# SPDX-License-Identifier: Apache-2.0
"""Attacks on a server beside a well-behaved client, whose p99 is printed.

Attackers come from 127.0.0.2 and 127.0.0.3, the well-behaved client from 127.0.0.1. All are on this
machine, and every attack is bounded. Phases without and with the attack alternate.
"""

import json
import multiprocessing
import os
import pathlib
import random
import resource
import select
import signal
import socket
import statistics
import tempfile
import threading
import time

from serve_checks import server as serving
from serve_checks.server import Reader, Server, request_bytes
from serve_checks.streams import percentile

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
TOKENIZER = serving.ROOT / "tests/fixtures/tokenizers/llama3.json"
PHASE_S = 4
NUM_RUNS = 3
LIMIT_MS = 20  # what an attack may add to the p99 of the well-behaved client
# For machines with other load; --timed applies the limit above.
LOOSE_FACTOR = 50
LIMIT_BYTES = 512 << 20
MIB = 1 << 20

# ---- the well-behaved client ----

# A prompt of 10 KB: it is read like the bodies of the attackers that are about as long.
POLITE = {"prompt": "polite " * 1500, "max_tokens": 1, "ignore_eos": True}


def ask_politely(port):
    """Seconds from connecting to the end of the answer."""
    started = time.monotonic()
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.sendall(request_bytes("/v1/completions", POLITE))
        status = Reader(connection).response()[0]
    if status != 200:
        raise ValueError(f"status {status}")
    return time.monotonic() - started


def measure(port, seconds):
    """(p99 in ms, refused requests) of requests one after the other."""
    times, num_refused = [], 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            times.append(ask_politely(port))
        except (OSError, EOFError, ValueError):
            num_refused += 1
            time.sleep(0.05)
    return 1e3 * percentile(times or [float("inf")], 0.99), num_refused


# ---- what attackers do ----


def connect(port, source=2):
    connection = socket.socket()
    connection.settimeout(20)
    connection.bind((f"127.0.0.{source}", 0))
    connection.connect(("127.0.0.1", port))
    return connection


def send_and_forget(port, data, source=2, wait_s=5):
    """Sends a request and waits some time for the beginning of the response."""
    try:
        with connect(port, source) as connection:
            connection.settimeout(wait_s)
            connection.sendall(data)
            connection.recv(65536)
    except OSError:
        pass


def repeat(port, data):
    while True:
        send_and_forget(port, data)
        time.sleep(0.02)


def many_stops(port):
    repeat(port, request_bytes("/v1/completions", {
        "prompt": "x", "n": 64, "max_tokens": 4, "stop": ["\x01"] * 100_000}))


def huge_stops(port):
    body = ('{"prompt":"x","n":128,"max_tokens":4,"stop":[' + '"z",' * 1_600_000 + '"z"]}').encode()
    repeat(port, request_bytes("/v1/completions", body))


def allowed_stops(port):
    """As many stop strings as are allowed, for as many answers."""
    stops = [f"{i:02}" + "x" * 62 for i in range(64)]
    repeat(port, request_bytes("/v1/completions", {
        "prompt": "x", "n": 16, "max_tokens": 200, "ignore_eos": True, "stop": stops}))


def long_bodies(port):
    repeat(port, request_bytes("/tokenize", {"prompt": "word " * 1_600_000}))


def long_prompts(port):
    repeat(port, request_bytes("/v1/completions", {"prompt": "word " * 1_600_000}))


def short_bodies(port, count=100):
    """One client asks on many connections at once, each time it has its answer."""
    data = request_bytes("/tokenize", {"prompt": "hello world qwzx " * 470})

    def ask():
        while True:
            try:
                with connect(port) as connection:
                    reader = Reader(connection)
                    while True:
                        connection.sendall(data)
                        reader.response()
            except (OSError, EOFError, ValueError):
                time.sleep(0.02)

    threads = [threading.Thread(target=ask, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def left_bodies(port):
    """The client leaves as soon as its body has been sent."""
    data = request_bytes("/tokenize", {"prompt": "word " * 1_600_000})
    while True:
        send_and_forget(port, data, wait_s=0.001)
        time.sleep(0.02)


def many_values(port):
    """Eight million bytes that are as many values as possible."""
    repeat(port, request_bytes("/v1/completions", b'{"x":[' + b"[]," * 2_600_000 + b"1]}"))


def unfinished_bodies(port):
    """Bodies of which all but the end comes."""
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000000\r\n\r\n"
    held = []
    while True:
        try:
            connection = connect(port, 2 + len(held) % 2)
            connection.settimeout(2)
            connection.sendall(head + b" " * (2 * MIB))
            held.append(connection)
        except OSError:
            time.sleep(0.02)
        if len(held) > 400:
            time.sleep(1)


def hold(port, data, count=4200):
    """Many connections of one client, all open; those that the server closes are opened again."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * count, 2 * count))
    held, poll = {}, select.poll()
    while True:
        for _ in range(count - len(held)):
            try:
                connection = connect(port)
                connection.sendall(data)
            except OSError:
                continue
            held[connection.fileno()] = connection
            poll.register(connection, select.POLLIN | select.POLLHUP)
        for descriptor, _ in poll.poll(100):
            poll.unregister(descriptor)
            held.pop(descriptor).close()
        time.sleep(0.05)


def idle_connections(port):
    hold(port, b"")


def unfinished_headers(port):
    hold(port, b"GET /health HTTP/1.1\r\nHost:")


def unread_answers(port):
    """Whole answers of many bytes that nobody reads."""
    data = request_bytes("/tokenize", {"prompt": "x" * 32_000})
    held = []
    while True:
        try:
            connection = connect(port)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.sendall(data * 30)
            held.append(connection)
        except OSError:
            pass
        time.sleep(0.02 if len(held) < 800 else 1)


def hidden_requests(port):
    """Bodies with codings that nobody knows; what they hide must not be executed."""
    hidden = request_bytes("/tokenize", {"prompt": "word " * 20_000})
    head = b"POST /generate HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
    while True:
        for coding in (b"xchunked", b"chunked, identity"):
            send_and_forget(port, head + coding + b"\r\n\r\n" + hidden * 4, wait_s=1)
        time.sleep(0.005)


# (name, what each attacker does, how many attackers)
ATTACKS = [("100,000 stop strings, n=64", many_stops, 2),
           ("1.6 million stop strings, n=128", huge_stops, 1),
           ("64 stop strings, n=16", allowed_stops, 1),
           ("8 MB to /tokenize", long_bodies, 6),
           ("8 MB prompts", long_prompts, 6),
           ("8 KB to /tokenize on 100 connections", short_bodies, 1),
           ("8 MB bodies of clients that leave", left_bodies, 2),
           ("8 MB of empty lists", many_values, 2),
           ("unfinished bodies", unfinished_bodies, 1),
           ("4,200 idle connections", idle_connections, 1),
           ("4,200 unfinished headers", unfinished_headers, 1),
           ("answers that nobody reads", unread_answers, 1),
           ("requests in bodies of unknown codings", hidden_requests, 1)]


class Attackers:
    """Processes that attack during the `with` block."""

    def __init__(self, attack, count, port):
        self.processes = [multiprocessing.Process(target=self.run, args=(attack, port), daemon=True)
                          for _ in range(count)]

    @staticmethod
    def run(attack, port):
        serving.LIBC.prctl(serving.PR_SET_PDEATHSIG, 9)
        os.nice(10)
        attack(port)

    def __enter__(self):
        for process in self.processes:
            process.start()
        return self

    def __exit__(self, *_):
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.join()


def peak_bytes(server):
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return 1024 * int(status.partition("VmHWM:")[2].split()[0])


def check_few_files(program, faults):
    """A client with more idle connections than the server may open files keeps nobody out."""
    with Server(program, SCENARIO, variant="budget", max_files=256) as server:
        faults.expect("takes 192 connections" in server.stderr(), "no warning of few files")
        with Attackers(idle_connections, 1, server.port):
            time.sleep(1)
            _, refused = measure(server.port, 2)
        faults.equal(refused, 0, "few files: requests of the well-behaved client that failed")
        faults.say("4,200 idle connections where 256 files may be open: nobody else is refused")
        server.expect_rest(faults, "few files", timeout_s=30)


def check_attack(program, faults, name, attack, count, limit_ms):
    alone, attacked, num_refused = [], [], 0
    with Server(program, SCENARIO, "--tokenizer", TOKENIZER, variant="budget") as server:
        measure(server.port, 0.5)
        for _ in range(NUM_RUNS):
            alone.append(measure(server.port, PHASE_S)[0])
            with Attackers(attack, count, server.port):
                time.sleep(1)
                p99, refused = measure(server.port, PHASE_S)
            attacked.append(p99)
            num_refused += refused
            if not server.is_alive:
                return faults.add(f"{name}: the server has died: {server.stderr()}")
            time.sleep(1)
        peak = peak_bytes(server)
        added = statistics.median(attacked) - statistics.median(alone)
        faults.say(f"{name}: p99 {statistics.median(alone):.1f} ms alone, "
                   f"{statistics.median(attacked):.1f} ms under attack ({added:+.1f} ms); "
                   f"{num_refused} refused; at most {peak / MIB:.0f} MiB")
        faults.expect(added < limit_ms, f"{name}: adds {added:.1f} ms; at most {limit_ms}")
        faults.equal(num_refused, 0, f"{name}: requests of the well-behaved client that failed")
        faults.expect(peak < LIMIT_BYTES, f"{name}: takes {peak / MIB:.0f} MiB")
        server.expect_rest(faults, name, timeout_s=30)
    return None


# ---- what must be refused ----

BODY = {"prompt": "x", "max_tokens": 1}


def status_of(server, data):
    with server.connect() as connection:
        connection.sendall(data)
        reader = Reader(connection)
        status = reader.response()[0]
        return status, reader.response() is None  # one response, and the connection ends


def check_refusals(program, faults):
    """Framing, keys, names and origins, as a client meets them."""
    post = b"POST /v1/completions HTTP/1.1\r\n"
    host = b"Host: localhost\r\n"
    hidden = b"\r\n\r\n" + request_bytes("/v1/completions", BODY)
    options = ("--api-key", "secret", "--allowed-hosts", "gpu.lab", "--allowed-origins",
               "https://chat.example")
    with Server(program, SCENARIO, *options, variant="budget") as server:
        for what, data, status in (
                ("xchunked", post + host + b"Transfer-Encoding: xchunked" + hidden, 501),
                ("chunked, identity",
                 post + host + b"Transfer-Encoding: chunked, identity" + hidden, 501),
                ("a length and a coding", post + host + b"Content-Length: 3\r\n"
                 b"Transfer-Encoding: chunked" + hidden, 400),
                ("no host", post + b"Content-Length: 0\r\n\r\n", 400),
                ("two hosts", post + host + host + b"\r\n", 400),
                ("a folded field", post + host + b"X: a\r\n b\r\n\r\n", 400),
                ("no key", request_bytes("/v1/completions", BODY), 401)):
            faults.equal(status_of(server, data), (status, True), what)
        key = {"Authorization": "Bearer secret"}
        page = {**key, "Origin": "https://chat.example"}
        for what, path, headers, status in (
                ("a key", "/v1/models", key, 200), ("a wrong key", "/v1/models",
                                                    {"Authorization": "Bearer secre"}, 401),
                ("a path without a key", "/health", {}, 200),
                ("another name", "/health", {"Host": "evil.example"}, 403),
                ("an allowed name", "/health", {"Host": "gpu.lab:8000"}, 200),
                ("another origin", "/v1/models", {**key, "Origin": "https://evil.example"}, 403),
                ("an allowed origin", "/v1/models", page, 200)):
            found, answered, _ = server.ask("GET", path, headers=headers)
            faults.equal(found, status, what)
            faults.equal(answered.get("access-control-allow-origin"),
                         headers.get("Origin") if status == 200 else None, f"{what}: CORS")
        found, answered, _ = server.ask("OPTIONS", "/v1/completions", headers={
            "Origin": "https://chat.example", "Access-Control-Request-Method": "POST"})
        faults.equal((found, answered.get("access-control-allow-origin")),
                     (204, "https://chat.example"), "a browser's question")
        faults.equal(server.stop(), 0, "exit code")


# ---- readers that are slower than the server ----


def check_readers(program, faults):
    """Honest readers get every token, however fast the server is and others are not."""
    fields = {"prompt": "x", "max_tokens": 30000, "ignore_eos": True, "stream": True, "seed": 1}
    for speed in (100, 1000, 100_000):
        with Server(program, SCENARIO, variant="budget", speed=speed) as server:
            deaf = [server.connect() for _ in range(8)]
            for connection in deaf:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
                connection.sendall(request_bytes("/v1/completions", {**fields, "n": 8}))
            text = server.complete(**{**fields, "stream": False})["choices"][0]["text"]
            streams = [server.connect(timeout_s=60) for _ in range(4)]
            for connection in streams:
                connection.sendall(request_bytes("/v1/completions", fields))
            time.sleep(2)  # the readers begin late
            for connection in streams:
                status, _, body = Reader(connection).response()
                events = serving.events_of(body)
                faults.equal((status, len(events), serving.text_of(events)), (200, 30000, text),
                             f"a reader at speed {speed}")
                connection.close()
            faults.equal(server.metrics()["metronome:clients_cut_total"], 0, "readers cut off")
            for connection in deaf:
                connection.close()
            peak = peak_bytes(server)
            faults.expect(peak < LIMIT_BYTES, f"speed {speed}: takes {peak / MIB:.0f} MiB")
            faults.say(f"readers at speed {speed}: all got all; at most {peak / MIB:.0f} MiB")
            server.expect_rest(faults, f"readers at speed {speed}")


def check_unread_tokens(program, faults):
    """A client with many streams that it does not read loses the largest, and none that it reads."""
    most = 8 * MIB
    fields = {"prompt": "x", "max_tokens": 30000, "ignore_eos": True, "stream": True}
    with Server(program, SCENARIO, "--max-unsent-bytes", 2 * most, variant="budget",
                speed=1000) as server:
        alone = peak_bytes(server)
        deaf = [connect(server.port) for _ in range(16)]
        for connection in deaf:
            connection.sendall(request_bytes("/v1/completions", {**fields, "n": 16}))
        with connect(server.port) as connection:
            connection.sendall(request_bytes("/v1/completions", fields))
            events = serving.events_of(Reader(connection).response()[2])
        faults.equal(len(events), 30000, "tokens of the one who reads")
        deadline = time.monotonic() + 60
        while server.metrics()["metronome:answers_cut_total"] < 8 and time.monotonic() < deadline:
            time.sleep(0.05)
        num_cut = int(server.metrics()["metronome:answers_cut_total"])
        faults.expect(num_cut >= 8, f"only {num_cut} of 16 unread answers were ended")
        added = peak_bytes(server) - alone
        faults.expect(added < 64 * MIB, f"unread tokens take {added / MIB:.0f} MiB")
        for connection in deaf:
            connection.close()
        faults.say(f"256 streams that nobody reads, where a client may have {most / MIB:.0f} MiB: "
                   f"{added / MIB:.0f} MiB, {num_cut} of 16 answers ended; a reader got all")
        server.expect_rest(faults, "unread tokens", timeout_s=30)


# ---- a server that is killed ----


def check_killed(program, faults, rng):
    """A server that is killed at any moment has recorded all tokens that clients have."""
    num_received = 0
    with tempfile.TemporaryDirectory() as scratch:
        for number in range(20):
            out = pathlib.Path(scratch) / str(number)
            with Server(program, SCENARIO, "--out", out, variant="budget", speed=20) as server:
                received = ask_until_killed(server, rng)
            num_received += len(received)
            lines = pathlib.Path(f"{out}.served.jsonl").read_bytes().split(b"\n")
            whole = [json.loads(line) for line in lines[:-1]]
            recorded = [tuple(line["input_tok_ids"]) for line in whole]
            missing = [prompt for prompt in received if recorded.count(prompt) < 1]
            faults.equal(missing, [], f"answers that are not recorded, of {len(received)}")
    faults.expect(num_received > 100, f"only {num_received} answers came before the kills")
    faults.say(f"a server that was killed 20 times had recorded all {num_received} answers")


def check_full_record(program, faults, rng):
    """A server whose record is full ends by itself, and its results have all answers."""
    most = 200_000
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "out"
        with Server(program, SCENARIO, "--out", out, "--max-record-bytes", str(most),
                    variant="budget", speed=100) as server:
            num_answers = 0
            while server.is_alive and num_answers < 5000:
                num_answers += is_served(server, rng)
            if faults.expect(not server.is_alive, "a server goes on with a full record"):
                faults.equal(server.wait(), 0, "exit code of a server whose record is full")
                faults.expect("--max-record-bytes" in server.stderr(), "it does not say why it ends")
        trace = (out / "trace.jsonl").read_bytes()
        faults.equal(trace.count(b"\n"), num_answers, "answers in a record that is full")
        faults.expect(most // 4 < len(trace) < 2 * most, f"a full record has {len(trace)} bytes")
    faults.say(f"a server whose record is full after {num_answers} answers ends, with all of them")


def is_served(server, rng):
    """Whether the server answers one request to its end."""
    body = {"prompt": [rng.randrange(256) for _ in range(rng.randrange(8, 400))], "max_tokens": 9,
            "ignore_eos": True}
    try:
        with server.connect() as connection:
            connection.sendall(request_bytes("/v1/completions", body).replace(
                b"Host:", b"Connection: close\r\nHost:"))
            return is_answered(connection)
    except OSError:  # it has stopped listening
        return False


def ask_until_killed(server, rng, ends_first=False):
    """Kills the server while clients load it. Returns the prompts that were answered.

    `ends_first`: it is told to end, and killed soon after.
    """
    received = []
    deadline = time.monotonic() + rng.uniform(0.02, 0.6)
    waiting = {}
    while time.monotonic() < deadline:
        while len(waiting) < 8:
            prompt = tuple(rng.randrange(256) for _ in range(rng.randrange(8, 40)))
            connection = server.connect()
            connection.sendall(request_bytes("/v1/completions", {
                "prompt": prompt, "max_tokens": rng.randrange(1, 20), "ignore_eos": True,
                "stop": ["e"], "stream": rng.random() < 0.5}).replace(
                    b"Host:", b"Connection: close\r\nHost:"))
            waiting[connection] = prompt
        ready, _, _ = select.select(list(waiting), [], [], 0.01)
        for connection in ready:
            received += [waiting[connection]] if is_answered(connection) else []
            del waiting[connection]
            connection.close()
    if ends_first:
        server.signal(signal.SIGTERM)
        time.sleep(rng.uniform(0, 0.1))
    server.signal(signal.SIGKILL)
    for connection, prompt in waiting.items():
        received += [prompt] if is_answered(connection) else []
        connection.close()
    return received


def is_answered(connection):
    try:
        status, _, body = Reader(connection).response()
        return status == 200 and (body.endswith(b"[DONE]\n\n") or body.startswith(b"{"))
    except (OSError, EOFError, ValueError, TypeError):
        return False


def check(program, faults, options):
    if not options.attack:
        check_refusals(program, faults)
        check_readers(program, faults)
        check_unread_tokens(program, faults)
        check_killed(program, faults, random.Random(options.seed))
        check_full_record(program, faults, random.Random(options.seed))
        check_few_files(program, faults)
    for name, attack, count in ATTACKS:
        if not options.attack or options.attack in name:
            check_attack(program, faults, name, attack, count,
                         LIMIT_MS * (1 if options.timed else LOOSE_FACTOR))
