# SPDX-License-Identifier: Apache-2.0
"""The settings under which the server runs, a row each: its flags, the same as keys of a scenario,
and the load."""

import dataclasses

MAX_NUM_SEQS = 64
BLOCK = 128  # of the CPU backend
FULL = 40    # KV blocks that the loads below fill; block 0 holds nothing

# Chats, and a document now and then.
MIXED = """
  num_requests: {count}
  arrivals: {{process: poisson, rate: {rate}}}
  prompt_tokens: {{distribution: lognormal, median: 220, p99: 1600, min: 16, max: 2000}}
  output_tokens: {{distribution: uniform, min: 16, max: 64}}
"""
SHARED = MIXED + "  prefix: {{kind: groups, num_groups: 3, prefix_tokens: 320}}\n"
LONG = """
  num_requests: {count}
  arrivals: {{process: poisson, rate: {rate}}}
  prompt_tokens: {{distribution: uniform, min: 200, max: 800}}
  output_tokens: {{distribution: uniform, min: 60, max: 140}}
"""
CLASSES = LONG + "  priority: {{values: [0, 1, 2]}}\n"


@dataclasses.dataclass
class Setting:
    name: str
    text: str
    flags: tuple = ()
    keys: tuple = ()
    load: str = MIXED
    budget: int = 512
    blocks: int = 0          # 0: those that fit into the server's memory
    caches_prefixes: bool = False
    is_async: bool = False
    follows_log: bool = True  # the log alone says which request is which
    num_engines: int = 1
    client: str = "metronome"  # or "vllm": its own load generator
    version: str = "0.32"
    environment: dict = dataclasses.field(default_factory=dict)

    def max_model_len(self):
        """The server refuses to start where the longest request does not fit."""
        return 4096 if self.blocks else 8192

    def server_flags(self):
        flags = [*self.flags, "--max-num-seqs", str(MAX_NUM_SEQS), "--max-model-len",
                 str(self.max_model_len()), "--max-num-batched-tokens", str(self.budget),
                 "--enable-prefix-caching" if self.caches_prefixes else
                 "--no-enable-prefix-caching"]
        if self.blocks:
            flags += ["--num-gpu-blocks-override", str(self.blocks)]
        return flags

    def scenario(self, config, num_blocks, count, rate, seed, cost_file="", trace=""):
        """A scenario of this server under its load, or with the requests of a trace."""
        lines = [f"description: \"{self.text}\"", f"seed: {seed}", f"model: {config}",
                 f"engine: {{max_num_seqs: {MAX_NUM_SEQS}, max_model_len: {self.max_model_len()}, "
                 f"async_depth: {2 if self.is_async else 1}}}",
                 f"kv_cache: {{block_size: {BLOCK}, num_blocks: {num_blocks}, "
                 f"enable_prefix_caching: {str(self.caches_prefixes).lower()}}}",
                 f"scheduler: {{policy: vllm, version: \"{self.version}\", "
                 + "".join(f"{key}, " for key in self.keys)
                 + f"max_num_batched_tokens: {self.budget}}}"]
        if cost_file:
            lines.append(f"cost_model: {{file: {cost_file}}}")
        requests = (f"\n  trace: {{file: {trace}, format: vidur}}" if trace else
                    self.load.format(count=count, rate=rate).rstrip())
        lines += ["workload:" + requests,
                  "slo: {ttft_ms: 20000, itl_ms: 2000}", ""]
        return "\n".join(lines)


BUDGETS = (2048, 1024, 512, 256)
SETTINGS = [Setting(f"budget-{budget}", f"a budget of {budget} tokens a step", budget=budget)
            for budget in BUDGETS]
SETTINGS += [
    Setting("vllm-bench", "the load of `vllm bench serve`", client="vllm"),
    Setting("prefixes", "prefix caching, prompts that share beginnings", load=SHARED,
            caches_prefixes=True),
    Setting("full", "a full KV cache: requests are preempted and resumed", load=LONG, blocks=FULL),
    Setting("full-prefixes", "the same with prefix caching", load=LONG, blocks=FULL,
            caches_prefixes=True),
    Setting("priorities", "priorities, a full KV cache", load=CLASSES, blocks=FULL,
            flags=("--scheduling-policy", "priority"), keys=("scheduling_policy: priority",),
            follows_log=False),
    Setting("drafts", "speculative decoding: three drafts by n-grams", version="0.33",
            flags=("--speculative-config",
                   '{"method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_max": 3, '
                   '"prompt_lookup_min": 1}'), follows_log=False),
    Setting("two-ranks", "two data-parallel ranks", flags=("--data-parallel-size", "2"),
            follows_log=False, num_engines=2),
    Setting("async", "asynchronous scheduling, two steps in flight", is_async=True,
            flags=("--async-scheduling",)),
    Setting("async-full", "the same with a full KV cache", is_async=True, load=LONG, blocks=FULL,
            flags=("--async-scheduling",)),
]
