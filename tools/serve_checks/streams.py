# SPDX-License-Identifier: Apache-2.0
"""A thousand streams at once, and memory under continuous load."""

import json
import pathlib
import random
import resource
import tempfile
import threading
import time

from serve_checks import server as serving
from serve_checks.client import Loop, Stream, body_of
from serve_checks.replay import result_of
from serve_checks.server import Server

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
NUM_STREAMS = 1000
NUM_SEEDS = 64
STEP_S = 0.05  # approximately, for the variant
ITL_LIMIT_MS = 2
CPU_LIMIT_US = 20
# After the first tenth. A leak of four bytes per request would exceed it.
MEMORY_FACTOR = 1.08
# For machines with other load; --timed applies the limits above.
LOOSE_FACTOR = 100


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def make_streams(rng, num_tokens, seconds):
    seeds = [rng.randrange(1 << 40) for _ in range(NUM_SEEDS)]
    streams = []
    for i in range(NUM_STREAMS):
        stream = Stream(body_of(prompt=f"Stream {i}", max_tokens=num_tokens,
                                seed=rng.choice(seeds)), rng.uniform(0, min(1, seconds / 10)))
        streams.append(stream)
    return streams


def check_texts(program, faults, streams):
    """Each stream's text must equal that of its seed on a fast server with single requests."""
    texts = {}
    with Server(program, SCENARIO, variant="streams", speed=1000) as server:
        for stream in streams:
            fields = json.loads(stream.body)
            if fields["seed"] not in texts:
                fields["stream"] = False
                texts[fields["seed"]] = server.complete(**fields)["choices"][0]["text"]
            if stream.is_done and stream.status == 200:
                faults.equal(stream.text, texts[fields["seed"]], f"{fields['prompt']}: text")
    faults.expect(len(set(texts.values())) > 1, "all seeds say the same")


def check_whole(faults, streams, num_tokens):
    for i, stream in enumerate(streams):
        if stream.fault or not stream.is_done:
            faults.add(f"stream {i}: {stream.fault} after {len(stream.texts)} tokens")
        faults.equal((stream.status, len(stream.texts)), (200, num_tokens), f"stream {i}")
    ids = {stream.id for stream in streams}
    faults.equal(len(ids), NUM_STREAMS, "answers with an id of their own")


def check_times(faults, streams, num_unstamped, simulated, options):
    """Compares gaps, as the kernel timed their sending, with those of the simulation."""
    gaps = [1e3 * gap for stream in streams for gap in stream.gaps()]
    found, expected = percentile(gaps, 0.99), simulated["p99_itl_ms"]
    middle = percentile(gaps, 0.5)
    if num_unstamped:
        faults.say(f"the kernel does not say when {num_unstamped} reads came: their times are "
                   "those of the client")
    faults.say(f"ITL as the server sends it: median {middle:.2f} ms, p99 {found:.2f} ms; simulated "
               f"median {simulated['median_itl_ms']:.2f} ms, p99 {expected:.2f} ms: "
               f"p99 {found - expected:+.2f} ms")
    limit = ITL_LIMIT_MS * (1 if options.timed else LOOSE_FACTOR)
    faults.expect(abs(found - expected) <= limit,
                  f"p99 of ITL is {found - expected:+.2f} ms off the simulated; at most {limit}")


def check_cpu(faults, seconds, num_tokens, options):
    per_token = 1e6 * seconds / num_tokens
    faults.say(f"CPU of the server: {seconds:.2f} s for {num_tokens} tokens, "
               f"{per_token:.1f} us each")
    limit = CPU_LIMIT_US * (1 if options.timed else LOOSE_FACTOR)
    faults.expect(per_token <= limit, f"{per_token:.1f} us of CPU a token; at most {limit}")


def check_thousand(program, faults, rng, options):
    num_tokens = max(2, round(options.seconds / STEP_S))
    streams = make_streams(rng, num_tokens, options.seconds)
    with tempfile.TemporaryDirectory() as scratch:
        served = pathlib.Path(scratch) / "served"
        with Server(program, SCENARIO, "--out", served, variant="streams") as server:
            num_descriptors = server.num_descriptors()
            before = server.cpu_seconds()
            loop = Loop(server.port, streams)
            loop.run(timeout_s=60 + 5 * options.seconds)
            cpu = server.cpu_seconds() - before
            metrics = server.metrics()
            server.expect_rest(faults, "a thousand streams", num_descriptors)
            faults.equal(server.stop(), 0, "exit code")
        simulated, _ = result_of(served)
    together = (max(stream.times[0] for stream in streams if stream.times) <
                min(stream.times[-1] for stream in streams if stream.times))
    faults.expect(together or options.seconds < 5, "the streams did not run at the same time")
    share = loop.cpu_s / loop.wall_s
    faults.say(f"{NUM_STREAMS} streams of {num_tokens} tokens in {loop.wall_s:.1f} s; the client "
               f"computed {100 * share:.0f} % of it, the simulator was "
               f"{1e3 * metrics['metronome:simulation_lag_seconds']:.1f} ms late at most")
    check_whole(faults, streams, num_tokens)
    faults.equal(metrics["vllm:generation_tokens_total"], NUM_STREAMS * num_tokens, "tokens")
    check_times(faults, streams, loop.num_unstamped, simulated, options)
    check_cpu(faults, cpu, NUM_STREAMS * num_tokens, options)
    faults.expect(share < 0.95, "the client, not the server, was the bottleneck")
    check_texts(program, faults, streams)


# ---- memory ----


class Load:
    """Connections that send the next request as soon as they are answered, until the time is
    over."""

    NUM_CONNECTIONS = 32

    def __init__(self, server, rng, seconds):
        self.rng = rng
        self.end = time.monotonic() + seconds
        self.num_done = 0
        self.bad = []
        self.loop = Loop(server.port, [self.stream() for _ in range(self.NUM_CONNECTIONS)],
                         self.next)
        self.thread = threading.Thread(target=self.loop.run, args=(seconds + 60,))

    def stream(self):
        prompt = [self.rng.randrange(256) for _ in range(self.rng.randrange(1, 64))]
        return Stream(body_of(prompt=prompt, max_tokens=self.rng.randrange(1, 16)))

    def next(self, stream):
        self.num_done += 1
        if stream.fault or stream.status != 200:
            self.bad.append(stream.fault or stream.status)
        return self.stream() if time.monotonic() < self.end else None


def check_memory(program, faults, rng, options):
    speed, simulated_s = 100, 3600 if options.hour else 1000
    seconds = simulated_s / speed
    with Server(program, SCENARIO, variant="vllm", speed=speed) as server:
        load = Load(server, rng, seconds)
        load.thread.start()
        samples = []
        while time.monotonic() < load.end:
            time.sleep(seconds / 20)
            samples.append(server.resident_bytes() / 1e6)
        load.thread.join()
        faults.say(f"{simulated_s} s of simulated load, {load.num_done} requests; resident MB: "
                   f"{' '.join(f'{sample:.1f}' for sample in samples)}")
        faults.equal(load.bad, [], "requests that failed")
        first = samples[len(samples) // 10]
        faults.expect(max(samples) <= MEMORY_FACTOR * first,
                      f"memory grows from {first:.1f} MB to {max(samples):.1f} MB")
        server.expect_rest(faults, "the load")
        faults.equal(server.stop(), 0, "exit code")


def check(program, faults, options):
    rng = random.Random(options.seed)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4 * NUM_STREAMS:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4 * NUM_STREAMS, hard), hard))
    check_thousand(program, faults, rng, options)
    check_memory(program, faults, rng, options)
