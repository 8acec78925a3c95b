# SPDX-License-Identifier: Apache-2.0
"""The official client of OpenAI's API against every endpoint."""

import asyncio
import random
import socket
import tempfile

import openai
from prometheus_client.parser import text_string_to_metric_families

from serve_checks import server as serving
from serve_checks.server import Server, events_of

MODEL = "llama-3.2-3b"
SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"

# Metrics that dashboards made for vLLM query.
GAUGES = ["num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"]
COUNTERS = ["num_preemptions", "prompt_tokens", "generation_tokens", "request_success",
            "prefix_cache_queries", "prefix_cache_hits"]
PHASE_BOUNDS = [.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920,
                7680]
HISTOGRAMS = {
    "time_to_first_token_seconds": [.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5,
                                    5, 7.5, 10, 20, 40, 80, 160, 640, 2560],
    "inter_token_latency_seconds": [.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5,
                                    7.5, 10, 20, 40, 80],
    "e2e_request_latency_seconds": PHASE_BOUNDS, "request_queue_time_seconds": PHASE_BOUNDS,
    "request_prefill_time_seconds": PHASE_BOUNDS, "request_decode_time_seconds": PHASE_BOUNDS,
    "request_inference_time_seconds": PHASE_BOUNDS,
    "iteration_tokens_total": [1, *(2 ** i for i in range(3, 15))],
    "request_prompt_tokens": None, "request_generation_tokens": None,  # up to the model's length
    "request_params_max_tokens": None}


class Api:
    """The clients of one server, and the arguments for both kinds of completion."""

    def __init__(self, server, faults, rng):
        self.server = server
        self.faults = faults
        self.rng = rng
        self.client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0,
                                    timeout=60)
        self.asynchronous = openai.AsyncOpenAI(base_url=server.url + "/v1", api_key="none",
                                               max_retries=0, timeout=120)

    def seed(self):
        return self.rng.randrange(1 << 40)

    def complete(self, prompt="Once", max_tokens=20, **fields):
        extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
        return self.client.completions.create(model=MODEL, prompt=prompt, max_tokens=max_tokens,
                                              extra_body=extra, **fields)

    def chat(self, content="Hello", max_tokens=20, **fields):
        messages = [{"role": "system", "content": "Be brief."},
                    {"role": "user", "content": content}]
        extra = {"ignore_eos": True, **fields.pop("extra_body", {})}
        return self.client.chat.completions.create(model=MODEL, messages=messages,
                                                   max_tokens=max_tokens, extra_body=extra,
                                                   **fields)

    def refuses(self, error, what, call, param=None):
        """`call` must raise `error`, a class of the client, and name `param`."""
        try:
            call()
        except openai.APIStatusError as found:
            self.faults.expect(type(found) is error, f"{what}: {found!r}")
            if param:
                self.faults.equal(found.param, param, f"{what}: param")
            body = found.body if isinstance(found.body, dict) else {}
            self.faults.equal(set(body), {"message", "type", "param", "code"}, f"{what}: body")
        except Exception as found:  # any other exception is not a proper answer
            self.faults.add(f"{what}: {found!r}")
        else:
            self.faults.add(f"{what}: is not refused")


def check_models(api):
    listed = list(api.client.models.list())
    api.faults.equal([model.id for model in listed], [MODEL], "models")
    api.faults.equal((listed[0].root, listed[0].max_model_len), (MODEL, 32768), "models")
    api.faults.equal(api.client.models.retrieve(MODEL).id, MODEL, "models.retrieve")
    api.refuses(openai.NotFoundError, "models.retrieve of an unknown one",
                lambda: api.client.models.retrieve("unknown"))


def check_completions(api):
    equal, seed = api.faults.equal, api.seed()
    one = api.complete("Once upon", 20, seed=seed)
    text = one.choices[0].text
    equal((len(text), one.choices[0].finish_reason, one.object), (20, "length", "text_completion"),
          "a completion of 20 byte tokens")
    equal((one.usage.prompt_tokens, one.usage.completion_tokens, one.usage.total_tokens),
          (9, 20, 29), "usage")
    equal(api.complete("Once upon", 20, seed=seed).choices[0].text, text, "the same seed")
    ids = list(b"Once upon")
    equal(api.complete(ids, 20, seed=seed).usage.prompt_tokens, 9, "prompt of token ids")
    texts = api.complete(["One", "Two two", "Three"], 7, seed=seed)
    equal([choice.index for choice in texts.choices], [0, 1, 2], "indices of a list of texts")
    equal((texts.usage.prompt_tokens, texts.usage.completion_tokens), (15, 21), "usage of a list")
    lists = api.complete([ids, ids[:4]], 7, seed=seed)
    equal((len(lists.choices), lists.usage.prompt_tokens), (2, 13), "a list of lists of ids")
    several = api.complete("Once", 20, n=3, seed=seed)
    alone = [api.complete("Once", 20, seed=seed + i).choices[0].text for i in range(3)]
    equal([choice.text for choice in several.choices], alone, "answer i is drawn with seed + i")
    nested = api.complete(["One", "Two"], 5, n=2, seed=seed)
    equal([choice.index for choice in nested.choices], [0, 1, 2, 3], "two prompts times n")


def check_stops(api):
    equal, seed = api.faults.equal, api.seed()
    text = api.complete("Once", 120, seed=seed).choices[0].text
    begin = api.rng.randrange(30, 100)
    stop = text[begin:begin + api.rng.randrange(2, 9)]  # a token is a byte
    kept = text[:text.index(stop)]
    found = api.complete("Once", 120, seed=seed, stop=stop).choices[0]
    equal((found.text, found.finish_reason), (kept, "stop"), f"stop {stop!r}")
    found = api.complete("Once", 120, seed=seed, stop=["\x00never", stop],
                         extra_body={"include_stop_str_in_output": True}).choices[0]
    equal((found.text, found.finish_reason), (kept + stop, "stop"), f"stop {stop!r}, included")
    chunks = list(api.complete("Once", 120, seed=seed, stop=stop, stream=True))
    equal("".join(chunk.choices[0].text for chunk in chunks), kept, f"a stream's stop {stop!r}")
    equal(chunks[-1].choices[0].finish_reason, "stop", "a stream's last event")


def check_held_back(api):
    """Text held back as a possible stop string is sent when the answer ends."""
    seed = api.seed()
    text = api.complete("Once", 40, seed=seed).choices[0].text
    stop = text[-5:] + "\x00"
    for stream in (False, True):
        found = api.complete("Once", 40, seed=seed, stop=stop, stream=stream)
        parts = [chunk.choices[0].text for chunk in (found if stream else [found])]
        api.faults.equal("".join(parts), text, f"an answer that ends within {stop!r}")


def check_lengths(api):
    """Without ignore_eos an answer ends by itself, with a length of the scenario."""
    for _ in range(5):
        found = api.client.completions.create(model=MODEL, prompt="Once", max_tokens=500,
                                              seed=api.seed())
        api.faults.expect(20 <= found.usage.completion_tokens <= 60 and
                          found.choices[0].finish_reason == "stop",
                          f"an answer that ends by itself: {found.usage}, {found.choices[0]}")
    found = api.client.completions.create(model=MODEL, prompt="Once", seed=api.seed())
    api.faults.equal(found.usage.completion_tokens, 16, "max_tokens unless given")


def check_chat(api):
    equal, seed = api.faults.equal, api.seed()
    plain = api.chat("Hello there", seed=seed)
    equal((plain.choices[0].message.role, plain.object), ("assistant", "chat.completion"), "chat")
    equal(len(plain.choices[0].message.content), 20, "tokens of a chat")
    parts = api.chat([{"type": "text", "text": "Hello there"}], seed=seed)
    equal((parts.choices[0].message.content, parts.usage.prompt_tokens),
          (plain.choices[0].message.content, plain.usage.prompt_tokens), "content in parts")
    newer = api.client.chat.completions.create(
        model=MODEL, messages=[{"role": "user", "content": "Hi"}], max_completion_tokens=9,
        extra_body={"ignore_eos": True})
    equal(newer.usage.completion_tokens, 9, "max_completion_tokens")
    chunks = list(api.chat("Hello there", seed=seed, stream=True))
    equal("".join(chunk.choices[0].delta.content for chunk in chunks),
          plain.choices[0].message.content, "text of a stream")
    equal([chunk.choices[0].delta.role for chunk in chunks], ["assistant"] + [None] * 19,
          "the role stands in the first event, with the first token")
    several = list(api.chat("Hello", n=2, seed=seed, stream=True))
    equal(sorted(chunk.choices[0].index for chunk in several), [0] * 20 + [1] * 20, "n=2, streamed")


def check_streams(api):
    equal = api.faults.equal
    for name, call in (("completion", api.complete), ("chat", api.chat)):
        chunks = list(call(max_tokens=25, stream=True))
        equal(len(chunks), 25, f"{name}: one event for a token")
        equal([chunk.choices[0].finish_reason for chunk in chunks], [None] * 24 + ["length"],
              f"{name}: why it ended stands in the last token's event")
        equal(len({(chunk.id, chunk.created, chunk.model) for chunk in chunks}), 1, f"{name}: id")
        equal([chunk.usage for chunk in chunks], [None] * 25, f"{name}: usage nobody asked for")
        chunks = list(call(max_tokens=25, stream=True, stream_options={"include_usage": True}))
        equal([len(chunk.choices) for chunk in chunks], [1] * 25 + [0], f"{name}: usage at the end")
        equal(chunks[-1].usage.completion_tokens, 25, f"{name}: usage at the end")
        chunks = list(call(max_tokens=25, stream=True, stream_options={
            "include_usage": True, "continuous_usage_stats": True}))
        equal([chunk.usage.completion_tokens for chunk in chunks], [*range(1, 26), 25],
              f"{name}: usage in every event")


def check_cancelling(api):
    for name, call in (("completion", api.complete), ("chat", api.chat)):
        stream = call(max_tokens=30000, stream=True)
        for _, chunk in zip(range(10), stream):
            api.faults.equal(len(chunk.choices), 1, f"{name} to be cancelled")
        api.faults.equal(api.server.metrics()["vllm:num_requests_running"], 1, f"{name} runs")
        stream.close()
        api.client.close()  # the pool's idle connections
        api.client = api.client.copy(http_client=openai.DefaultHttpxClient())
        api.server.expect_rest(api.faults, f"{name}, cancelled")
    api.faults.equal(api.server.metrics()["metronome:clients_left_total"], 2, "clients that left")


def check_errors(api):
    bad = openai.BadRequestError
    complete, client = api.complete, api.client
    api.refuses(openai.NotFoundError, "unknown model", lambda: client.completions.create(
        model="unknown", prompt="x"), "model")
    api.refuses(openai.NotFoundError, "unknown model of a chat",
                lambda: client.chat.completions.create(
                    model="unknown", messages=[{"role": "user", "content": "x"}]), "model")
    for name, value in {"max_tokens": 0, "temperature": -1, "top_p": 2, "n": 0, "stop": "",
                        "presence_penalty": 3, "seed": "x", "prompt": ""}.items():
        api.refuses(bad, f"{name}: {value!r}", lambda: complete(**{name: value}), name)
    api.refuses(bad, "more than the context", lambda: complete(max_tokens=32768), "prompt")
    api.refuses(bad, "stream_options without stream",
                lambda: complete(stream_options={"include_usage": True}), "stream_options")
    api.refuses(bad, "token that the model does not have", lambda: complete([1, 1 << 30]), "prompt")
    api.refuses(bad, "no messages", lambda: client.chat.completions.create(
        model=MODEL, messages=[]), "messages")
    api.refuses(bad, "a picture", lambda: api.chat([
        {"type": "image_url", "image_url": {"url": "data:,"}}]), "messages[1].content.type")


def check_tokenize(api):
    ask, equal = api.server.ask, api.faults.equal
    for text in ("plain", "für 世界 👩‍👩‍👧", "\x00\n\t", "x" * 300_000):
        status, _, body = ask("POST", "/tokenize", {"prompt": text})
        found = serving.json.loads(body)
        equal((status, found["tokens"], found["count"], found["max_model_len"]),
              (200, list(text.encode()), len(text.encode()), 32768), "/tokenize")
        status, _, body = ask("POST", "/detokenize", {"tokens": found["tokens"]})
        equal((status, serving.json.loads(body)), (200, {"prompt": text}), "/detokenize")
    status, _, body = ask("POST", "/tokenize", {"messages": [{"role": "user", "content": "hi"}]})
    equal(status, 200, "/tokenize of messages")
    count = api.client.chat.completions.create(model=MODEL, max_tokens=1, messages=[
        {"role": "user", "content": "hi"}]).usage.prompt_tokens
    equal(serving.json.loads(body)["count"], count, "/tokenize of messages")
    equal(ask("POST", "/detokenize", {"tokens": [-1]})[0], 400, "/detokenize of no token")
    equal(ask("POST", "/tokenize", {})[0], 400, "/tokenize of nothing")


def check_others(api):
    ask, equal = api.server.ask, api.faults.equal
    for path in ("/health", "/ping"):
        equal(ask("GET", path)[::2], (200, b""), path)
    equal(list(serving.json.loads(ask("GET", "/version")[2])), ["version"], "/version")
    equal(ask("POST", "/reset_prefix_cache")[0], 200, "/reset_prefix_cache")
    equal(ask("GET", "/v1/models?x=y")[0], 200, "a query string")
    seed = api.seed()
    text = api.complete("Once", 30, seed=seed).choices[0].text
    fields = {"prompt": "Once", "max_tokens": 30, "seed": seed, "ignore_eos": True}
    status, _, body = ask("POST", "/generate", fields)
    found = serving.json.loads(body)
    equal((status, found["text"], found["finish_reason"]), (200, text, "length"), "/generate")
    status, headers, body = ask("POST", "/generate", {**fields, "stream": True})
    events = events_of(body)
    equal((status, headers["content-type"].partition(";")[0], len(events)),
          (200, "text/event-stream", 30), "/generate, streamed")
    equal("".join(event["token"] for event in events), text, "/generate, streamed")
    equal(b"".join(bytes([event["token_id"]]) for event in events), text.encode(), "its token ids")
    for method, path, status, allowed in (
            ("GET", "/v1/completions", 405, "POST"), ("PUT", "/v1/completions", 405, "POST"),
            ("POST", "/v1/models", 405, "GET, HEAD"), ("PUT", "/metrics", 405, "GET, HEAD"),
            ("DELETE", f"/v1/models/{MODEL}", 405, "GET, HEAD"), ("POST", "/", 405, "GET, HEAD"),
            ("POST", "/x", 404, None),
            ("GET", "/v1/completions/", 404, None)):
        found, headers, _ = ask(method, path)
        equal((found, headers.get("allow")), (status, allowed), f"{method} {path}")
    check_head(api)


def check_head(api):
    """A response to HEAD has no body; otherwise the next response on the connection would be
    misread."""
    connection = api.server.connect()
    reader = serving.Reader(connection)
    for path in ("/health", "/v1/models", "/v1/completions", "/nowhere"):
        connection.sendall(f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        status, _ = reader.head()
        connection.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        try:
            found = reader.response()[0]
        except (ValueError, EOFError) as error:
            api.faults.add(f"HEAD {path}: {status}, then the connection is out of step: {error}")
            break
        api.faults.equal(found, 200, f"what follows HEAD {path}")
    connection.close()


# ---- /metrics ----


def check_histogram(faults, name, family, bounds):
    buckets = [(float(sample.labels["le"]), sample.value) for sample in family.samples
               if sample.name.endswith("_bucket")]
    counts = [count for _, count in buckets]
    total = [sample.value for sample in family.samples if sample.name.endswith("_count")]
    found = [bound for bound, _ in buckets]
    faults.equal(found[-1], float("inf"), f"{name}: last bucket")
    faults.expect(found == sorted(set(found)), f"{name}: bounds do not rise: {found}")
    faults.expect(counts == sorted(counts), f"{name}: buckets are not cumulative: {counts}")
    faults.equal(total, [counts[-1]], f"{name}: count")
    if bounds:
        faults.equal(found[:-1], [float(bound) for bound in bounds], f"{name}: bounds")


def check_metrics(api):
    status, headers, body = api.server.ask("GET", "/metrics")
    api.faults.equal((status, headers["content-type"].partition(";")[0]), (200, "text/plain"),
                     "/metrics")
    text = body.decode()
    families = {family.name: family for family in text_string_to_metric_families(text)}
    for kind, names in (("gauge", GAUGES), ("counter", COUNTERS), ("histogram", HISTOGRAMS)):
        for name in names:
            family = families.get(f"vllm:{name}")
            if not api.faults.expect(family, f"/metrics: no vllm:{name}"):
                continue
            api.faults.equal(family.type, kind, f"vllm:{name}: type")
            labels = family.samples[0].labels
            api.faults.equal((labels.get("model_name"), labels.get("engine")), (MODEL, "0"),
                             f"vllm:{name}: labels")
            if kind == "histogram":
                check_histogram(api.faults, name, family, HISTOGRAMS[name])
    names = [line.split()[2] for line in text.splitlines() if line.startswith("# TYPE")]
    api.faults.equal(len(names), len(set(names)), "/metrics: each metric has one TYPE")
    api.faults.expect("vllm:cache_config_info" in names, "/metrics: no vllm:cache_config_info")
    metrics = api.server.metrics()
    for name in ("request_prompt_tokens", "request_generation_tokens",
                 "e2e_request_latency_seconds"):
        ended = sum(metrics[f"vllm:request_success_total:{why}"] for why in ("stop", "length"))
        api.faults.equal(metrics[f"vllm:{name}_count"], ended, f"vllm:{name} has all that ended")
    api.faults.equal(metrics["vllm:request_success_total:error"], 0, "requests that failed")


# ---- many at once ----


async def stream_text(client, seed, prompt):
    stream = await client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=100, seed=seed, stream=True,
        extra_body={"ignore_eos": True})
    return "".join([chunk.choices[0].text async for chunk in stream])


async def stream_all(api, seeds):
    try:
        return await asyncio.gather(*(stream_text(api.asynchronous, seed, f"Story {seed}")
                                      for seed in seeds))
    finally:
        await api.asynchronous.close()


def check_many(api):
    seeds = [api.seed() for _ in range(50)]
    for seed, text in zip(seeds, asyncio.run(stream_all(api, seeds))):
        alone = api.complete(f"Story {seed}", 100, seed=seed).choices[0].text
        api.faults.equal(text, alone, f"one of 50 streams, seed {seed}")


# ---- a model that computes ----


def check_computed_stop(server, faults):
    """A stop token ends a computed answer: it counts, and is no part of the text."""
    fields = {"prompt": "Once", "seed": 1, "ignore_eos": True}
    _, _, body = server.ask("POST", "/generate", {**fields, "max_tokens": 200, "stream": True})
    ids = [event["token_id"] for event in events_of(body)]
    place = next(i for i, id in enumerate(ids) if i > 0 and 32 < id < 127 and id not in ids[:i])
    before = server.complete(**fields, max_tokens=place)["choices"][0]["text"]
    after = server.complete(**fields, max_tokens=place + 1)["choices"][0]["text"]
    faults.equal(after, before + chr(ids[place]), "the text of a token that is a byte")
    for includes, text in ((False, before), (True, after)):
        found = server.complete(**fields, max_tokens=200, stop_token_ids=[ids[place]],
                                include_stop_str_in_output=includes)
        faults.equal((found["choices"][0]["text"], found["choices"][0]["finish_reason"],
                      found["usage"]["completion_tokens"]), (text, "stop", place + 1),
                     f"a computed answer with a stop token, included: {includes}")


def check_computed(program, faults, rng):
    sets = ["model=tiny-llama", "engine.max_num_seqs=16", "engine.max_model_len=1024",
            "kv_cache.num_blocks=256"]
    with Server(program, SCENARIO, "--backend", "cpu", variant="budget", sets=sets) as server:
        client = openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)
        create = {"model": "tiny-llama", "prompt": "Once", "max_tokens": 12, "temperature": 0,
                  "logprobs": 3, "extra_body": {"ignore_eos": True}}
        found = client.completions.create(**create).choices[0]
        logprobs = found.logprobs
        faults.equal([len(logprobs.tokens), len(logprobs.token_logprobs),
                      len(logprobs.top_logprobs), len(logprobs.text_offset)], [12] * 4, "logprobs")
        faults.expect(all(value <= 0 for value in logprobs.token_logprobs), "a logprob above 0")
        likeliest = [max(top.values()) for top in logprobs.top_logprobs]
        faults.equal(logprobs.token_logprobs, likeliest, "greedy tokens are the likeliest")
        chunks = list(client.completions.create(**create, stream=True))
        faults.equal("".join(chunk.choices[0].text for chunk in chunks), found.text,
                     "a computed stream")
        values = [value for chunk in chunks for value in chunk.choices[0].logprobs.token_logprobs]
        faults.equal(values, logprobs.token_logprobs, "logprobs of a stream")
        chat = client.chat.completions.create(
            model="tiny-llama", messages=[{"role": "user", "content": "Once"}], max_tokens=8,
            logprobs=True, top_logprobs=2, seed=rng.randrange(1 << 40),
            extra_body={"ignore_eos": True})
        content = chat.choices[0].logprobs.content
        faults.equal([len(token.top_logprobs) for token in content], [2] * 8, "logprobs of a chat")
        check_computed_stop(server, faults)
        client.close()
        server.expect_rest(faults, "computed")
        faults.equal(server.stop(), 0, "exit code")


# ---- with a key, and TLS ----


def check_secured(program, faults):
    with tempfile.TemporaryDirectory() as scratch:
        certificate = serving.make_certificate(scratch)
        with Server(program, SCENARIO, "--api-key", "secret", variant="budget", speed=5,
                    certificate=certificate) as server:
            client = {"base_url": server.url + "/v1", "max_retries": 0, "timeout": 60}
            with openai.DefaultHttpxClient(verify=server.trusted) as http, \
                    openai.OpenAI(api_key="secret", http_client=http, **client) as known:
                faults.equal([model.id for model in known.models.list()], [MODEL], "models, by TLS")
                chunks = list(known.completions.create(
                    model=MODEL, prompt="Once", max_tokens=30_000, stream=True,
                    extra_body={"ignore_eos": True}))
                faults.equal(len(chunks), 30_000, "a long stream, by TLS")
                faults.equal(chunks[-1].choices[0].finish_reason, "length", "its end")
                long = known.completions.create(model=MODEL, prompt="x " * 10_000, max_tokens=2)
                faults.equal(long.usage.prompt_tokens, 20_000, "a long body, by TLS")
                wrong = openai.OpenAI(api_key="other", http_client=http, **client)
                try:
                    wrong.models.list()
                    faults.add("a wrong key is accepted")
                except openai.AuthenticationError as error:
                    faults.equal(error.status_code, 401, "a wrong key")
            with socket.create_connection(("127.0.0.1", server.port), timeout=30) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                found = plain.recv(1000)
            faults.expect(not found.startswith(b"HTTP"), "HTTP where HTTPS is spoken")
            faults.equal(server.stop(), 0, "exit code")
            faults.equal(server.stderr(), "", "what the server says")


def check_secured_apart(program, faults):
    """TLS without a key, and a key without TLS."""
    with tempfile.TemporaryDirectory() as scratch:
        for certificate, key in ((serving.make_certificate(scratch), ""), (None, "secret")):
            how = "TLS alone" if certificate else "a key alone"
            options = ["--api-key", key] if key else []
            with Server(program, SCENARIO, *options, variant="budget", speed=5,
                        certificate=certificate) as server:
                client = {"base_url": server.url + "/v1", "max_retries": 0, "timeout": 60}
                verify = server.trusted if certificate else True
                with openai.DefaultHttpxClient(verify=verify) as http:
                    known = openai.OpenAI(api_key=key or "any", http_client=http, **client)
                    faults.equal([model.id for model in known.models.list()], [MODEL],
                                 f"models, {how}")
                    chunks = list(known.completions.create(
                        model=MODEL, prompt="Once", max_tokens=500, stream=True,
                        extra_body={"ignore_eos": True}))
                    faults.equal(len(chunks), 500, f"a stream, {how}")
                    if key:
                        try:
                            openai.OpenAI(api_key="other", http_client=http, **client).models.list()
                            faults.add(f"a wrong key is accepted, {how}")
                        except openai.AuthenticationError as error:
                            faults.equal(error.status_code, 401, f"a wrong key, {how}")
                faults.equal(server.stop(), 0, "exit code")


def check_named(program, faults):
    """Names that are encoded in a path; ids that no other server gives."""
    ids = []
    for name in ("meta/tiny 1b", "a%2Fb%"):
        with Server(program, SCENARIO, "--model-name", name, variant="budget", speed=5) as server:
            with openai.OpenAI(base_url=server.url + "/v1", api_key="none",
                               max_retries=0) as client:
                for asked in (name, MODEL):
                    faults.equal(client.models.retrieve(asked).id, name, f"models.retrieve {asked}")
                for _ in range(3):
                    ids.append(client.completions.create(model=name, prompt="x", max_tokens=1,
                                                         seed=1).id)
            faults.equal(server.ask("GET", "/v1/models/%2")[0], 404, "a path that ends in %2")
            faults.equal(server.stop(), 0, "exit code")
    faults.equal(len(set(ids)), 6, f"ids of answers of two servers: {ids}")


def check(program, faults, options):
    rng = random.Random(options.seed)
    with Server(program, SCENARIO, variant="budget", speed=5) as server:
        api = Api(server, faults, rng)
        num_descriptors = server.num_descriptors()
        for part in (check_models, check_completions, check_stops, check_held_back,
                     check_lengths, check_chat, check_streams, check_cancelling, check_errors,
                     check_tokenize, check_others, check_many, check_metrics):
            try:
                part(api)
            except Exception as error:
                faults.add(f"{part.__name__}: {error!r}")
        api.client.close()
        server.expect_rest(faults, "all of it", num_descriptors)
        faults.equal(server.stop(), 0, "exit code")
        faults.equal(server.stderr(), "", "what the server says")
    check_computed(program, faults, rng)
    check_named(program, faults)
    check_secured(program, faults)
    check_secured_apart(program, faults)
