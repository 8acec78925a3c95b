# SPDX-License-Identifier: Apache-2.0
"""Policies in Python: the same decisions as those in C++, and mistakes that a check finds."""

import math
import random
import time
import unittest
import warnings

import common
import metronome
from metronome import _check_policy


class Chunked(metronome.Policy):
    """Every pending prompt advances by at most one chunk per step."""

    name = "python_chunked"
    keys = ("prefill_chunk_size", "max_prefill_chunks_per_step")

    def __init__(self):
        self.chunk = self.prefill_chunk_size or 512
        self.most = self.max_prefill_chunks_per_step or 10**9

    def fill(self, books):
        books.plan_decodes()
        chunks = 0
        for request in books.unfinished_prefills():
            if chunks == self.most:
                return
            if request.state != "prefill":
                continue
            chunks += books.plan_prefill(request, min(self.chunk, request.uncomputed_tokens))
        while chunks < self.most:
            request = books.next_waiting()
            if request is None:
                return
            if not books.admit(request, min(self.chunk, books.uncomputed_tokens(request))):
                return
            chunks += 1


class TokenBudget(metronome.Policy):
    """Decodes, then prompts in progress, then new ones, within a token budget."""

    name = "python_token_budget"
    keys = ("max_num_batched_tokens", "prefill_chunk_size", "max_num_partial_prefills",
            "min_chunk_size")

    def __init__(self):
        self.chunk = self.prefill_chunk_size or self.max_num_batched_tokens
        self.most = self.max_num_partial_prefills or 10**9

    def chunk_of(self, books, request):
        wanted = min(self.chunk, books.uncomputed_tokens(request))
        left = self.max_num_batched_tokens - books.planned_tokens
        return wanted if left >= wanted else left if left >= self.min_chunk_size else 0

    def fill(self, books):
        books.plan_decodes()
        for request in books.unfinished_prefills():
            if request.state == "prefill" and (chunk := self.chunk_of(books, request)) > 0:
                books.plan_prefill(request, chunk)
        while (request := books.next_waiting()) is not None:
            chunk = self.chunk_of(books, request)
            stays_partial = chunk < books.uncomputed_tokens(request)
            if stays_partial and books.num_unfinished_prefills >= self.most:
                return
            if chunk == 0 or not books.admit(request, chunk):
                return


class Sarathi(metronome.Policy):
    """Decodes, then prompts in progress, then new ones, in one chunk of tokens."""

    name = "python_sarathi"
    keys = ("chunk_size", "enable_dynamic_chunking_schedule", "low_chunk_size",
            "high_chunk_size", "chunk_schedule_max_tokens", "chunk_schedule_stages")

    def __init__(self):
        self.counted = {}  # by request: output tokens that count as prompt since a preemption
        stages, low, high = self.chunk_schedule_stages, self.low_chunk_size, self.high_chunk_size
        self.sizes = [self.chunk_size]
        if self.enable_dynamic_chunking_schedule:
            step = 0 if stages == 1 else (high - low) / (stages - 1)
            unit = min(32, low)
            sizes = [math.floor(i * step + low) for i in range(stages)]
            if stages > 1:
                sizes[-1] = high
            self.sizes = [round(size / unit) * unit for size in reversed(sizes)]
        self.stage_tokens = -(-self.chunk_schedule_max_tokens // stages)

    def has_room(self, books, tokens, free):
        return free - books.blocks_for(tokens) >= books.watermark_blocks

    def refusal(self, books, prompt_tokens, max_tokens):
        if prompt_tokens > books.max_model_len:
            return f"a prompt may have at most {books.max_model_len} tokens"
        if not self.has_room(books, prompt_tokens, books.num_blocks):
            return "its prompt has no room"
        grows = max_tokens > 1
        if grows and books.blocks_for(prompt_tokens + max_tokens - 2) >= books.num_blocks:
            return "a decode needs a free block"
        return None

    def chunk_of(self, books, done, left):
        size = self.sizes[min(done // self.stage_tokens, len(self.sizes) - 1)]
        return min(left, size - books.planned_tokens)

    def evict(self, books, victim):
        # Its chunk is cut by its progress before, if the same plan admits it again.
        returns = victim.state == "prefill" and victim.written_tokens == victim.computed_tokens
        self.evicted[victim.id] = (victim.computed_tokens,
                                   victim.uncomputed_tokens if returns else 0)
        new = victim.output_tokens - self.counted.get(victim.id, 0)
        self.counted[victim.id] = victim.output_tokens
        books.extend_output(victim, new)
        books.preempt(victim)

    def decode(self, books, running):
        for request in list(running):
            if not request.can_decode:
                continue
            while books.num_free_blocks == 0:
                victim = running.pop()
                self.evict(books, victim)
                if victim is request:
                    return
            books.decode(request)

    def fill(self, books):
        self.evicted = {}
        running = sorted(books.running(), key=lambda request: request.id)
        self.decode(books, running)
        for request in running:
            if request.state == "prefill":
                chunk = self.chunk_of(books, request.computed_tokens, request.uncomputed_tokens)
                if chunk > 0:
                    books.plan_prefill(request, chunk)
        while queue := books.waiting(1):
            request = queue[0]
            tokens = request.prompt_tokens + request.output_tokens
            has_room = self.has_room(books, tokens, books.num_free_blocks)
            if tokens > books.max_model_len or not (has_room or books.num_running):
                books.refuse(request)
                continue
            if not has_room or books.num_running >= books.max_num_seqs:
                return
            progress = self.evicted.get(request.id)
            chunk = self.chunk_of(books, *(progress or (0, request.uncomputed_tokens)))
            if chunk <= 0:
                return
            books.start(request, chunk)

    def on_end(self, books, request):
        self.counted.pop(request.id, None)


def as_sarathi(case):
    """The case with what Sarathi-Serve's rules leave open."""
    scheduler, kv_cache = case["scheduler"], case["kv_cache"]
    case["workload"].pop("prefix", None)
    kv_cache["watermark"] = 0.01
    for key in ("allocation", "enable_prefix_caching"):
        del kv_cache[key]
    if scheduler.get("enable_dynamic_chunking_schedule"):
        scheduler.pop("chunk_size", None)
        least = case["engine"]["max_num_seqs"]
        scheduler["low_chunk_size"] = max(scheduler.get("low_chunk_size", 32), -(-least // 32) * 32)
        high = scheduler.get("high_chunk_size", 64)
        scheduler["high_chunk_size"] = max(high, scheduler["low_chunk_size"])
    else:
        for key in Sarathi.keys[1:]:
            scheduler.pop(key, None)


class Same(common.InFolder):
    """A policy in Python decides as the one in C++ that it is written after."""

    CASES = 1000

    def check(self, policy, native, adjust=lambda case: None):
        metronome.register(policy)
        warnings.simplefilter("ignore")  # of requests that can never fit
        preempted = 0
        for number in range(self.CASES):
            case = _check_policy._random_case(policy, random.Random(f"same {number}"))
            adjust(case)
            digests = []
            for name in (policy.name, native):
                case["scheduler"]["policy"] = name
                result = metronome.run(case).only
                digests.append(result.digest)
                preempted += result.summary["num_preemptions"] > 0
            self.assertEqual(*digests, case)
        self.assertGreater(preempted, self.CASES // 20)

    def test_sarathi(self):
        self.check(Sarathi, "sarathi", as_sarathi)

    def test_chunked(self):
        self.check(Chunked, "chunked")

    def test_token_budget(self):
        self.check(TokenBudget, "token_budget")

    def test_speed(self):
        """Printed, as it depends on the machine."""
        for policy, native, settings in (
                (Chunked, "chunked", {"prefill_chunk_size": 512}),
                (TokenBudget, "token_budget", {"max_num_batched_tokens": 512}),
                (Sarathi, "sarathi", {"chunk_size": 512})):
            metronome.register(policy)
            times = {}
            scenario = dict(metronome.run("quickstart", variants="chunked-512").config)
            scenario["kv_cache"] = {"watermark": 0.01} if policy is Sarathi else {}
            for name in (native, policy.name):
                scenario["scheduler"] = {"policy": name, **settings}
                best = []
                for _ in range(5):
                    began = time.process_time()
                    result = metronome.run(scenario)
                    best.append(time.process_time() - began)
                times[name] = min(best), result.only
            (ours, one), (python, other) = times.values()
            self.assertEqual(one.digest, other.digest)
            steps = one.summary["num_steps"]
            requests = float(one.steps["running"].mean())
            print(f"\n{native}, {settings}, {steps} steps of {requests:.0f} requests: "
                  f"{1e3 * ours:.0f} ms of CPU in C++, {1e3 * python:.0f} in Python: "
                  f"{1e6 * (python - ours) / steps:.1f} us a step more")


def mistake(function):
    """A policy whose fill() is this function, with a budget, a chunk size and memory."""
    return type(function.__name__, (TokenBudget,),
                {"name": "mistake_" + function.__name__, "fill": function, "shared": []})


def exceeds_budget(self, books):
    books.plan_decodes()
    while (request := books.next_waiting()) is not None:
        if not books.admit(request, books.uncomputed_tokens(request)):
            return


def forgets_decodes(self, books):
    for request in books.unfinished_prefills():
        if chunk := self.chunk_of(books, request):
            books.plan_prefill(request, chunk)
    while (request := books.next_waiting()) is not None:
        if not (chunk := self.chunk_of(books, request)) or not books.admit(request, chunk):
            return


def decodes_twice(self, books):
    TokenBudget.fill(self, books)
    books.plan_decodes()


def starves_long_prompts(self, books):
    books.plan_decodes()
    while (request := books.next_waiting()) is not None:
        if request.prompt_tokens > 30:
            return
        if not (chunk := self.chunk_of(books, request)) or not books.admit(request, chunk):
            return


def leaves_prompts_unfinished(self, books):
    books.plan_decodes()
    while (request := books.next_waiting()) is not None:
        if not (chunk := self.chunk_of(books, request)) or not books.admit(request, chunk):
            return


def computes_beyond_the_prompt(self, books):
    books.plan_decodes()
    for request in books.unfinished_prefills():
        books.plan_prefill(request, self.chunk)
    while (request := books.next_waiting()) is not None:
        if not books.admit(request, self.chunk):
            return


def ignores_preemption(self, books):
    books.plan_decodes()
    for request in books.unfinished_prefills():
        if chunk := self.chunk_of(books, request):
            books.plan_prefill(request, chunk)
    for request in books.waiting():
        if not (chunk := self.chunk_of(books, request)) or not books.admit(request, chunk):
            return


def draws_lots(self, books):
    books.plan_decodes()
    for request in books.unfinished_prefills():
        if request.state == "prefill" and (chunk := self.chunk_of(books, request)) > 0:
            books.plan_prefill(request, chunk)
    while (request := books.next_waiting()) is not None:
        chunk = min(self.chunk_of(books, request), random.randint(1, 3))
        if chunk == 0 or not books.admit(request, chunk):
            return


def remembers_another_run(self, books):
    for request in self.shared[:1]:
        if request.state == "waiting":
            return
    TokenBudget.fill(self, books)
    self.shared.extend(books.running())


def preempts_forever(self, books):
    TokenBudget.fill(self, books)
    if books.num_running > 0:
        books.preempt(books.running()[0])


def asks_until_there_is_room(self, books):
    books.plan_decodes()
    for request in books.unfinished_prefills():
        if request.state == "prefill" and (chunk := self.chunk_of(books, request)) > 0:
            books.plan_prefill(request, chunk)
    while (request := books.next_waiting()) is not None:
        if not (chunk := self.chunk_of(books, request)):
            return
        while not books.admit(request, chunk):
            pass


def chunks_twice(self, books):
    books.plan_decodes()
    for request in 2 * books.unfinished_prefills():
        if request.state == "prefill" and (chunk := self.chunk_of(books, request)) > 0:
            books.plan_prefill(request, max(1, chunk // 2))
    while (request := books.next_waiting()) is not None:
        if not (chunk := self.chunk_of(books, request)) or not books.admit(request, chunk):
            return


# Each with a part of what the check says.
MISTAKES = {
    exceeds_budget: "a step exceeds its token budget",
    forgets_decodes: "can never be scheduled",
    decodes_twice: "plan_decodes",
    starves_long_prompts: "can never be scheduled",
    leaves_prompts_unfinished: "can never be scheduled",
    computes_beyond_the_prompt: "a chunk of",
    ignores_preemption: "request",
    draws_lots: "other decisions the second time",
    remembers_another_run: "books are closed",
    preempts_forever: "make no end",
    asks_until_there_is_room: "makes no end of it",
    chunks_twice: "has a chunk in this plan",
}


class Check(common.InFolder):
    def test_right_ones_pass(self):
        for policy in (Chunked, TokenBudget):
            found = metronome.check_policy(policy, cases=200, seed=3, show=False)
            self.assertTrue(found, found)
            self.assertEqual(found.num_cases, 200)

    def test_mistakes_are_found(self):
        sizes = {}
        for function, text in MISTAKES.items():
            found = metronome.check_policy(mistake(function), cases=200, show=False)
            self.assertFalse(found, function.__name__)
            self.assertRegex(found.fault, text)
            self.assertIn("smallest case", str(found))
            if function not in (draws_lots, remembers_another_run, preempts_forever):
                with self.assertRaises(metronome.MetronomeError):
                    metronome.run(found.scenario)
            sizes[function.__name__] = found.num_cases
        print("\ncases until a mistake was found:", sizes)


class Register(common.InFolder):
    def test_errors(self):
        for fields, text in (
                ({"name": "chunked"}, "there is one"),
                ({"name": "two words"}, "no name of a policy"),
                ({"name": "other", "keys": ("min_chunk",)}, "did you mean 'min_chunk_size'"),
                ({"name": "other", "chunk_size": metronome.Integer(1, 1, 2, "x")},
                 "is a key of policy sarathi"),
        ):
            policy = type("Other", (metronome.Policy,), {"fill": lambda *_: None, **fields})
            with self.assertRaisesRegex(metronome.ArgumentError, text):
                metronome.register(policy)
        with self.assertRaisesRegex(metronome.ArgumentError, "has no fill"):
            metronome.register(type("Other", (metronome.Policy,), {"name": "other"}))

    def test_own_keys(self):
        @metronome.register
        class Own(TokenBudget):
            name = "own_keys"
            aging = metronome.Integer(64, 1, 1000, "own_keys: steps until a prompt is old")
            share = metronome.Number(0.5, 0, 1, "own_keys: share of the budget")
            seen = []

            def __init__(self):
                super().__init__()
                self.seen.append((self.aging, self.share, self.max_num_batched_tokens))

        sets = {"scheduler.policy": "own_keys", "workload.num_requests": 5}
        scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
        scenario["scheduler"] = {"policy": "own_keys", "aging": 7}
        result = metronome.run(scenario).only
        self.assertEqual(Own.seen[-1], (7, 0.5, 2048))
        self.assertEqual(result.config["scheduler"]["aging"], 7)
        with self.assertRaises(metronome.ScenarioError) as caught:
            metronome.run(scenario, {"scheduler.aging": 0})
        self.assertEqual(caught.exception.key, "scheduler.aging")
        rows = metronome.sweep(scenario, {"scheduler.share": [0.1, 0.9]}).rows
        self.assertEqual(len(rows), 2)
        self.assertEqual({seen[1] for seen in Own.seen[-2:]}, {0.1, 0.9})
        del sets

    def test_error_in_fill(self):
        @metronome.register
        class Fails(TokenBudget):
            name = "fails"

            def fill(self, books):
                if books.step == 3:
                    raise LookupError("mine")
                super().fill(books)

        scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
        scenario["scheduler"] = {"policy": "fails"}
        with self.assertRaisesRegex(LookupError, "mine"):
            metronome.run(scenario)

    def test_hooks_only_read(self):
        """The books have no step under construction between plans."""
        for what, text in (("books.step", "no step is under construction"),
                           ("books.plan_decodes()", "no step is under construction")):
            def on_end(self, books, request, what=what):
                self.waiting = books.num_waiting
                eval(what)

            policy = type("Eager", (TokenBudget,), {"name": "eager", "on_end": on_end})
            metronome.register(policy)
            scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
            scenario["scheduler"] = {"policy": "eager"}
            with self.assertRaisesRegex(metronome.PolicyError, text):
                metronome.run(scenario)

    def test_rules_of_engines(self):
        """What decode(), start(), refuse() and extend_output() refuse."""
        def fill_with(decide):
            def fill(self, books):
                if books.num_waiting:
                    decide(books)
                TokenBudget.fill(self, books)
            return fill

        def after_decodes(books):
            books.plan_decodes()
            books.decode((books.running() or books.waiting())[0])

        for decide, text in (
                (lambda books: books.decode(books.waiting(1)[0]), "nothing to decode"),
                (lambda books: books.start(books.waiting(1)[0], 10**6), "a chunk of 1000000"),
                (lambda books: books.start(books.waiting(1)[0], 8, 4), "room for 4 positions"),
                (lambda books: books.extend_output(books.waiting(1)[0], 1), "1 more output"),
                (after_decodes, "has planned the decodes")):
            metronome.register(type("Wrong", (TokenBudget,), {"name": "wrong",
                                                              "fill": fill_with(decide)}))
            scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
            scenario["scheduler"] = {"policy": "wrong"}
            with self.assertRaisesRegex(metronome.PolicyError, text):
                metronome.run(scenario)

    def test_hooks(self):
        told = []

        @metronome.register
        class Told(TokenBudget):
            name = "told"

            def on_enqueue(self, books, request):
                told.append(("enqueue", request.id))

            def on_end(self, books, request):
                told.append(("end", request.id))

        scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
        scenario["scheduler"] = {"policy": "told"}
        metronome.run(scenario)
        self.assertEqual(sorted(told), sorted([(what, number) for number in range(5)
                                               for what in ("end", "enqueue")]))


if __name__ == "__main__":
    unittest.main()
