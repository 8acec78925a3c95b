# SPDX-License-Identifier: Apache-2.0
"""The settings under which the server runs, a row each, and the load of each."""

import dataclasses
import random

FIRST_TOKEN, VOCABULARY = 1000, 40_000  # special tokens are elsewhere


@dataclasses.dataclass
class Setting:
    name: str
    text: str
    n_ctx: int = 1024
    n_slots: int = 4
    n_batch: int = 64
    n_ubatch: int = 32
    cont_batching: bool = True
    similarity: float = 0.1
    cache_prompt: bool = True
    prompt: tuple = (6, 70)   # tokens, at least and at most; a conversation's grow
    output: tuple = (2, 9)
    shared: int = 0           # tokens at the start, of one of two kinds
    clients: int = 6          # each sends its next request when it has the answer
    turns: int = 4            # requests of a client
    continues: bool = False   # a request begins with the last one and its answer
    client: str = "own"       # or "bench-serve"
    may_fail: bool = False    # the cache is too small for all

    def config(self):
        """As a case of `metronome decisions` has it."""
        return {"n_ctx": self.n_ctx, "n_slots": self.n_slots, "n_batch": self.n_batch,
                "n_ubatch": self.n_ubatch, "cont_batching": self.cont_batching,
                "slot_prompt_similarity": self.similarity, "cache_ram": 0,
                "cache_prompt": self.cache_prompt}

    def parameters(self):
        """Members of the server's common_params."""
        return {"n_ctx": self.n_ctx, "n_parallel": self.n_slots, "kv_unified": True,
                "n_batch": self.n_batch, "n_ubatch": self.n_ubatch,
                "cont_batching": self.cont_batching, "slot_prompt_similarity": self.similarity,
                "cache_prompt": self.cache_prompt, "cache_ram_mib": 0}

    def scripts(self, seed):
        """For each client the new tokens and the number of answered tokens of each turn. No two
        prompts of clients that do not continue have the same length."""
        rng = random.Random(f"{self.name} {seed}")
        starts = [tokens(rng, self.shared) for _ in range(2)]
        lengths = list(range(self.prompt[0], self.prompt[1] + 1))
        rng.shuffle(lengths)
        scripts = []
        for _ in range(self.clients):
            start = rng.choice(starts)
            scripts.append([(([] if self.continues and turn else start)
                             + tokens(rng, lengths.pop()), rng.randint(*self.output))
                            for turn in range(self.turns)])
        return scripts

    def scenario(self, model, seed):
        """For `metronome bench-serve`: its requests, all sent within a second."""
        return "\n".join([
            f'description: "{self.text}"', f"seed: {seed}", f"model: {model}",
            f"engine: {{max_num_seqs: {self.n_slots}, max_model_len: {self.n_ctx}}}",
            f"kv_cache: {{block_size: 1, num_blocks: {self.n_ctx}}}",
            f"scheduler: {{policy: llama_cpp, n_batch: {self.n_batch}, "
            f"n_ubatch: {self.n_ubatch}}}",
            "workload:", f"  num_requests: {self.clients * self.turns}",
            "  arrivals: {process: poisson, rate: 20}",
            f"  prompt_tokens: {{distribution: uniform, min: {self.prompt[0]}, "
            f"max: {self.prompt[1]}}}",
            f"  output_tokens: {{distribution: uniform, min: {self.output[0]}, "
            f"max: {self.output[1]}}}", ""])


def tokens(rng, count):
    return [rng.randrange(FIRST_TOKEN, VOCABULARY) for _ in range(count)]


SETTINGS = [
    Setting("slots", "four slots for six clients"),
    Setting("bench-serve", "the load of `metronome bench-serve`", client="bench-serve"),
    Setting("small-batch", "prompts longer than the batch", n_batch=16, n_ubatch=8,
            prompt=(20, 90)),
    Setting("large-batch", "all prompts in one batch, in passes", n_batch=512, n_ubatch=64),
    Setting("bursts", "answers of one length: slots end together", n_slots=3, output=(4, 4),
            prompt=(6, 40), clients=8),
    Setting("no-cont", "without continuous batching", cont_batching=False, n_slots=3),
    Setting("prefixes", "prompts that share their beginnings", shared=24, prompt=(6, 40)),
    Setting("similarity", "a slot is kept for half a prompt only", shared=24, prompt=(6, 40),
            similarity=0.5),
    Setting("no-similarity", "slots by the time of their last use alone", shared=24,
            prompt=(6, 40), similarity=0.0),
    Setting("turns", "conversations that go on", continues=True, prompt=(5, 40), turns=5),
    Setting("no-cache", "without reuse of prompts", cache_prompt=False),
    Setting("full", "a full cache: idle slots are purged", n_ctx=256, clients=2,
            prompt=(50, 85), turns=6, shared=8),
    Setting("exceeded", "a cache that is too small: all slots fail", n_ctx=256, clients=6,
            prompt=(40, 100), turns=3, output=(4, 12), may_fail=True),
]
