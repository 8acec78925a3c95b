# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of the server and of `metronome serve --backend=cpu`, both in float32."""

import json
import random

from serve_checks.server import Server

from . import install, server

NUM_PROMPTS = 16
NUM_TOKENS = 32
VOCABULARY = 40_000  # of 49,152: special tokens are elsewhere

SERVED = """
model: {model}
engine: {{max_num_seqs: 16, max_model_len: 2048}}
kv_cache: {{num_blocks: 512}}
scheduler: {{policy: vllm, max_num_batched_tokens: 256}}
"""


def prompts(seed):
    rng = random.Random(seed)
    return [[rng.randrange(1000, VOCABULARY) for _ in range(rng.randint(4, 300))]
            for _ in range(NUM_PROMPTS)]


def greedy(ask, prompt):
    """The ids of the next tokens, by their texts where the server does not send ids."""
    body = {"model": "smollm2", "prompt": prompt, "max_tokens": NUM_TOKENS, "temperature": 0,
            "ignore_eos": True, "logprobs": 0}
    return json.loads(ask(body))["choices"][0]["logprobs"]["tokens"]


def check(check):
    venv = install.vllm()
    model = install.model(venv)
    folder = check.folder / "tokens"
    folder.mkdir(parents=True, exist_ok=True)
    chosen = prompts(check.options.seed)
    flags = ["--dtype", "float32", "--max-model-len", "2048"]
    with server.vllm_server(venv, model, folder, flags, kv_gib=1) as running:
        real = [greedy(lambda body: running.ask("/v1/completions", body), prompt)
                for prompt in chosen]
    scenario = folder / "served.yaml"
    scenario.write_text(SERVED.format(model=model), encoding="utf-8")

    def ask(body):
        del body["model"]
        status, _, answer = own.ask("POST", "/v1/completions", body, timeout_s=600)
        if status != 200:
            raise RuntimeError(f"metronome serve: {status}: {answer[:300]}")
        return answer

    with Server(check.options.metronome, scenario, "--backend=cpu") as own:
        ours = [greedy(ask, prompt) for prompt in chosen]
    total = sum(map(len, real))
    equal = sum(a == b for theirs, mine in zip(real, ours) for a, b in zip(theirs, mine))
    check.say(f"tokens: {equal} of {total} greedy tokens are equal")
    if equal != total:
        check.fault(f"tokens: {total - equal} of {total} greedy tokens differ")
    check.keep("tokens", {"equal": equal, "total": total, "prompts": NUM_PROMPTS})
