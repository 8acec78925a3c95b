# SPDX-License-Identifier: Apache-2.0
"""A case for `metronome decisions` from llama-server's own debug log (--log-verbosity 5 and
LLAMA_BATCH_DEBUG=2). The log has each round of the server's loop, the requests that it launched
and deferred, and every token of every call of the decoder."""

import re

SLOT = r"id\s+(\d+) \| task (\d+) \| "
EVENTS = {name: re.compile(pattern) for name, pattern in {
    "round": r"update_slots: posting NEXT_RESPONSE",
    "size": r"checking sim = [\d.]+ \(\d+/(\d+)\)",
    "defer": r" defer: defer task, id = (\d+)",
    "launch": SLOT + r"processing task",
    "begin": SLOT + r"new prompt, .*task\.n_tokens = (\d+)",
    "cached": SLOT + r"cached n_tokens = (\d+), memory_seq_rm",
    "call": r"n_batch \(effective\) = (\d+), off = (\d+)",
    "batch": r" init: input batch info:",
    "pass": r"ubatch_add: added ubatch to split",
    "token": r"ubatch_print:\s+\d+: id =\s*(-?\d+) \(.*\), pos =\s*(\d+), n_seq_id =\s*1, "
             r"seq_id = \[(\.*)\d",
    "purge": r"purging slot (\d+) with",
    "no_room": r"failed to find free space in the KV cache",
    "exceeded": r"Context size has been exceeded",
    "sampled": SLOT + r"n_gen = (\d+), n_remaining = (-?\d+), next token:\s*(\d+) '",
    "release": SLOT + r"stop processing: n_tokens"}.items()}
TOKEN_START = re.compile(r"ubatch_print:\s+\d+: id =")

FIELDS = ("launched", "kept", "purged", "tries", "batch", "failed", "released")


class Request:
    def __init__(self, task, arrival_step, size):
        self.task = task
        self.arrival_step = arrival_step
        self.num_prompt_tokens = size  # 0: not known
        self.prompt = None
        self.max_tokens = 0
        self.output = []
        self.has_failed = False


class Log:
    """`steps`: one for each round of the server's loop that had something to compute."""

    def __init__(self, lines):
        self.requests = {}  # by task
        self.steps = []
        self.passes = []    # tokens of each pass of the steps
        self.launched = []  # before the next step
        self.step = None
        self.call = None    # tokens of the decoder's last call: (slot, token, position)
        self.call_passes = []
        self.tasks = {}     # by slot
        self.content = {}   # tokens of each slot
        self.size = 0
        self.reads = "batch"
        for line in whole_lines(lines):
            for name, pattern in EVENTS.items():
                if found := pattern.search(line):
                    getattr(self, f"read_{name}")(*found.groups())
                    break
        self.close_step()

    # ---- Requests ----

    def see(self, task):
        if task not in self.requests:
            self.close_step()
            self.requests[task] = Request(task, len(self.steps), self.size)
        self.size = 0

    def read_size(self, size):
        self.size = int(size)

    def read_defer(self, task):
        self.see(task)

    def read_launch(self, slot, task):
        self.see(task)
        self.close_step()
        self.launched.append([task, int(slot)])
        self.tasks[int(slot)] = task

    def read_begin(self, slot, task, num_tokens):
        del slot
        self.requests[task].num_prompt_tokens = int(num_tokens)
        self.step["kept"][task] = None

    def read_cached(self, slot, task, num_tokens):
        if self.step["kept"].get(task, 0) is None:
            self.step["kept"][task] = int(num_tokens)
            slot = int(slot)
            self.content[slot] = self.content.get(slot, [])[:int(num_tokens)]

    def read_sampled(self, slot, task, count, num_left, token):
        del slot
        request = self.requests[task]
        request.output.append(int(token))
        if count == "1":
            request.max_tokens = 1 + int(num_left)

    def read_release(self, slot, task):
        del slot
        if self.step is None:
            return
        self.step["released"].append(task)
        self.requests[task].has_failed = "failed" in self.step

    # ---- Steps ----

    def read_round(self):
        self.close_step()
        self.open_step()

    def open_step(self):
        self.step = {"launched": self.launched, "kept": {}, "purged": [], "tries": 0, "batch": [],
                     "released": []}
        self.launched = []
        self.call = None

    def close_step(self):
        if self.step is None:
            return
        self.commit_call()
        if self.step["batch"]:
            if self.step["tries"] <= 1:
                del self.step["tries"]
            self.steps.append(self.step)
        self.step = None

    def read_call(self, n_batch, offset):
        del n_batch, offset
        self.commit_call()  # if it had room, this one goes on with the rest
        self.step["tries"] += 1
        self.call = []
        self.call_passes = []

    def read_batch(self):
        self.reads = "batch"

    def read_pass(self):
        self.reads = "pass"
        if self.step is not None:
            self.call_passes.append(0)

    def read_token(self, token, position, dots):
        if self.step is None:
            return
        if self.reads == "pass":
            self.call_passes[-1] += 1
        else:
            self.call.append((len(dots), int(token), int(position)))

    def read_purge(self, slot):
        self.step["purged"].append(int(slot))

    def read_no_room(self):
        self.call = None

    def read_exceeded(self):
        self.step["failed"] = True

    def commit_call(self):
        """The tokens of the last call, in runs of one slot."""
        if self.call is None:
            return
        runs = []
        for slot, token, position in self.call:
            request = self.requests[self.tasks[slot]]
            is_new = not runs or runs[-1][0] != request.task or \
                position != runs[-1][2] + runs[-1][3]
            if is_new:
                is_decode = position >= request.num_prompt_tokens
                runs.append([request.task, "g" if is_decode else "p", position, 0])
            runs[-1][3] += 1
            if "failed" in self.step:
                continue
            content = self.content.setdefault(slot, [])
            del content[position:]
            content.append(token)
            if len(content) == request.num_prompt_tokens and request.prompt is None:
                request.prompt = list(content)
        self.step["batch"] += runs
        self.passes.append((sum(run[3] for run in runs), self.call_passes,
                            "failed" in self.step))
        self.call = None

    # ---- A case ----

    def case(self, seed, config, known_prompts):
        """`known_prompts` [(tokens, max_tokens)]: what the clients sent, for requests whose prompt
        the server never completed."""
        names = {task: f"r{i}" for i, task in enumerate(self.requests)}
        known = [(prompt, count) for prompt, count in known_prompts
                 if prompt not in [one.prompt for one in self.requests.values()]]
        requests = []
        for task, request in self.requests.items():
            prompt, count = request.prompt, request.max_tokens
            if prompt is None:
                match = [one for one in known
                         if request.num_prompt_tokens in (0, len(one[0]))][0]
                known.remove(match)
                prompt, count = match
            requests.append({"id": names[task], "prompt": prompt, "max_tokens": count or 1,
                             "arrival_step": request.arrival_step,
                             "output": None if request.has_failed else request.output})
        steps = []
        for step in self.steps:
            step = dict(step)
            step["launched"] = [[names[task], slot] for task, slot in step["launched"]]
            step["kept"] = {names[task]: count for task, count in step["kept"].items()}
            step["batch"] = [[names[task], *rest] for task, *rest in step["batch"]]
            step["released"] = [names[task] for task in step["released"]]
            steps.append({field: step[field] for field in FIELDS if field in step})
        return {"seed": seed, "config": config, "requests": requests, "steps": steps}


def whole_lines(lines):
    """A token's text may hold line breaks."""
    open_line = None
    for line in lines:
        if open_line is not None:
            line = open_line + " " + line
            open_line = None
        if TOKEN_START.search(line) and "seq_id = [" not in line:
            open_line = line
        else:
            yield line
