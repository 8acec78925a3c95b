# SPDX-License-Identifier: Apache-2.0
"""A served simulation makes the decisions of `metronome run` with the same requests, at the same
times.
"""

import json
import pathlib
import random
import statistics
import subprocess
import tempfile

from serve_checks import server as serving
from serve_checks.client import Loop, Stream, body_of
from serve_checks.server import Server

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
NUM_REQUESTS = 200
# The first runs at the pace of real time, so that clients' times can be compared with the
# simulation.
VARIANTS = [("budget", 1), ("chunked", 4), ("vllm", 4), ("sglang", 4), ("slo", 4), ("async", 4)]
RATE = 40  # requests a second of simulated time


def make_streams(rng, speed):
    """Poisson arrivals of random prompts, some with a common prefix."""
    streams, moment = [], 0.0
    shared = bytes(rng.randrange(256) for _ in range(96))
    for _ in range(NUM_REQUESTS):
        prompt = [*shared[:16 * rng.randrange(7)],
                  *(rng.randrange(256) for _ in range(rng.randrange(10, 900)))]
        streams.append(Stream(body_of(prompt=prompt, max_tokens=rng.randrange(2, 80),
                                      seed=rng.randrange(1 << 40)), moment))
        moment += rng.expovariate(RATE) / speed
    return streams


def run_again(program, variant, served, out):
    command = [program, "run", SCENARIO, "--variant", variant, "--out", out, "--quiet",
               "--set", f"workload.trace.file={served / 'trace.jsonl'}",
               "--set", "workload.trace.format=sharegpt"]
    run = subprocess.run(list(map(str, command)), cwd=serving.ROOT, capture_output=True, text=True)
    if run.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, command))}: {run.stderr}")


def result_of(folder):
    """The result and the requests in the same folder."""
    path = next(iter(sorted(folder.rglob("result.json"))))
    requests = [json.loads(line) for line in (path.parent / "requests.jsonl").open()]
    return json.loads(path.read_text()), requests


def check_seen(faults, streams, requests):
    """At the pace of real time clients see the simulated times, within the noise of timers."""
    by_prompt = sorted(streams, key=lambda stream: stream.sent)
    ttft = [1e3 * (stream.times[0] - stream.sent) - request["ttft_ms"]
            for stream, request in zip(by_prompt, requests)]
    span = [1e3 * (stream.times[-1] - stream.times[0]) - (request["e2el_ms"] - request["ttft_ms"])
            for stream, request in zip(by_prompt, requests)]
    for name, differences in (("TTFT", ttft), ("first to last token", span)):
        middle = statistics.median(differences)
        late = statistics.quantiles(differences, n=100)[98]
        faults.say(f"{name}, seen less simulated: median {middle:.2f} ms, p99 {late:.2f} ms")
        faults.expect(abs(middle) < 50, f"{name}: median {middle:.2f} ms off what was simulated")


def check_variant(program, faults, rng, variant, speed):
    streams = make_streams(rng, speed)
    with tempfile.TemporaryDirectory() as scratch:
        served, again = pathlib.Path(scratch) / "served", pathlib.Path(scratch) / "again"
        with Server(program, SCENARIO, "--out", served, variant=variant, speed=speed) as server:
            Loop(server.port, streams).run(timeout_s=120)
            faults.equal([stream.fault for stream in streams if not stream.is_done], [],
                         f"{variant}: streams that failed")
            faults.equal(server.stop(), 0, f"{variant}: exit code")
        run_again(program, variant, served, again)
        (found, requests), (expected, _) = result_of(served), result_of(again)
        for key in ("digest", "completed", "total_output_tokens", "p99_itl_ms", "mean_ttft_ms"):
            faults.expect(key in found, f"{variant}: no {key} in result.json")
            faults.equal(found.get(key), expected.get(key), f"{variant}: {key}")
        faults.equal(found["completed"], NUM_REQUESTS, f"{variant}: completed")
        num_preemptions, num_cached = (sum(request[key] for request in requests)
                                       for key in ("preemptions", "cached_tokens"))
        faults.say(f"{variant}: digest {found.get('digest')}, {num_preemptions} preemptions, "
                   f"{num_cached} tokens cached")
        if variant == "vllm":  # otherwise the check would show too little
            faults.expect(num_preemptions > 0, "vllm: no preemptions")
            faults.expect(num_cached > 0, "vllm: no prefix was found again")
        if speed == 1:
            check_seen(faults, streams, requests)


def check(program, faults, options):
    rng = random.Random(options.seed)
    for variant, speed in VARIANTS:
        check_variant(program, faults, rng, variant, speed)
