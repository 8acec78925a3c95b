# SPDX-License-Identifier: Apache-2.0
"""Policies in Python: the same decisions as those in C++, and mistakes that a check finds."""

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


class Same(common.InFolder):
    """A policy in Python decides as the one in C++ that it is written after."""

    CASES = 1000

    def check(self, policy, native):
        metronome.register(policy)
        warnings.simplefilter("ignore")  # of requests that can never fit
        preempted = 0
        for number in range(self.CASES):
            case = _check_policy._random_case(policy, random.Random(f"same {number}"))
            digests = []
            for name in (policy.name, native):
                case["scheduler"]["policy"] = name
                result = metronome.run(case).only
                digests.append(result.digest)
                preempted += result.summary["num_preemptions"] > 0
            self.assertEqual(*digests, case)
        self.assertGreater(preempted, self.CASES // 20)

    def test_chunked(self):
        self.check(Chunked, "chunked")

    def test_token_budget(self):
        self.check(TokenBudget, "token_budget")

    def test_speed(self):
        """Printed, as it depends on the machine."""
        metronome.register(Chunked)
        times = {}
        scenario = dict(metronome.run("quickstart", variants="chunked-512").config)
        for name in ("chunked", Chunked.name):
            scenario["scheduler"] = {"policy": name, "prefill_chunk_size": 512}
            best = []
            for _ in range(5):
                began = time.process_time()
                result = metronome.run(scenario)
                best.append(time.process_time() - began)
            times[name] = min(best), result.only
        (native, one), (python, other) = times.values()
        self.assertEqual(one.digest, other.digest)
        steps = one.summary["num_steps"]
        print(f"\nquickstart, chunks of 512, {steps} steps: {1e3 * native:.0f} ms of CPU in C++, "
              f"{1e3 * python:.0f} in Python: {1e6 * (python - native) / steps:.1f} us a step more")


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
