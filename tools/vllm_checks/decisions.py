# SPDX-License-Identifier: Apache-2.0
"""Cases for `metronome decisions` from what the scheduler of a real server recorded
(patches/sitecustomize.py)."""

import json

CONFIG_KEYS = ("block_size", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
               "num_blocks", "enable_prefix_caching", "long_prefill_token_threshold",
               "enable_chunked_prefill", "policy", "scheduler_reserve_full_isl")
STEP_KEYS = ("scheduled", "preempted", "running", "waiting", "free_blocks", "admitted_computed",
             "block_tables", "drafts", "finished", "sampled")


def entries(path):
    """(kind, content) of each line; the server may have been stopped within the last one."""
    for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
        if line.endswith("\n"):
            yield from json.loads(line).items()


class Case:
    """The decisions of one scheduler, from its first request to the end of its last."""

    def __init__(self, path, version, seed):
        self.version = version
        self.seed = seed
        self.config = None
        self.requests = {}  # by the server's id
        self.steps = []
        for kind, content in entries(path):
            getattr(self, f"read_{kind}")(content)

    def read_config(self, config):
        self.config = config

    def read_request(self, request):
        self.requests[request["id"]] = {
            **request, "arrival_step": len(self.steps), "accepted": [], "proposed": []}

    def read_step(self, step):
        self.steps.append({**step, "finished": [], "sampled": {}})

    def read_result(self, result):
        step = self.steps[-1]
        step["finished"] += result["finished"]
        step["sampled"].update({name: len(tokens) for name, tokens in result["sampled"].items()
                                if tokens})
        if not self.has_drafts():
            return
        depth = self.config["async_depth"]
        drafts = self.steps[-depth]["drafts"] if len(self.steps) >= depth else {}
        for name in drafts:
            if tokens := result["sampled"].get(name):
                self.requests[name]["accepted"].append(len(tokens) - 1)

    def read_proposed(self, proposed):
        for name, count in proposed.items():
            self.requests[name]["proposed"].append(count)

    def has_drafts(self):
        return self.config["num_speculative_tokens"] > 0

    def listed(self):
        """The requests in the order of their arrival, with short names. vLLM's queue has the order
        in which it received them; with priorities, the order of their arrival times."""
        by_time = self.config["policy"] == "priority"
        listed = sorted(self.requests.values(),
                        key=lambda request: (request["arrival_step"],
                                             request["arrival_time"] if by_time else 0))
        return {request["id"]: (f"r{i}", request) for i, request in enumerate(listed)}

    def lengths(self):
        """The prompt tokens and most output tokens of the requests, in the order of their
        arrival."""
        return [(len(request["prompt"]), request["max_tokens"])
                for _, request in self.listed().values()]

    def json(self):
        listed = self.listed()
        names = {full: short for full, (short, _) in listed.items()}
        order = {short: i for i, short in enumerate(names.values())}

        def renamed(value):
            if isinstance(value, dict):
                return {names[key]: item for key, item in value.items()}
            if isinstance(value, list):
                return [names[item] for item in value]
            return value

        config = {key: self.config[key] for key in CONFIG_KEYS}
        config["async_depth"] = self.config["async_depth"]
        config["version"] = self.version
        if self.has_drafts():
            config["spec_method"] = self.config["spec_method"]
            config["num_speculative_tokens"] = self.config["num_speculative_tokens"]
        requests = []
        for short, request in listed.values():
            entry = {"id": short, "arrival_step": request["arrival_step"],
                     "prompt": request["prompt"], "max_tokens": request["max_tokens"],
                     "priority": request["priority"]}
            if self.has_drafts():
                entry["accepted"] = request["accepted"] or [0]
                entry["proposed"] = request["proposed"] or [0]
            requests.append(entry)
        steps = []
        num_ended = 0
        for step in self.steps:
            step = {key: renamed(step[key]) for key in STEP_KEYS if key in step}
            for key in ("preempted", "finished"):
                step[key].sort(key=order.get)
            if not self.has_drafts():
                del step["drafts"], step["sampled"]
            steps.append(step)
            num_ended += len(step["finished"])
            if num_ended == len(requests):
                break
        return {"seed": self.seed, "config": config, "requests": requests, "steps": steps}

    def counts(self):
        """What the decisions cover."""
        return {"requests": len(self.requests),
                "steps": sum(bool(step["scheduled"]) for step in self.steps),
                "preemptions": sum(len(step["preempted"]) for step in self.steps),
                "admissions with cached tokens": sum(
                    computed > 0 for step in self.steps
                    for computed in step.get("admitted_computed", {}).values()),
                "verified drafts": sum(sum(step["drafts"].values()) for step in self.steps),
                "chunked prompts": self.num_chunked()}

    def num_chunked(self):
        """Prompts that were computed in several steps."""
        chunks = {}
        for step in self.steps:
            for name, tokens in step["scheduled"].items():
                begun, left = chunks.get(name, (0, len(self.requests[name]["prompt"])))
                if left > 0:
                    chunks[name] = (begun + 1, left - tokens)
        return sum(begun > 1 for begun, _ in chunks.values())
