# SPDX-License-Identifier: Apache-2.0
"""Seeded random cases for an SGLang scheduler, by kind.

Pools are small, so that requests are retracted and cached prefixes evicted; prompts share
beginnings, and continue earlier prompts and their outputs, so that prefixes are found again.
"""

import random

from changes import combined


def token(index, k):
    return 100_000 + 1000 * index + k


# ---- Settings ----

def plain_config(rng, size):
    page_size = rng.choice([1, 1, 16, 64])
    num_pages = {1: [60, 80, 90, 120, 160, 250, 400, 750], 16: [15, 20, 30, 32, 62, 100],
                 64: [11, 15, 16, 30, 46]}[page_size]
    chunk = {1: [8, 16, 24, 32, 48, 96, 256], 16: [16, 48, 96, 192, 384],
             64: [64, 192, 384, 576]}[page_size]
    num_tokens = page_size * rng.choice(num_pages)
    max_running = rng.choice([1, 2, 4, 6, 8, 16, 16])
    if size >= 8:
        num_tokens *= 4
        max_running *= rng.choice([1, 4])
    return {
        "page_size": page_size, "num_tokens": num_tokens,
        "context_length": rng.choice([4096, 4096, 4096, max(8, num_tokens // 2)]),
        "max_running_requests": max_running, "req_pool_size": max_running,
        "schedule_policy": "fcfs",
        "chunked_prefill_size": rng.choice([-1] + chunk),
        "max_prefill_tokens": rng.choice([20, 33, 64, 80, 132, 256, 768, 16384, 16384]),
        "enable_mixed_chunk": False, "disable_radix_cache": rng.random() < 0.3,
        "overlap": False, "schedule_conservativeness": rng.choice([1.0, 1.0, 0.3, 0.1, 0.02]),
        "init_new_token_ratio": 0.7, "min_new_token_ratio_factor": 0.14,
        "new_token_ratio_decay_steps": rng.choice([600, 600, 20]),
        "retract_decode_steps": rng.choice([20, 20, 3]),
        "clip_max_new_tokens": rng.choice([4096, 4096, 16, 2])}


def set_rows(config, num_rows):
    config["max_running_requests"] = config["req_pool_size"] = num_rows


def without_tree(rng, config):
    config["disable_radix_cache"] = True


def with_tree(rng, config):
    config["disable_radix_cache"] = False


def with_chunks(rng, config):
    if config["chunked_prefill_size"] < 0:
        config["chunked_prefill_size"] = config["page_size"] * rng.choice([1, 3, 6])


def with_mixed_chunks(rng, config):
    config["enable_mixed_chunk"] = True
    with_chunks(rng, config)


def with_overlap(rng, config):
    config["overlap"] = True
    if rng.random() < 0.4:
        with_mixed_chunks(rng, config)


def with_tight_pool(rng, config):
    """Little of the output is reserved, so requests are retracted."""
    config["num_tokens"] = config["page_size"] * rng.randint(9, 24) * (
        4 if config["page_size"] == 1 else 1)
    config["schedule_conservativeness"] = rng.choice([0.3, 0.1, 0.02])
    config["clip_max_new_tokens"] = rng.choice([2, 2, 8, 16, 4096])
    set_rows(config, rng.choice([4, 8, 16]))
    config["overlap"] = rng.random() < 0.3
    if rng.random() < 0.3:
        with_mixed_chunks(rng, config)
    config["prompts"] = rng.choice([4, 8])
    config["share_ignoring"] = rng.choice([0, 0, 0.3])


def with_priority(rng, config):
    set_rows(config, rng.choice([1, 2, 3, 4, 8]))
    config.update({
        "enable_priority_scheduling": True,
        "schedule_low_priority_values_first": rng.random() < 0.5,
        "priority_scheduling_preemption_threshold": rng.choice([0, 0, 2, 10]),
        "disable_priority_preemption": rng.random() < 0.25,
        "retraction_policy": rng.choice(["length", "priority"]),
        "schedule_conservativeness": rng.choice([0.2, 0.2, 0.02, 1.0])})


def with_interval(rng, config):
    if rng.random() < 0.3:
        config["prefill_max_requests"] = rng.randint(1, 3)
        return
    config["prefill_decode_interval"] = rng.randint(1, 6)
    config["prefill_decode_interval_min_bs"] = rng.choice([0, 0, 2, 4])
    if rng.random() < 0.3:
        config["prefill_max_requests"] = rng.randint(1, 3)


def with_receipts(rng, config):
    config["scheduler_recv_interval"] = rng.choice([2, 3, 5, 10, 30, 1001])
    if rng.random() < 0.3:
        with_interval(rng, config)


def in_order(name):
    def change(rng, config):
        config["schedule_policy"] = name
        with_tree(rng, config)
    return change


def sometimes_mixed(rng, config):
    if rng.random() < 0.4:
        rng.choice([with_overlap, with_mixed_chunks])(rng, config)


def by_longest_output(rng, config):
    config["schedule_policy"] = "lof"
    if rng.random() < 0.3:
        with_priority(rng, config)


KINDS = {
    "fcfs": without_tree, "radix": with_tree, "mixed": with_mixed_chunks,
    "mixed-fcfs": combined(without_tree, with_mixed_chunks), "tight": with_tight_pool,
    "overlap": with_overlap, "lpm": in_order("lpm"),
    "lpm-overlap": combined(in_order("lpm"), with_overlap),
    "dfs-weight": combined(in_order("dfs-weight"), sometimes_mixed),
    "hrrn": combined(in_order("hrrn"), sometimes_mixed),
    "shortest-prefill-first": combined(in_order("shortest-prefill-first"), sometimes_mixed),
    "lof": combined(by_longest_output, sometimes_mixed),
    "priority": with_priority, "priority-overlap": combined(with_priority, with_overlap),
    "interval": with_interval, "interval-overlap": combined(with_interval, with_overlap),
    "receipts": with_receipts, "receipts-overlap": combined(with_receipts, with_overlap)}


# ---- Requests ----

def draw_prompt(rng, earlier, shared, longest):
    kind = rng.random()
    if kind < 0.4 or (kind >= 0.75 and not earlier):
        prompt = [rng.randrange(1000, 90_000) for _ in range(rng.randint(1, longest))]
    elif kind < 0.75:
        prompt = shared[:rng.randint(1, longest)]
        prompt += [rng.randrange(1000, 90_000) for _ in range(rng.randint(0, 8))]
    else:  # a conversation goes on: an earlier prompt, some of its output, a question
        j = rng.randrange(len(earlier))
        prompt = earlier[j]["prompt"] + [
            token(j, k) for k in range(rng.randint(0, earlier[j]["max_tokens"]))]
        prompt += [rng.randrange(1000, 90_000) for _ in range(rng.randint(0, 6))]
    return prompt[:longest]


def draw_requests(rng, config, size):
    page_size = config["page_size"]
    # The longest prompt that leaves room for a token of output.
    longest = (config["num_tokens"] - page_size - 2) // page_size * page_size
    longest = min(longest, config["num_tokens"] - 4, config["context_length"] - 4)
    usual = max(1, longest // config.pop("prompts", rng.choice([1, 2, 4, 8])))
    shared = [rng.randrange(1000, 90_000) for _ in range(longest)]
    requests = []
    arrival = 0
    spread = rng.choice([0, 1, 3, 10])
    ignoring = config.pop("share_ignoring", rng.choice([0, 0, 0.3, 0.6, 1]))
    num_outputs = rng.choice([3, 40, 100, 100])
    num_requests = rng.randint(3, 4 * size)
    if size >= 8 and rng.random() < 0.15:  # more than some orders sort
        num_requests, num_outputs, usual, spread = rng.randint(129, 200), 5, min(usual, 40), 0
    for i in range(num_requests):
        request = {"id": f"r{i:03}", "arrival_step": arrival,
                   "prompt": draw_prompt(rng, requests, shared,
                                         longest if rng.random() < 0.1 else usual),
                   "max_tokens": rng.randint(1, num_outputs)}
        arrival += rng.randint(0, spread)
        if rng.random() < ignoring:
            request["ignore_eos"] = True
        elif rng.random() < 0.4:
            request["output_len"] = rng.randint(1, request["max_tokens"])
        if "enable_priority_scheduling" in config:
            request["priority"] = rng.randint(-3, 12)
        requests.append(request)
    return requests


def draw_case(seed, version, kind, size):
    """A case without steps. `size` 4 is usual; from 8 on, pools are four times as large."""
    rng = random.Random(f"{kind} {seed}")
    config = plain_config(rng, size)
    KINDS[kind](rng, config)
    return {"seed": seed, "kind": kind, "config": config,
            "requests": draw_requests(rng, config, size)}
