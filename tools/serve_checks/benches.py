# SPDX-License-Identifier: Apache-2.0
"""guidellm, vLLM's and SGLang's benchmarks must make the published calls, count what the server
counts, and write results that Metronome reads."""

import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile

from serve_checks import load, results
from serve_checks import server as serving
from serve_checks.server import Server
from serve_checks.tap import Tap

CALLS = serving.ROOT / "docs/reference/serve_calls.md"
VLLM = serving.ROOT / "build/check_vllm/venv_vllm/bin/vllm"
NUM_REQUESTS = 40
RATE = 20  # per second
PROMPT_TOKENS = 100
OUTPUT_TOKENS = 24
TIMEOUT_S = 600
WARMUP_TOKENS = 32  # the longest answer of the request that SGLang's benchmark sends first


class Bench:
    """Where one run works, and what it has to be told."""

    def __init__(self, url, tokenizer, out, seed):
        self.url = url
        self.tokenizer = tokenizer
        self.out = out
        self.seed = seed

    def run(self, *command):
        # Offline, as the tokenizer is a folder.
        environment = {**os.environ, "HOME": str(self.out.parent), "HF_HUB_OFFLINE": "1"}
        try:
            done = subprocess.run([str(part) for part in command], env=environment, text=True,
                                  cwd=self.out.parent, stdout=subprocess.PIPE,
                                  stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
                                  preexec_fn=serving.die_with_parent)
        except subprocess.TimeoutExpired:
            raise RuntimeError(f"takes more than {TIMEOUT_S} s") from None
        if done.returncode != 0 or not self.out.exists():
            raise RuntimeError(f"exit code {done.returncode}: {done.stdout[-2000:]}")
        return self.out.read_text(encoding="utf-8")


# Each runs a client and returns (prompt tokens, output tokens) of the requests that it counted, and
# of those that it sent before to warm up.


def guidellm(bench, path):
    text = bench.run(
        pathlib.Path(sys.executable).parent / "guidellm", "run",
        "--backend", f"kind=openai_http,target={bench.url},request_format={path}",
        "--tokenizer", f"kind=huggingface_auto,model={bench.tokenizer}",
        "--data", f"kind=synthetic_text,prompt_tokens={PROMPT_TOKENS},"
        f"output_tokens={OUTPUT_TOKENS}",
        "--profile", f"kind=poisson,rate={RATE}", "--seed", f"kind=static,value={bench.seed}",
        "--constraint", f"kind=max_requests,count={NUM_REQUESTS}",
        "--output", f"kind=json,path={bench.out.name}", "--disable-console")
    (run,) = json.loads(text)["benchmarks"]
    requests = run["requests"]
    if requests["errored"] or requests["incomplete"]:
        raise RuntimeError(f"{len(requests['errored'])} requests failed, "
                           f"{len(requests['incomplete'])} did not end")
    sent = sorted(requests["successful"], key=lambda one: one["request_start_time"])
    return [(one["prompt_tokens"], one["output_tokens"]) for one in sent], []


def vllm_bench(bench, *options):
    result = json.loads(bench.run(
        VLLM, "bench", "serve", "--base-url", bench.url, "--model", "llama-3.2-3b",
        "--tokenizer", bench.tokenizer, "--dataset-name", "random",
        "--random-input-len", PROMPT_TOKENS, "--random-output-len", OUTPUT_TOKENS,
        "--random-range-ratio", 0.5, "--num-prompts", NUM_REQUESTS, "--request-rate", RATE,
        "--seed", bench.seed, "--ignore-eos", "--save-result", "--save-detailed",
        "--result-dir", bench.out.parent, "--result-filename", bench.out.name, *options))
    lengths = list(zip(result["input_lens"], result["output_lens"]))
    told = [(result["total_input_tokens"], result["total_output_tokens"])]
    if sums(lengths) != sums(told) or result["completed"] != len(lengths) or result["failed"]:
        raise RuntimeError(f"its totals {told} are not those of its requests {sums(lengths)}")
    return lengths, []


def sglang_bench(bench, *options):
    result = json.loads(bench.run(
        sys.executable, "-m", "sglang.bench_serving", "--base-url", bench.url,
        "--model", bench.tokenizer, "--tokenizer", bench.tokenizer,
        "--dataset-name", "random-ids", "--random-input-len", PROMPT_TOKENS,
        "--random-output-len", OUTPUT_TOKENS, "--num-prompts", NUM_REQUESTS,
        "--request-rate", RATE, "--seed", bench.seed, "--output-file", bench.out,
        "--output-details", *options))
    lengths = list(zip(result["input_lens"], result["output_lens"]))
    if any(result["errors"]) or result["completed"] != len(lengths):
        raise RuntimeError(f"requests failed: {[error for error in result['errors'] if error][:1]}")
    if sum(output for _, output in lengths) != result["total_output_tokens"]:
        raise RuntimeError("its total of output tokens is not that of its requests")
    prompt, output = lengths[0]
    return lengths, [(prompt, min(output, WARMUP_TOKENS))]


RUNS = {
    "guidellm, completions": (guidellm, "/v1/completions"),
    "guidellm, chats": (guidellm, "/v1/chat/completions"),
    "guidellm, responses": (guidellm, "/v1/responses"),
    "`vllm bench serve`": (vllm_bench,),
    "`vllm bench serve --backend openai-chat`": (
        vllm_bench, "--backend", "openai-chat", "--endpoint", "/v1/chat/completions"),
    "`sglang.bench_serving`": (sglang_bench,),
    "`sglang.bench_serving --tokenize-prompt`": (
        sglang_bench, "--tokenize-prompt", "--flush-cache", "--return-logprob",
        "--top-logprobs-num", "2", "--logprob-start-len", "0"),
}


def sums(lengths):
    return [sum(column) for column in zip(*lengths)] or [0, 0]


def published_calls():
    """{run: {"POST /path": fields}} of the table in docs/reference/serve_calls.md."""
    published = {}
    for row in re.findall(r"^\| (.+?) \| `([A-Z]+ /\S+)` \| (.*) \|$",
                          CALLS.read_text(encoding="utf-8"), re.MULTILINE):
        run, call, fields = row
        published.setdefault(run, {})[call] = set(re.findall(r"`([^`]+)`", fields))
    return published


def check_run(program, faults, name, tokenizer, scratch, seed):
    run, *arguments = RUNS[name]
    with Server(program, load.SCENARIO, "--tokenizer", load.TOKENIZER, variant="budget") as server:
        with Tap(server.port) as tap:
            lengths, warmups = run(Bench(tap.url, tokenizer, scratch / "result.json", seed),
                                   *arguments)
            calls = tap.calls()
        metrics = server.metrics()
        server.expect_rest(faults, name)
        faults.equal(server.stop(), 0, f"{name}: exit code of the server")
    faults.equal(len(lengths), NUM_REQUESTS, f"{name}: requests")
    sent = lengths + warmups
    prompts, outputs = sums(sent)
    faults.equal(sum(metrics[f"vllm:request_success_total:{end}"] for end in ("length", "stop")),
                 len(sent), f"{name}: completed requests at the server")
    faults.equal(metrics["vllm:prompt_tokens_total"], prompts, f"{name}: prompt tokens")
    faults.equal(metrics["vllm:generation_tokens_total"], outputs, f"{name}: output tokens")
    faults.equal(metrics["metronome:refused_total"], 0, f"{name}: refused requests")
    published = published_calls().get(name, {})
    for call, fields in sorted(calls.items()):
        shown = ", ".join(f"`{field}`" for field in sorted(fields))
        faults.equal(fields, published.get(call),
                     f"{name}: the fields of a call; its row in {CALLS.name} should be\n"
                     f"| {name} | `{call}` | {shown} |\n")
    faults.equal(set(published) - set(calls), set(), f"{name}: published calls that it lacks")
    results.check_read_back(program, faults, scratch, scratch / "result.json", lengths)
    faults.say(f"{name}: {len(sent)} requests, {prompts} prompt and {outputs} output tokens")


def check(program, faults, options):
    seed = random.Random(options.seed).randrange(1 << 31)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        scratch = pathlib.Path(scratch)
        tokenizer = load.tokenizer_folder(scratch)
        for number, name in enumerate(RUNS):
            folder = scratch / str(number)
            folder.mkdir()
            try:
                check_run(program, faults, name, tokenizer, folder, seed)
            except RuntimeError as error:
                faults.add(f"{name}: {error}")
