# SPDX-License-Identifier: Apache-2.0
"""Clients that disconnect, stall, or send invalid data; other clients must not notice."""

import json
import pathlib
import random
import resource
import signal
import socket
import struct
import subprocess
import tempfile
import time

from serve_checks import malformed, mutations
from serve_checks import server as serving
from serve_checks.companion import Companion
from serve_checks.server import Reader, Server, events_of, request_bytes, text_of

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
LONG = {"prompt": "Long", "max_tokens": 30000, "ignore_eos": True, "stream": True}
MAX_BODY_BYTES = 300_000
MAX_UNREAD_BYTES = 100_000


def open_stream(server, read_bytes=1, receive_bytes=None, **fields):
    """A connection whose stream has begun."""
    connection = socket.socket()
    if receive_bytes:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    connection.settimeout(30)
    connection.connect(("127.0.0.1", server.port))
    connection.sendall(request_bytes("/v1/completions", {**LONG, **fields}))
    if read_bytes and not connection.recv(read_bytes):
        raise EOFError("the stream did not begin")
    return connection


# ---- clients that disconnect ----


def reset(connection):
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    connection.close()


def leave_by_reset(server, faults, rng):
    for connection in [open_stream(server) for _ in range(40)]:
        reset(connection)


def leave_in_order(server, faults, rng):
    """Disconnects with FIN after reading what is on its way."""
    for connection in [open_stream(server) for _ in range(40)]:
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(65536):
            pass
        connection.close()


def leave_early(server, faults, rng):
    """Disconnects before a token, before the end of a complete answer, within a body, within a
    header."""
    whole = request_bytes("/v1/completions", {**LONG, "stream": False})
    streamed = request_bytes("/v1/completions", LONG)
    for i in range(60):
        connection = server.connect()
        data = whole if i % 2 else streamed
        connection.sendall(data if i % 3 else data[:rng.randrange(len(data))])
        if i % 4 == 0:
            time.sleep(0.01)
        reset(connection) if i % 5 else connection.close()


def leave_often(server, faults, rng):
    """Disconnects at every moment of a short answer."""
    for _ in range(100):
        connection = server.connect()
        connection.sendall(request_bytes("/v1/completions", {**LONG, "max_tokens": 5, "n": 3}))
        time.sleep(rng.uniform(0, 0.02))
        reset(connection)


def leave_while_read(server, faults, rng):
    """Disconnects while a long body is tokenized, which happens in the background."""
    for i in range(20):
        connection = server.connect()
        if i % 2:
            connection.sendall(request_bytes("/tokenize", {"prompt": "word " * 55_000}))
        else:
            connection.sendall(request_bytes("/v1/completions",
                                             {**LONG, "prompt": "word " * 6000, "max_tokens": 100}))
        time.sleep(rng.uniform(0, 0.01))
        reset(connection)


# ---- clients that do not read ----


def stop_reading(server, faults, rng):
    """The server cuts the clients off: their own ends of the connections stay open."""
    before = server.metrics()["metronome:clients_cut_total"]
    connections = [open_stream(server, receive_bytes=4096, n=4) for _ in range(5)]
    deadline = time.monotonic() + 60
    cut = 0
    while cut < len(connections) and time.monotonic() < deadline:
        time.sleep(0.1)
        cut = server.metrics()["metronome:clients_cut_total"] - before
    faults.equal(cut, len(connections), "clients that were cut off")
    for connection in connections:
        connection.close()


def read_slowly(server, faults, rng):
    """Reads more slowly than tokens are made, but within the limit of unread bytes: served to the
    end."""
    connection = open_stream(server, read_bytes=0, max_tokens=300, seed=3)
    reader = Reader(connection)
    reader.head()
    body = b""
    for chunk in reader.chunks():
        body += chunk
        time.sleep(0.005)
    expected = server.complete(prompt="Long", max_tokens=300, seed=3, ignore_eos=True)
    faults.equal(text_of(events_of(body)), expected["choices"][0]["text"], "a slow reader's text")
    connection.close()


# ---- limits of HTTP ----


def expect_response(server, faults, data, status, what):
    """Sends bytes unchanged. The response must be an API error, and then the connection must
    end."""
    with server.connect() as connection:
        try:
            connection.sendall(data)
        except OSError:
            pass  # the server closes before it has read all
        try:
            response = Reader(connection).response()
        except (OSError, EOFError, ValueError) as error:
            return faults.add(f"{what}: {error!r}")
    if not faults.expect(response, f"{what}: closed without a response"):
        return None
    found, headers, body = response
    faults.equal(found, status, what)
    if found >= 400:
        malformed.expect_error(faults, found, headers, body, what)
    return headers


def exceed_limits(server, faults, rng):
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    big = b"x" * (MAX_BODY_BYTES + 1)
    for what, data, status in (
            ("one long header", head + b"X: " + b"x" * 20_000 + b"\r\n\r\n", 431),
            ("many headers", head + b"X: y\r\n" * 5000 + b"\r\n", 431),
            ("a header that never ends", head + b"X" * 100_000, 431),
            ("a long target", b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\n\r\n", 431),
            ("a large body", request_bytes("/v1/completions", big), 413),
            ("a large body that is announced", head + b"Content-Length: 1000000000\r\n\r\n", 413),
            ("a huge length", head + b"Content-Length: 18446744073709551615\r\n\r\n", 413),
            ("a length of too many digits", head + b"Content-Length: " + b"9" * 40 + b"\r\n\r\n",
             400),
            ("a length below 0", head + b"Content-Length: -1\r\n\r\n", 400),
            ("two lengths", head + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
            ("a large chunked body", head + b"Transfer-Encoding: chunked\r\n\r\n" +
             (b"8000\r\n" + b"x" * 0x8000 + b"\r\n") * 12 + b"0\r\n\r\n", 413),
            ("a chunk without a size", head + b"Transfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
            ("no HTTP", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xff" * 100, 400),
            ("no version", b"GET /health\r\n\r\n", 400),
            ("a version that nobody has", b"GET /health HTTP/9.9\r\n\r\n", 400)):
        expect_response(server, faults, data, status, what)
    accepted = request_bytes("/tokenize", {"prompt": "x" * (MAX_BODY_BYTES - 100)})
    expect_response(server, faults, accepted, 200, "a body just below the limit")


def speak_http(server, faults, rng):
    """Unusual but allowed requests."""
    body = json.dumps({"prompt": "HTTP", "max_tokens": 4, "ignore_eos": True, "seed": 1}).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
    with server.connect() as connection:
        reader = Reader(connection)
        chunks = b"".join(b"%x;note=1\r\n%s\r\n" % (1, bytes([byte])) for byte in body)
        connection.sendall(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks + b"0\r\n\r\n")
        faults.equal(reader.response()[0], 200, "a chunked body")
        connection.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
        faults.equal(reader.response()[0], 100, "Expect: 100-continue")
        connection.sendall(body)
        text = json.loads(reader.response()[2])["choices"][0]["text"]
        for byte in request_bytes("/v1/completions", body):
            connection.sendall(bytes([byte]))
        faults.equal(json.loads(reader.response()[2])["choices"][0]["text"], text, "byte by byte")
    check_pipelines(server, faults, text)
    check_http10(server, faults, body, text)


def check_pipelines(server, faults, text):
    fields = {"prompt": "HTTP", "max_tokens": 4, "ignore_eos": True, "seed": 1}
    with server.connect() as connection:
        reader = Reader(connection)
        streams = request_bytes("/v1/completions", {**fields, "stream": True})
        whole = request_bytes("/v1/completions", fields)
        health = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
        connection.sendall((streams + whole + health) * 20)
        for _ in range(20):
            faults.equal(text_of(events_of(reader.response()[2])), text, "a pipelined stream")
            faults.equal(json.loads(reader.response()[2])["choices"][0]["text"], text, "pipelined")
            faults.equal(reader.response()[::2], (200, b""), "pipelined /health")
        connection.sendall(health * 2000)
        statuses = {reader.response()[0] for _ in range(2000)}
        faults.equal(statuses, {200}, "2,000 pipelined requests")


def check_http10(server, faults, body, text):
    for stream in (False, True):
        fields = {**json.loads(body), "stream": stream}
        data = request_bytes("/v1/completions", fields).replace(b"HTTP/1.1", b"HTTP/1.0")
        with server.connect() as connection:
            connection.sendall(data)
            status, headers, found = Reader(connection).response()
            faults.equal((status, "transfer-encoding" in headers), (200, False), "HTTP/1.0")
            shown = text_of(events_of(found) if stream else [json.loads(found)])
            faults.equal(shown, text, "HTTP/1.0")
            faults.equal(connection.recv(1), b"", "HTTP/1.0: the connection ends")
    with server.connect() as connection:
        reader = Reader(connection)
        for _ in range(3):
            connection.sendall(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            faults.equal(reader.response()[0], 200, "HTTP/1.0, kept alive")


def run_faults(program, faults, rng):
    options = ["--max-body-bytes", MAX_BODY_BYTES, "--max-unread-bytes", MAX_UNREAD_BYTES]
    with Server(program, SCENARIO, *options, variant="budget") as server:
        num_descriptors = server.num_descriptors()
        for fault in (leave_by_reset, leave_in_order, leave_early, leave_often, leave_while_read,
                      stop_reading, read_slowly, exceed_limits, speak_http,
                      malformed.send_malformed, malformed.send_wrong_types,
                      malformed.nest_deeply):
            name = fault.__name__.replace("_", " ")
            try:
                with Companion(server, faults, name):
                    fault(server, faults, rng)
                is_well = server.expect_rest(faults, name, num_descriptors)
            except Exception as error:
                faults.add(f"{name}: {error!r}")
                is_well = False
            if not server.is_alive:
                faults.add(f"{name}: the server has died: {server.wait()} {server.stderr()}")
            if not is_well:
                faults.say("later checks are left out: the server has a fault")
                return
        faults.equal(server.stop(), 0, "exit code")
        faults.equal(server.stderr(), "", "what the server says")


# ---- every policy ----

# Few blocks, so that a disconnecting request may be waiting, running, or preempted.
POLICY_SCENARIO = """
description: Clients leave under a policy
seed: 1
model: llama-3.2-3b
hardware: h200
engine: {{max_num_seqs: 8, max_model_len: 2048, async_depth: {depth}}}
kv_cache: {{num_blocks: 200}}
scheduler: {{policy: {policy}}}
slo: {{ttft_ms: 500, itl_ms: 25}}
workload:
  num_requests: 1
  arrivals: {{process: burst}}
  prompt_tokens: {{distribution: fixed, value: 10}}
  output_tokens: {{distribution: fixed, value: 10}}
"""


def policies(program):
    listed = subprocess.run([program, "list", "policies"], capture_output=True, text=True,
                            check=True).stdout
    return [line.split()[0] for line in listed.splitlines() if line[:1].isalpha()]


def leave_under(server, faults, rng, policy):
    begun = []
    for _ in range(60):
        connection = server.connect()
        connection.sendall(request_bytes("/v1/completions", {
            "prompt": [rng.randrange(256) for _ in range(rng.randrange(1, 900))],
            "max_tokens": rng.randrange(1, 800), "ignore_eos": True, "stream": True,
            "n": rng.choice((1, 1, 2))}))
        begun.append(connection)
        time.sleep(rng.uniform(0, 0.02))
        if rng.randrange(3):
            begun.pop(rng.randrange(len(begun))).close()
    for connection in begun:
        connection.close()
    server.expect_rest(faults, f"clients that left under {policy}")
    fields = {"prompt": "after", "max_tokens": 5, "ignore_eos": True}
    faults.equal(len(server.complete(**fields)["choices"][0]["text"]), 5, f"{policy}: afterwards")


def leave_under_policies(program, faults, rng):
    for policy in policies(program):
        depth = rng.choice((1, 2))
        with tempfile.NamedTemporaryFile("w", suffix=".yaml") as scenario:
            scenario.write(POLICY_SCENARIO.format(policy=policy, depth=depth))
            scenario.flush()
            with Server(program, scenario.name, speed=2) as server:
                leave_under(server, faults, rng, f"{policy}, {depth} steps in flight")
                faults.equal((server.stop(), server.stderr()), (0, ""), f"{policy}: its end")


# ---- limits on numbers ----


def limit_connections(program, faults):
    with Server(program, SCENARIO, "--max-connections", 10, variant="budget") as server:
        num_descriptors = server.num_descriptors()
        connections = [open_stream(server) for _ in range(10)]
        for _ in range(5):
            status, headers, _ = server.ask("GET", "/health")
            faults.equal((status, headers.get("retry-after")), (503, "1"), "one too many")
        connections.pop().close()
        time.sleep(0.5)
        faults.equal(server.ask("GET", "/health")[0], 200, "after one has left")
        for _ in range(20):  # idle ones give way
            connections.append(server.connect())
            connections[-1].sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
            faults.equal(Reader(connections[-1]).response()[0], 200, "in the place of an idle one")
        for connection in connections:
            connection.close()
        time.sleep(0.5)
        server.expect_rest(faults, "connections", num_descriptors)


def limit_descriptors(program, faults):
    """The system's limit is below the server's limit."""
    with Server(program, SCENARIO, variant="budget") as server:
        num_descriptors = server.num_descriptors()
        limit = num_descriptors + 20
        resource.prlimit(server.process.pid, resource.RLIMIT_NOFILE, (limit, limit))
        connections = [server.connect() for _ in range(60)]
        time.sleep(0.5)
        for connection in connections:
            connection.close()
        faults.equal(server.ask("GET", "/health")[0], 200, "after the descriptors had run out")
        server.expect_rest(faults, "descriptors", num_descriptors)


def limit_waiting(program, faults):
    sets = ["engine.max_num_seqs=1"]
    with Server(program, SCENARIO, "--max-waiting", 3, variant="budget", sets=sets) as server:
        num_descriptors = server.num_descriptors()
        first = open_stream(server)
        waiting = [open_stream(server, read_bytes=0) for _ in range(3)]
        time.sleep(0.5)
        for fields in ({}, {"stream": False}, {"n": 2}):
            status, headers, _ = server.ask("POST", "/v1/completions", {**LONG, **fields})
            faults.equal((status, headers.get("retry-after")), (503, "1"), "the queue is full")
        faults.equal(server.metrics()["vllm:num_requests_waiting"], 3, "requests that wait")
        for connection in (first, *waiting):
            connection.close()
        server.expect_rest(faults, "a full queue", num_descriptors)
        faults.equal(server.ask("POST", "/v1/completions", {**LONG, "max_tokens": 2})[0], 200,
                     "after the queue was full")


# ---- signals ----


def end_in_order(program, faults):
    """Running streams complete; new ones are refused."""
    with Server(program, SCENARIO, variant="budget") as server:
        expected = server.complete(prompt="Long", max_tokens=800, ignore_eos=True, seed=9)
        idle = server.connect()
        streams = [open_stream(server, read_bytes=0, max_tokens=800, seed=9) for _ in range(8)]
        readers = [Reader(connection) for connection in streams]
        heads = [reader.head() for reader in readers]
        server.signal()
        time.sleep(0.3)
        try:
            status = server.ask("GET", "/health", timeout_s=5)[0]
            faults.equal(status, 503, "a new connection after SIGTERM")
        except ConnectionError:
            pass
        faults.equal(idle.recv(1), b"", "an idle connection after SIGTERM")
        for (status, _), reader in zip(heads, readers):
            text = text_of(events_of(b"".join(reader.chunks())))
            faults.equal((status, text), (200, expected["choices"][0]["text"]),
                         "a stream during which SIGTERM came")
        faults.equal(server.wait(30), 0, "exit code after SIGTERM")


def end_at_once(program, faults):
    """On a second signal, or after the drain time, running streams end with an error."""
    for name, options, second in (("second SIGTERM", [], signal.SIGTERM),
                                  ("SIGTERM, then SIGINT", [], signal.SIGINT),
                                  ("--drain-seconds 1", ["--drain-seconds", 1], None)):
        with Server(program, SCENARIO, *options, variant="budget") as server:
            connection = open_stream(server, read_bytes=0)
            reader = Reader(connection)
            reader.head()
            server.signal()
            time.sleep(0.3)
            if second:
                server.signal(second)
            started = time.monotonic()
            try:
                events = events_of(b"".join(reader.chunks()))
                faults.expect("error" in events[-1], f"{name}: the last event is {events[-1]}")
            except (EOFError, ValueError, OSError) as error:
                faults.add(f"{name}: the stream does not say why it ends: {error!r}")
            faults.equal(server.wait(30), 0, f"{name}: exit code")
            faults.expect(time.monotonic() - started < 10, f"{name}: takes long")


def end_recorded(program, faults):
    """A stream that the server cuts is in the record, as far as it came."""
    with tempfile.TemporaryDirectory() as scratch:
        out = pathlib.Path(scratch) / "served"
        with Server(program, SCENARIO, "--out", out, "--drain-seconds", 0.2,
                    variant="budget") as server:
            short = {"prompt": "Short", "max_tokens": 5, "ignore_eos": True}
            server.complete(**short)
            streams = [open_stream(server, n=2), open_stream(server)]
            server.signal()
            faults.equal(server.wait(30), 0, "exit code, with a record")
            faults.equal(server.stderr(), "", "what the server says")
            for connection in streams:
                connection.close()
        requests = [json.loads(line) for line in (out / "requests.jsonl").open()]
        faults.equal(sorted(request["end"] for request in requests),
                     ["aborted"] * 3 + ["length"], "ends in the record")
        trace = [json.loads(line) for line in (out / "trace.jsonl").open()]
        faults.equal([(line["input_toks"], line["output_toks"] > 0) for line in trace],
                     [(5, True)] + [(4, True)] * 3, "requests in the trace")


def end_idle(program, faults):
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        with Server(program, SCENARIO, variant="budget") as server:
            server.signal(number)
            faults.equal(server.wait(10), 0, f"exit code after {number.name}")


def check(program, faults, options):
    rng = random.Random(options.seed)
    run_faults(program, faults, rng)
    leave_under_policies(program, faults, rng)
    mutations.check_mutations(program, faults, rng, options.mutations)
    for part in (limit_connections, limit_descriptors, limit_waiting, end_in_order, end_at_once,
                 end_recorded, end_idle):
        try:
            part(program, faults)
        except Exception as error:
            faults.add(f"{part.__name__.replace('_', ' ')}: {error!r}")
    if options.slow_clients:
        options.slow_clients.check(faults)
