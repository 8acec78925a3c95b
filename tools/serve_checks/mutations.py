# SPDX-License-Identifier: Apache-2.0
"""Random mutations of valid requests: each gets a proper answer, or its connection is closed."""

import io
import json
import random
import select
import socket
import time

from serve_checks import malformed, server as serving
from serve_checks.companion import Companion
from serve_checks.server import Reader, Server, events_of, request_bytes

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
# Keeps answers short even with a mutated length.
SETS = ["engine.max_model_len=512"]
SPEED = 1000
NUM_AT_ONCE = 32
STATUSES = {200, 400, 403, 404, 405, 408, 413, 429, 431, 501, 503}
# The client closes an incomplete request after this time.
PATIENCE_S = 0.5
LIMIT_S = 30

SCHEMA = {"type": "object", "required": ["a", "b"], "properties": {
    "a": {"type": "string", "minLength": 2, "maxLength": 9},
    "b": {"type": "array", "items": {"$ref": "#/$defs/n"}, "minItems": 1},
    "c": {"anyOf": [{"type": "integer", "minimum": 3}, {"enum": ["x", None]}]}},
    "$defs": {"n": {"type": "number", "multipleOf": 0.5}}}

REQUESTS = [
    ("/v1/completions", {"model": "llama-3.2-3b", "prompt": "Once upon a time", "max_tokens": 5,
                         "temperature": 0.7, "top_p": 0.9, "seed": 17, "stop": ["\n\n", "END"]}),
    ("/v1/completions", {"prompt": [79, 110, 99, 101], "max_tokens": 4, "stream": True, "n": 2,
                         "stream_options": {"include_usage": True}}),
    ("/v1/completions", {"prompt": ["one", "two"], "max_tokens": 3, "ignore_eos": True}),
    ("/v1/completions", {"prompt": [[1, 2, 3], [4, 5]], "max_tokens": 3, "top_k": 5}),
    ("/v1/chat/completions", {"messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Grüße 世界"}]}],
        "max_completion_tokens": 5, "stream": True}),
    ("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 3,
                              "logprobs": False, "priority": 0}),
    ("/generate", {"prompt": "Once", "max_tokens": 5, "stream": True}),
    ("/generate", {"text": "Once", "stream": True, "return_logprob": True, "top_logprobs_num": 2,
                   "sampling_params": {"max_new_tokens": 4, "temperature": 0}}),
    ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": "f", "parameters": SCHEMA}}],
        "reasoning_effort": "low", "max_tokens": 60}),
    ("/v1/chat/completions", {
        "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60,
        "response_format": {"type": "json_schema",
                            "json_schema": {"name": "s", "schema": SCHEMA}}}),
    ("/v1/responses", {"input": [{"role": "user", "content": "Hi"},
                                 {"type": "function_call", "call_id": "c", "name": "f",
                                  "arguments": "{}"},
                                 {"type": "function_call_output", "call_id": "c", "output": "x"}],
                       "tools": [{"type": "function", "name": "f", "parameters": SCHEMA}],
                       "text": {"format": {"type": "json_object"}}, "max_output_tokens": 20}),
    ("/v1/messages", {"max_tokens": 20, "system": "s", "tool_choice": {"type": "any"},
                      "messages": [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
                      "tools": [{"name": "f", "input_schema": SCHEMA}]}),
    ("/tokenize", {"prompt": "Once \u00e9\U0001f600", "add_special_tokens": False}),
    ("/detokenize", {"tokens": [79, 110, 99, 101, 195, 169]})]
VALUES = [None, True, False, 0, 1, -1, 2, 3.5, -0.0, 1e308, 5e-324, 1 << 31, 1 << 63, 1 << 64,
          -(1 << 63), "", "x", "\x00", "\U0001f600", "x" * 600, [], {}, [None], [[]], [[[]]],
          {"a": 1}, ["x", 1], [1, "x"], [0] * 600, {"": {"": []}}]


# ---- mutations ----


def mutate_bytes(rng, data):
    """Flips, inserts, deletes, repeats or cuts, a few times."""
    data = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        at = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = bytes(rng.randrange(256) for _ in range(rng.randrange(1, 6)))
        elif kind == 2:
            del data[at:at + rng.randrange(1, 9)]
        elif kind == 3 and at < len(data):
            data[at] = rng.choice(b'{}[]",:\\0123456789-+.eE \r\n\t\x00\xff')
        elif kind == 4:
            data[at:at] = data[rng.randrange(len(data) + 1):][:rng.randrange(1, 40)]
        elif kind == 5 and rng.randrange(4) == 0:
            del data[at:]
    return bytes(data)


def places_of(value, parent=None, key=None):
    """Every (container, key) inside a value."""
    found = [] if parent is None else [(parent, key)]
    if isinstance(value, dict):
        for name in value:
            found += places_of(value[name], value, name)
    elif isinstance(value, list):
        for i, entry in enumerate(value):
            found += places_of(entry, value, i)
    return found


def mutate_fields(rng, fields):
    """Drops, replaces, wraps, renames or exchanges, a few times."""
    fields = json.loads(json.dumps(fields))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        places = places_of(fields)
        if not places:
            break
        container, key = rng.choice(places)
        kind = rng.randrange(6)
        if kind == 0:
            del container[key]
        elif kind == 1:
            container[key] = [container[key]]
        elif kind == 2:
            container[key] = json.dumps(container[key])
        elif kind == 3 and isinstance(container, dict):
            container[rng.choice(["prompt", "n", "stop", "seed", "stream", "messages", "unknown",
                                  "max_tokens", "tokens", "logprobs"])] = container.pop(key)
        elif kind == 4:
            container[key] = rng.choice(places_of(fields))[0]
            fields = json.loads(json.dumps(copy_of(fields)))
        else:
            container[key] = copy_of(rng.choice(VALUES))
    return fields


def copy_of(value, depth=6):
    """A copy of a value that may contain itself, of limited depth."""
    if depth == 0:
        return None
    if isinstance(value, dict):
        return {key: copy_of(entry, depth - 1) for key, entry in value.items()}
    if isinstance(value, list):
        return [copy_of(entry, depth - 1) for entry in value]
    return value


def mutated(rng):
    """(bytes of a request, whether its frame is complete)."""
    path, fields = rng.choice(REQUESTS)
    kind = rng.randrange(3)
    if kind == 0:
        return request_bytes(path, json.dumps(mutate_fields(rng, fields)).encode()), True
    if kind == 1:
        return request_bytes(path, mutate_bytes(rng, json.dumps(fields).encode())), True
    return mutate_bytes(rng, request_bytes(path, fields)), False


# ---- answers ----


class Bytes:
    """Received bytes as the input of Reader; their end is the connection's end."""

    def __init__(self, data):
        self.recv = io.BytesIO(data).read


def first_response(data):
    """The first response in the received bytes; None while it is incomplete."""
    try:
        reader = Reader(Bytes(data))
        response = reader.response()
        while response and response[0] == 100:
            response = reader.response()
        return response
    except EOFError:
        return None


class Exchange:
    """One mutated request in progress."""

    def __init__(self, port, data, is_framed):
        self.data = data
        self.is_framed = is_framed
        self.answer = b""
        self.has_ended = False
        self.is_half_closed = False
        self.started = time.monotonic()
        self.connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT_S)
        try:
            self.connection.sendall(data)
        except OSError:
            pass
        self.connection.setblocking(False)

    def read(self):
        try:
            part = self.connection.recv(65536)
        except BlockingIOError:
            return
        except OSError:
            part = b""
        self.answer += part
        self.has_ended = not part

    def is_done(self):
        if self.has_ended:
            return True
        # Cheap tests before the thorough one.
        if not self.answer.endswith((b"}", b"0\r\n\r\n", b"\r\n\r\n")):
            return False
        if b"chunked\r\n" in self.answer and not self.answer.endswith(b"0\r\n\r\n"):
            return False
        return first_response(self.answer) is not None

    def lose_patience(self, now):
        if self.is_half_closed or now - self.started < PATIENCE_S or self.answer:
            return
        if self.is_framed and now - self.started < LIMIT_S:
            return
        self.is_half_closed = True
        try:
            self.connection.shutdown(socket.SHUT_WR)
        except OSError:
            self.has_ended = True

    def judge(self, faults):
        """The status; None if the connection was closed without one."""
        what = f"mutation {serving.short(self.data, 600)}"
        try:
            response = first_response(self.answer)
        except ValueError as error:
            return faults.add(f"{what}: {error}")
        if response is None:
            faults.expect(not self.answer, f"{what}: half an answer: {self.answer[:200]}")
            faults.expect(not self.is_framed, f"{what}: closed without an answer")
            return None
        status, headers, body = response
        faults.expect(status in STATUSES, f"{what}: status {status}: {body[:200]}")
        if status >= 400:
            malformed.expect_error(faults, status, headers, body, what)
        elif headers["content-type"].startswith("text/event-stream"):
            faults.expect(events_of(body), f"{what}: a stream without events")
        elif headers["content-type"].startswith("application/json"):
            json.loads(body)
        return status


def run_mutations(server, faults, rng, count):
    """{status: number of requests}."""
    statuses = {}
    running = {}
    poll = select.epoll()
    num_sent = 0
    while num_sent < count or running:
        while num_sent < count and len(running) < NUM_AT_ONCE:
            exchange = Exchange(server.port, *mutated(rng))
            running[exchange.connection.fileno()] = exchange
            poll.register(exchange.connection.fileno(), select.EPOLLIN)
            num_sent += 1
        for number, _ in poll.poll(0.05):
            running[number].read()
        now = time.monotonic()
        for number, exchange in list(running.items()):
            exchange.lose_patience(now)
            is_late = now - exchange.started > LIMIT_S
            if not exchange.is_done() and not is_late:
                continue
            if is_late:
                faults.add(f"no end after {LIMIT_S} s: {serving.short(exchange.data, 600)}: "
                           f"{exchange.answer[:200]}")
            else:
                status = exchange.judge(faults)
                statuses[status] = statuses.get(status, 0) + 1
            poll.unregister(number)
            exchange.connection.close()
            del running[number]
    poll.close()
    return statuses


def check_mutations(program, faults, rng, count):
    with Server(program, SCENARIO, variant="budget", speed=SPEED, sets=SETS) as server:
        num_descriptors = server.num_descriptors()
        started = time.monotonic()
        with Companion(server, faults, "mutations"):
            statuses = run_mutations(server, faults, random.Random(rng.random()), count)
        seconds = time.monotonic() - started
        shown = ", ".join(f"{'closed' if status is None else status}: {number}"
                          for status, number in sorted(statuses.items(), key=str))
        faults.say(f"{count} mutations in {seconds:.0f} s: {shown}")
        server.expect_rest(faults, "mutations", num_descriptors)
        faults.expect(server.is_alive, f"mutations: the server has died: {server.stderr()}")
        faults.equal(server.stop(), 0, "mutations: exit code")
        faults.equal(server.stderr(), "", "mutations: what the server says")
