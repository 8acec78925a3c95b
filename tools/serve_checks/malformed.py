# SPDX-License-Identifier: Apache-2.0
"""Bodies that are not requests, and fields of every wrong type."""

import json

from serve_checks import server as serving

COMPLETION = {"prompt": "Once", "max_tokens": 3, "ignore_eos": True}
CHAT = {"messages": [{"role": "user", "content": "Once"}], "max_tokens": 3, "ignore_eos": True}
BODIES = {"/v1/completions": COMPLETION, "/v1/chat/completions": CHAT, "/generate": COMPLETION,
          "/tokenize": {"prompt": "Once"}, "/detokenize": {"tokens": [79, 110]}}
DEPTH = 100_000

# JSON texts that each field rejects. null counts as absent.
NUMBERS = ['"1"', "true", "[]", "{}", "[1]", "1e999", "-1e999", "1" + "0" * 400]
INTEGERS = [*NUMBERS, "1.5", "9223372036854775808", "-9223372036854775809"]
TRUTHS = ['"true"', "0", "1", "[]", "{}"]
WRONG = {
    "max_tokens": [*INTEGERS, "0", "-1", "2147483648", "32769"],
    "n": [*INTEGERS, "0", "-1", "129"],
    "temperature": [*NUMBERS, "-0.1", "101"],
    "top_p": [*NUMBERS, "0", "-0.1", "1.1"],
    "min_p": [*NUMBERS, "-0.1", "1.1"],
    "top_k": [*INTEGERS, "-2"],
    "seed": INTEGERS,
    "stream": TRUTHS,
    "ignore_eos": TRUTHS,
    "include_stop_str_in_output": TRUTHS,
    "skip_special_tokens": TRUTHS,
    "stop": ["1", "true", "{}", "[1]", '[""]', '""', '["a", null]', "[[]]"],
    "stop_token_ids": ["1", '"1"', "{}", '["1"]', "[-1]", "[1.5]", "[1e30]", "[10000000]"],
    "stream_options": ["1", '"x"', "[]", "true", '{"include_usage": true}'],
    "priority": [*INTEGERS, "7"],
    "presence_penalty": ['"0"', "2.5", "[]", "true"],
    "frequency_penalty": ['"0"', "-2.5", "{}"],
    "model": ["1", "[]", "{}", "true"]}
WRONG_OF = {
    "/v1/completions": {
        "prompt": ["1", "true", "{}", "[]", '""', '[""]', "[[]]", '[1, "a"]', '["a", 1]', "[1.5]",
                   "[-1]", "[128256]", "[1e400]", "[null]", "[{}]", "[[1], []]", "[[[1]]]", "null"],
        "logprobs": ["-1", "21", '"x"']},
    "/v1/chat/completions": {
        "messages": ["1", '"x"', "{}", "[]", "[1]", "[null]", "[{}]", '[{"role": 1}]', "null",
                     '[{"role": "user", "content": 1}]', '[{"role": "user", "content": [1]}]',
                     '[{"role": "user", "content": [{"type": "text"}]}]',
                     '[{"role": "user", "content": [{"type": 1, "text": "x"}]}]',
                     '[{"role": "user", "content": [{"type": "image_url", "text": "x"}]}]'],
        "logprobs": TRUTHS, "top_logprobs": [*INTEGERS, "-1", "21", "1"],
        "max_completion_tokens": [*INTEGERS, "0", "32768"],
        "chat_template_kwargs": ["1", "[]", '{"enable_thinking": 1}'],
        "response_format": ["1", '{"type": "xml"}', '{"type": "json_schema"}']},
    "/tokenize": {"prompt": ["1", "[]", "{}", "true", "null"],
                  "messages": ["1", "[]", "[1]"]},
    "/detokenize": {"tokens": ["1", '"x"', "{}", '["x"]', "[-1]", "[1.5]", "[128256]", "null"]}}


def expect_error(faults, status, headers, body, what):
    """An error must have the shape that OpenAI's clients read."""
    try:
        error = json.loads(body)["error"]
        is_good = (headers.get("content-type", "").startswith("application/json") and
                   isinstance(error["message"], str) and error["message"] and
                   isinstance(error["type"], str) and error["code"] == status and
                   (error["param"] is None or isinstance(error["param"], str)))
    except (ValueError, KeyError, TypeError):
        is_good = False
    faults.expect(is_good, f"{what}: status {status} without an error of the API: "
                           f"{serving.short(body[:300])}")


def expect_status(server, faults, path, body, statuses, what):
    try:
        status, headers, answer = server.ask("POST", path, body)
    except Exception as error:
        return faults.add(f"{path}: {what}: {error!r}")
    faults.expect(status in statuses, f"{path}: {what}: status {status}: "
                                      f"{serving.short(answer[:200])}")
    if status >= 400:
        expect_error(faults, status, headers, answer, f"{path}: {what}")
    return None


def send_malformed(server, faults, rng):
    """A body that is not a JSON object or not a request: 400, with the reason in the API's
    shape."""
    bodies = [b"", b" ", b"{", b"}", b"[]", b"1", b"null", b'"x"', b"{}", b'{"prompt"}', b"\x00",
              b'{"prompt": "x",}', b"{'prompt': 'x'}", b'{"prompt": NaN}', b'{"prompt": Infinity}',
              b'{"prompt": "x"} x', b'{"prompt": "x"}{"prompt": "x"}', b"\xff\xfe{\x00}\x00",
              b'{"prompt": "\xff"}', b'{"prompt": "\xc3"}', b'{"prompt": "\xed\xa0\x80"}',
              b'{"prompt": "\xf4\x90\x80\x80"}', b'{"prompt": "\\ud800"}', b'{"prompt": "\\udc00"}',
              b'{"prompt": "\\x"}', b'{"prompt": "\\u12"}', b'{"prompt": "a\nb"}',
              b'{"prompt": "x", "max_tokens": 01}', b'{"prompt": "x", "max_tokens": +1}',
              b'{"prompt": "x", "stop": "\xc0\x80"}', b"\xef\xbb\xbf", b"\xef\xbb\xbf{",
              b'{"prompt": "a", "prompt": "b", "max_tokens": 1}']
    for path in BODIES:
        for body in bodies:
            expect_status(server, faults, path, body, {400}, repr(body))
    accepted = ['{"prompt": "\\u0000\\ud83d\\ude00", "max_tokens": 1}', '{"prompt": "é", "n": null}',
                '{"prompt": "x", "max_tokens": 1, "unknown": null, "metadata": {"a": [1, 2, {}]}}',
                '{"prompt": "x", "max_tokens": 1, "user": "me", "best_of": 1, "echo": false}',
                '\ufeff{"prompt": "x", "max_tokens": 1}']  # with a byte order mark
    for body in accepted:
        expect_status(server, faults, "/v1/completions", body.encode(), {200}, body)
    for field in ('"unknown": {"a": [1, 2, {}]}', '"guided_json": {"type": "what"}',
                  '"guided_regex": "a("', '"typical_p": 0.9', '"temprature": 0.5'):
        body = '{"prompt": "x", "max_tokens": 1, ' + field + "}"
        expect_status(server, faults, "/v1/completions", body.encode(), {400}, body)
    name = json.dumps({"model": "x" * 10_000, "prompt": "x"}).encode()
    expect_status(server, faults, "/v1/completions", name, {404}, "a long name of a model")
    long = json.dumps({"prompt": "x" * 100_000}).encode()
    expect_status(server, faults, "/v1/completions", long, {400}, "more than the context")
    many = json.dumps({"prompt": ["x"] * 1000, "max_tokens": 1}).encode()
    expect_status(server, faults, "/v1/completions", many, {400}, "a thousand prompts")


def with_field(fields, name, text):
    """A body in which a field has a value given as JSON text."""
    rest = {key: value for key, value in fields.items() if key != name}
    return f"{json.dumps(rest)[:-1]}, {json.dumps(name)}: {text}}}".replace("{, ", "{").encode()


def send_wrong_types(server, faults, rng):
    for path, fields in BODIES.items():
        wrong = WRONG_OF.get("/v1/completions" if path == "/generate" else path, {})
        if path.startswith(("/v1", "/generate")):
            wrong = {**WRONG, **wrong}
        for name, texts in wrong.items():
            for text in texts:
                expect_status(server, faults, path, with_field(fields, name, text), {400},
                              f"{name}: {text[:60]}")
        for name in wrong:
            if name not in fields:  # null is absent
                expect_status(server, faults, path, with_field(fields, name, "null"), {200},
                              f"{name}: null")


def nest_deeply(server, faults, rng):
    """Nesting deeper than any stack: in a field that is read, in an unread one, and never
    closed."""
    nested = {"lists": "[" * DEPTH + "]" * DEPTH,
              "objects": '{"a":' * (DEPTH // 4) + "1" + "}" * (DEPTH // 4)}
    for path, fields in BODIES.items():
        for kind, text in nested.items():
            for name in ("prompt", "messages", "tokens", "temperature", "stop", "stop_token_ids",
                         "stream_options", "model", "seed", "stream", "response_format"):
                body = with_field(fields, name, text)
                expect_status(server, faults, path, body, {200, 400}, f"{name}: nested {kind}")
                if not server.is_alive:
                    return
            expect_status(server, faults, path, with_field(fields, "unknown", text), {200, 400},
                          f"unknown: nested {kind}")
        expect_status(server, faults, path, b"[" * DEPTH, {400}, "lists that never end")
        expect_status(server, faults, path, b'{"a":' * (DEPTH // 4), {400},
                      "objects that never end")
