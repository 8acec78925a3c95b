# SPDX-License-Identifier: Apache-2.0
"""Load for a server, and what Metronome makes of the scenario that describes both."""

import json
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


class Failed(RuntimeError):
    pass


def judged(program, *arguments, accepts):
    """The exit code, one of these, and the standard output of the program."""
    command = [str(part) for part in (program, *arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in accepts:
        raise Failed(f"{' '.join(command)}: {done.returncode}: "
                     f"{(done.stderr or done.stdout).strip()[-600:]}")
    return done.returncode, done.stdout


def metronome(program, *arguments):
    """Standard output of the program, which must succeed."""
    return judged(program, *arguments, accepts=(0,))[1]


def bench_serve(program, server, scenario, out):
    """`metronome bench-serve`: the scenario's own requests, as token ids."""
    metronome(program, "bench-serve", server.url, "--scenario", scenario, "--out", out, "-q")
    return out


def vllm_bench(venv, server, model, count, rate, seed, out):
    """`vllm bench serve`, the package's own load generator, with random prompts."""
    command = [venv / "bin/vllm", "bench", "serve", "--backend", "openai", "--model", "smollm2",
               "--tokenizer", model, "--host", "127.0.0.1", "--port", server.port,
               "--dataset-name", "random", "--random-input-len", 400, "--random-output-len", 40,
               "--random-range-ratio", 0.8, "--num-prompts", count, "--request-rate", rate,
               "--seed", seed, "--ignore-eos", "--save-result", "--save-detailed",
               "--result-dir", out.parent, "--result-filename", out.name]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False, env={**os.environ, "HF_HUB_OFFLINE": "1"})
    if done.returncode != 0:
        raise Failed(f"vllm bench serve: {done.stderr.strip()[-600:]}")
    result = json.loads(out.read_text(encoding="utf-8"))
    if result["completed"] != count:
        raise Failed(f"vllm bench serve: {result['completed']} of {count} requests completed")
    return out


def trace_of(bench, received, path):
    """A trace of what `vllm bench serve` sent: when, by its result, and what, in the order in which
    the server received it. Two requests that are sent within a millisecond may change places on
    their way. `received` has the prompt tokens and output tokens of each."""
    result = json.loads(bench.read_text(encoding="utf-8"))
    sent = sorted(zip(result["input_lens"], result["output_lens"]))
    if sent != sorted(received):
        raise Failed(f"vllm bench serve: sent requests of {sent} tokens, the server received "
                     f"{sorted(received)}")
    starts = sorted(result["start_times"])
    path.write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(
        f"{start - starts[0]:.6f},{prompt},{output}\n"
        for start, (prompt, output) in zip(starts, received)), encoding="utf-8")


def cache_blocks(server):
    """The number of KV blocks that the server has; its log does not say it."""
    found = re.search(r'cache_config_info\{[^}]*num_gpu_blocks="(\d+)"', server.metrics())
    if not found:
        raise Failed("/metrics has no vllm:cache_config_info")
    return int(found[1])
