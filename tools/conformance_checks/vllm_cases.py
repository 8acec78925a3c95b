# SPDX-License-Identifier: Apache-2.0
"""Seeded random cases for a vLLM scheduler, by kind.

Caches are small, so that requests run out of blocks; prompts share beginnings, and repeat earlier
prompts with their outputs, so that prefixes are found again.
"""

import random

from changes import combined

VERSIONS_WITH = {  # the first version with an option
    "watermark": 24, "prefix_cache_retention_interval": 23, "max_num_active_seqs": 31,
    "long_prefill_token_threshold_adaptive": 31, "prefill_schedule_interval": 33,
    "spec_method": 33, "mamba": 33, "images": 33}
FIRST_EVICTING_UNHASHED = 24


def token(index, k):
    return 100_000 + 1000 * index + k


def draw_requests(rng, config, size):
    max_len = config["max_model_len"]
    shared = [rng.randrange(1000) for _ in range(max_len)]
    requests = []
    num_requests = rng.randint(2, 6 * size)
    spread = rng.choice([0, 2, 10, 30])
    for i in range(num_requests):
        kind = rng.random()
        if kind < 0.4:
            prompt = [rng.randrange(1000) for _ in range(rng.randint(1, max_len - 1))]
            prompt = prompt[:rng.choice([8, 24, max_len - 1])]
        elif kind < 0.75 or not requests:
            prompt = shared[:rng.randint(1, max_len - 1)]
            prompt = prompt[:rng.choice([12, 40, max_len - 1])]
            prompt += [rng.randrange(1000) for _ in range(rng.randint(0, 8))]
        else:  # a conversation goes on: an earlier prompt, some of its output, a question
            j = rng.randrange(len(requests))
            prompt = requests[j]["prompt"] + [token(j, k) for k in range(
                rng.randint(0, requests[j]["max_tokens"]))]
            prompt += [rng.randrange(1000) for _ in range(rng.randint(0, 6))]
        requests.append({"id": f"r{i}", "arrival_step": rng.randint(0, spread),
                         "prompt": prompt[:max_len - 1], "max_tokens": rng.randint(1, 32),
                         "priority": rng.randint(0, 3)})
    return requests


class ImagePrompts:
    """Prompts of text and images. Some share beginnings with their images, some continue earlier
    requests, some repeat an image."""

    IMAGE_TOKEN = 7

    def __init__(self, rng, config):
        self.rng = rng
        self.limit = config["max_model_len"] - 1
        self.longest = config["images"]["max_length"]
        # The manager walks a Python set of the images. With eight its order is ascending.
        self.most_images = config["images"].pop("most", 8)
        self.pool = [self.draw_image(f"i{k}") for k in range(rng.choice([1, 3, 8, 30]))]
        config["images"]["max_embeddings"] = max(
            image.get("embeddings", [0, image["length"]])[1] for image in self.pool)
        self.shared = self.draw_pieces(rng.randint(1, 12))

    def draw_image(self, name):
        length = self.rng.randint(1, self.longest)
        image = {"id": name, "length": length}
        if self.rng.random() < 0.3:  # marks on its sides have no embedding
            first = self.rng.randint(0, length - 1)
            image["embeddings"] = [first, self.rng.randint(1, length - first)]
        return image

    def draw_pieces(self, count):
        if self.most_images > 8:
            return [self.rng.choice(self.pool) if self.rng.random() < 0.75 else
                    [self.rng.randrange(1000) for _ in range(self.rng.randint(1, 3))]
                    for _ in range(count * 5)]
        most = self.rng.choice([1, 6, 20])
        return [self.rng.choice(self.pool) if self.rng.random() < 0.5 else
                [self.rng.randrange(1000) for _ in range(self.rng.randint(1, most))]
                for _ in range(count)]

    def flatten(self, pieces, prompt=(), images=()):
        prompt = list(prompt)
        images = list(images)
        for piece in pieces:
            if isinstance(piece, list):
                prompt += piece
                continue
            is_fitting = len(prompt) + piece["length"] <= self.limit
            if not is_fitting or len(images) == self.most_images:
                break
            images.append({"id": piece["id"], "offset": len(prompt), **piece})
            prompt += [self.IMAGE_TOKEN] * piece["length"]
        return (prompt or [1])[:self.limit], images

    def draw(self, requests):
        kind = self.rng.random()
        if kind < 0.4 or not requests:
            return self.flatten(self.draw_pieces(self.rng.randint(1, 6)))
        if kind < 0.75:
            return self.flatten(self.shared[:self.rng.randint(1, len(self.shared))]
                                + self.draw_pieces(self.rng.randint(0, 3)))
        j = self.rng.randrange(len(requests))
        answer = [token(j, k) for k in range(self.rng.randint(0, requests[j]["max_tokens"]))]
        return self.flatten([answer] + self.draw_pieces(self.rng.randint(0, 3)),
                            requests[j]["prompt"], requests[j].get("images", ()))


def add_images(rng, config, requests):
    prompts = ImagePrompts(rng, config)
    del config["images"]["max_length"]
    for i, request in enumerate(requests):
        request["prompt"], images = prompts.draw(requests[:i])
        if images:
            request["images"] = images


def draw_drafts(rng, config, requests):
    most = config["num_speculative_tokens"]
    luck = rng.random()
    for request in requests:
        request["accepted"] = [sum(rng.random() < luck for _ in range(most)) for _ in range(12)]
        if config["spec_method"] == "ngram":
            request["proposed"] = [rng.choice([0, most, rng.randint(0, most)]) for _ in range(12)]


def plain_config(rng, size):
    block_size = rng.choice([1, 2, 3, 4, 8, 16])
    max_len = rng.choice([32, 64, 128]) * (1 if size < 8 else 4)
    blocks_of_longest = -(-max_len // block_size)
    return {
        "block_size": block_size, "max_num_seqs": rng.choice([1, 2, 3, 4, 8, 16]),
        "max_num_batched_tokens": rng.choice([8, 16, 32, 64, 128]) * (1 if size < 8 else 4),
        "max_model_len": max_len,
        "num_blocks": 1 + int(blocks_of_longest * rng.choice([1.1, 1.5, 2, 3, 6])) + 1,
        "enable_prefix_caching": rng.random() < 0.7,
        "long_prefill_token_threshold": rng.choice([0, 0, 0, 4, 8, 20]),
        "enable_chunked_prefill": True, "policy": rng.choice(["fcfs", "priority"]),
        "scheduler_reserve_full_isl": rng.random() < 0.7}


def with_async(rng, config):
    config["async_depth"] = 2


def with_window(rng, config):
    config["sliding_window"] = rng.choice([1, 2, 4, 6, 9, 16, 30])
    config["num_blocks"] *= 2
    config["enable_prefix_caching"] = rng.random() < 0.85


def with_window_groups(rng, config):
    with_window(rng, config)
    config["num_window_groups"] = rng.randint(2, 5)
    config["num_blocks"] = config["num_blocks"] // 2 * (1 + config["num_window_groups"])


def with_tight_pool(rng, config):
    longest = -(-config["max_model_len"] // config["block_size"])
    config["num_blocks"] = longest + 1 + rng.randint(0, 3)
    config["scheduler_reserve_full_isl"] = rng.random() < 0.3


def with_priority(rng, config):
    config["policy"] = "priority"
    with_tight_pool(rng, config)


def with_threshold(rng, config):
    config["long_prefill_token_threshold"] = rng.choice([1, 3, 5, 8, 12])


def with_watermark(rng, config):
    config["watermark"] = rng.choice([0.01, 0.05, 0.1, 0.3])


def without_chunks(rng, config):
    config["enable_chunked_prefill"] = False
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"],
                                           config["max_model_len"])


def with_retention(rng, config):
    with_window(rng, config)
    config["enable_prefix_caching"] = True
    config["prefix_cache_retention_interval"] = rng.choice(
        [None, config["block_size"], 2 * config["block_size"], 5 * config["block_size"]])


def with_active_limit(rng, config):
    config["max_num_active_seqs"] = rng.randint(1, config["max_num_seqs"])


def with_adaptive_threshold(rng, config):
    with_threshold(rng, config)
    config["long_prefill_token_threshold_adaptive"] = True


def with_prefill_interval(rng, config):
    config["prefill_schedule_interval"] = rng.randint(2, 8)


def with_drafts(*methods):
    def change(rng, config):
        config["spec_method"] = rng.choice(methods)
        config["num_speculative_tokens"] = rng.choice([1, 2, 3, 5])
        # vLLM fails where the threshold cuts the drafts with which it pads a decode.
        if config["long_prefill_token_threshold"] <= config["num_speculative_tokens"]:
            config["long_prefill_token_threshold"] = 0
    return change


def with_drafts_by_size(rng, config):
    with_drafts("eagle", "mtp", "ngram", "draft_model")(rng, config)
    rows = []
    first = 1
    while first <= config["max_num_seqs"] and len(rows) < 3:
        last = first + rng.randint(0, 2)
        rows.append([first, last, rng.randint(0, config["num_speculative_tokens"] + 1)])
        first = last + rng.randint(1, 2)
    config["num_speculative_tokens_per_batch_size"] = rows


def with_cut_drafts(rng, config):
    with_drafts("eagle", "ngram", "draft_model")(rng, config)
    config["num_speculative_tokens"] = rng.choice([3, 5])
    config["long_prefill_token_threshold"] = rng.randint(1, config["num_speculative_tokens"])
    config["enable_prefix_caching"] = rng.random() < 0.3  # without hits hardly a decode is padded


def with_cached_states(rng, config):
    config["enable_prefix_caching"] = True
    config["mamba"] = {"cache_mode": "align"}
    config["num_blocks"] = config["num_blocks"] * 3 // 2
    if rng.random() < 0.4:
        config["prefix_cache_retention_interval"] = rng.choice(
            [None, config["block_size"], 2 * config["block_size"], 4 * config["block_size"]])


def without_cached_states(rng, config):
    config["enable_prefix_caching"] = False
    config["mamba"] = {"cache_mode": "none"}


def with_hits_in_blocks(rng, config):
    with_cached_states(rng, config)
    units = [n for n in range(1, config["block_size"] + 1) if config["block_size"] % n == 0]
    config["mamba"]["prefix_match_unit"] = rng.choice(units)


def with_checkpoints(rng, config):
    rng.choice([with_cached_states, with_hits_in_blocks])(rng, config)
    config["mamba"]["prefill_checkpoint_alignment"] = rng.choice([1, 2, config["block_size"]])


def with_images(rng, config):
    images = {"max_length": rng.choice([1, 4, 12, 30, config["max_model_len"] // 2])}
    if rng.random() < 0.35:
        # vLLM does not start where the budget has no room for the largest image.
        images["disable_chunked_mm_input"] = True
        images["max_length"] = min(images["max_length"], config["max_num_batched_tokens"])
    config["images"] = images


def with_many_images(rng, config):
    with_images(rng, config)
    config["images"].update(max_length=rng.choice([1, 2, 4]), most=60)
    longer = rng.choice([1, 2, 4])
    config["max_model_len"] *= longer
    config["num_blocks"] *= longer


def with_images_beside_states(rng, config):
    with_images(rng, config)
    # States that are cached need chunks that end inside images.
    if config["mamba"]["cache_mode"] == "align":
        config["images"].pop("disable_chunked_mm_input", None)


def with_images_and_groups(rng, config):
    rng.choice([with_window, with_window_groups, with_cached_states, with_hits_in_blocks,
                without_cached_states, with_state_groups])(rng, config)
    if rng.random() < 0.5:
        with_async(rng, config)
    (with_images_beside_states if "mamba" in config else with_images)(rng, config)


def with_options(rng, config):
    for change in (with_watermark, with_active_limit, with_prefill_interval, with_async,
                   with_priority):
        if rng.random() < 0.4:
            change(rng, config)
    if rng.random() < 0.2:
        without_chunks(rng, config)


def make_room_for_states(config):
    num_drafts = config.get("num_speculative_tokens", 0)
    # vLLM fails where the drafts of a decode cross a block and the kernels export states.
    if num_drafts and config["mamba"].get("prefill_checkpoint_alignment"):
        num_drafts = max(0, min(num_drafts, config["block_size"] - 2))
        config["num_speculative_tokens"] = num_drafts
        if num_drafts == 0:
            del config["num_speculative_tokens"], config["spec_method"]
    longest = -(-(config["max_model_len"] + num_drafts) // config["block_size"])
    num_states = config["mamba"].get("num_groups", 1) * (4 + num_drafts)
    num_windows = num_further_groups(config) - config["mamba"].get("num_groups", 1)
    config["num_blocks"] = max(config["num_blocks"],
                               2 + longest * (1 + num_windows) + num_states)


def with_state_groups(rng, config):
    rng.choice([with_cached_states, with_hits_in_blocks, with_checkpoints,
                without_cached_states])(rng, config)
    config["mamba"]["num_groups"] = rng.randint(2, 3)
    config["num_blocks"] *= 2


def with_windows_and_states(rng, config):
    """Layers with a window, layers with a state and full attention in one model."""
    with_window(rng, config)
    if rng.random() < 0.5:
        config["num_window_groups"] = rng.randint(2, 3)
    is_cached = rng.random() < 0.8
    (rng.choice([with_cached_states, with_hits_in_blocks, with_checkpoints]) if is_cached
     else without_cached_states)(rng, config)
    config["mamba"]["num_groups"] = rng.randint(1, 3)
    config["num_blocks"] *= 2
    config["states_before_windows"] = rng.random() < 0.5
    config["num_groups_before_full"] = rng.randint(0, num_further_groups(config))


def num_further_groups(config):
    num_windows = config.get("num_window_groups", 1) if "sliding_window" in config else 0
    num_states = config["mamba"].get("num_groups", 1) if "mamba" in config else 0
    return num_windows + num_states


def with_group_order(rng, config):
    """Any place of full attention but the first: vLLM orders groups by the model's layers."""
    config["num_groups_before_full"] = rng.randint(1, num_further_groups(config))


KINDS = {
    "sync": combined(), "async": with_async,
    "window": with_window, "window-async": combined(with_window, with_async),
    "window-groups": with_window_groups,
    "window-groups-async": combined(with_window_groups, with_async),
    "tight": with_tight_pool, "tight-async": combined(with_tight_pool, with_async),
    "priority": with_priority, "priority-async": combined(with_priority, with_async),
    "threshold": with_threshold, "watermark": with_watermark, "whole-prompts": without_chunks,
    "retention": with_retention, "retention-async": combined(with_retention, with_async),
    "active-limit": with_active_limit, "adaptive-threshold": with_adaptive_threshold,
    "prefill-interval": with_prefill_interval,
    "prefill-interval-async": combined(with_prefill_interval, with_async),
    "drafts": with_drafts("eagle", "mtp", "ngram", "draft_model"),
    "drafts-async": combined(with_drafts("eagle", "mtp", "ngram", "draft_model"), with_async),
    "drafts-by-size": with_drafts_by_size,
    "drafts-by-size-async": combined(with_drafts_by_size, with_async),
    "drafts-threshold": with_cut_drafts,
    "drafts-tight": combined(with_tight_pool, with_drafts("eagle", "draft_model")),
    "drafts-tight-async": combined(with_priority, with_drafts("eagle", "mtp"), with_async),
    "drafts-window": combined(with_window, with_drafts("eagle", "mtp", "ngram")),
    "drafts-window-async": combined(with_window, with_drafts("eagle", "mtp"), with_async),
    "states-none": without_cached_states,
    "states": with_cached_states, "states-async": combined(with_cached_states, with_async),
    "states-in-blocks": with_hits_in_blocks,
    "states-in-blocks-async": combined(with_hits_in_blocks, with_async),
    "states-checkpoints": with_checkpoints,
    "states-checkpoints-async": combined(with_checkpoints, with_async),
    "states-groups": with_state_groups,
    "states-drafts": combined(with_checkpoints, with_drafts("mtp", "ngram")),
    "states-drafts-async": combined(with_hits_in_blocks, with_drafts("mtp"), with_async),
    "drafts-options": combined(with_options, with_drafts("eagle", "mtp", "ngram", "draft_model")),
    "states-options": combined(with_options, with_state_groups,
                               with_drafts("eagle", "mtp", "ngram", "draft_model")),
    "states-none-drafts": combined(without_cached_states, with_drafts("mtp")),
    "images": with_images, "images-async": combined(with_async, with_images),
    "images-tight": combined(with_priority, with_images),
    "images-tight-async": combined(with_tight_pool, with_async, with_images),
    "images-many": with_many_images,
    "images-many-async": combined(with_async, with_many_images),
    "images-hybrid": with_images_and_groups,
    "order-window": combined(with_window, with_group_order),
    "order-window-groups": combined(with_window_groups, with_group_order),
    "order-window-groups-async": combined(with_window_groups, with_group_order, with_async),
    "order-states": combined(with_cached_states, with_group_order),
    "order-states-async": combined(with_hits_in_blocks, with_group_order, with_async),
    "order-states-groups": combined(with_state_groups, with_group_order),
    "order-states-none": combined(without_cached_states, with_group_order),
    "order-drafts": combined(with_checkpoints, with_group_order, with_drafts("mtp", "ngram")),
    "order-images": combined(with_images_and_groups, with_group_order),
    "all-groups": with_windows_and_states,
    "all-groups-async": combined(with_windows_and_states, with_async),
    "all-groups-options": combined(with_windows_and_states, with_options),
    "all-groups-drafts": combined(with_windows_and_states,
                                  with_drafts("eagle", "mtp", "ngram", "draft_model")),
    "all-groups-images": combined(with_windows_and_states, with_images_beside_states),
    "images-drafts": combined(with_drafts("eagle", "mtp", "ngram", "draft_model"), with_images),
    "images-drafts-async": combined(with_drafts("eagle", "mtp"), with_async, with_images),
    "images-options": combined(with_options, with_images)}


def is_possible(config, minor):
    return all(minor >= first for key, first in VERSIONS_WITH.items() if key in config)


def draw_case(seed, version, kind, size):
    """A case without steps, or None where that version lacks the kind's option. `size` 4 is usual;
    from 8 on, shapes are four times as large."""
    minor = int(version.split(".")[1])
    rng = random.Random(f"{kind} {seed}")
    config = {"version": f"0.{minor}", **plain_config(rng, size)}
    KINDS[kind](rng, config)
    if not is_possible(config, minor):
        return None
    # A budget below max_num_seqs is refused by vLLM.
    config["max_num_batched_tokens"] = max(config["max_num_batched_tokens"],
                                           config["max_num_seqs"])
    if "mamba" in config:
        make_room_for_states(config)
    requests = draw_requests(rng, config, size)
    if "images" in config:
        add_images(rng, config, requests)
    if "spec_method" in config:
        draw_drafts(rng, config, requests)
    return {"seed": seed, "kind": kind, "config": config, "requests": requests}
