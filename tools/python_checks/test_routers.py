# SPDX-License-Identifier: Apache-2.0
"""Routers in Python: the same choices as those in C++, what they know, and errors."""

import unittest
import warnings

import common
import metronome

FLEET = {"fleet.replicas": 3, "workload.num_requests": 80, "workload.arrivals.rate": 20}


class LeastLoaded(metronome.Router):
    """the replica with the fewest requests in flight"""

    name = "python_least_loaded"

    def choose(self, fleet, request):
        return min(fleet.up, key=lambda replica: fleet.in_flight[replica])


class Drawn(metronome.Router):
    """any replica, by lot"""

    name = "python_random"

    def choose(self, fleet, request):
        return fleet.up


class Told(metronome.Router):
    """counts what it is told"""

    name = "told"
    hears_blocks = True
    report_ms = 50
    stride = metronome.Integer(1, 1, 8, "told: replicas between two requests")
    seen = []

    def __init__(self):
        self.next = 0
        self.in_flight = [0] * self.num_replicas
        self.first_tokens = 0
        self.cached = 0
        self.reported = 0
        self.seen.append(self)

    def choose(self, fleet, request):
        assert list(fleet.in_flight) == self.in_flight
        self.cached = max(self.cached, *fleet.cached_tokens)
        self.reported = max([self.reported, *(one.running for one in fleet.reports)])
        self.next += self.stride
        return self.next % self.num_replicas

    def on_sent(self, number, replica):
        self.in_flight[replica] += 1

    def on_first_token(self, number):
        self.first_tokens += 1

    def on_end(self, number, replica):
        self.in_flight[replica] -= 1


class Routers(common.InFolder):
    def run_with(self, router, sets=None):
        return metronome.run("quickstart", {**FLEET, "fleet.router": router, **(sets or {})},
                             variants="budget-1024").only

    def test_same_choices(self):
        for router, native in ((LeastLoaded, "least_loaded"), (Drawn, "random")):
            metronome.register(router)
            for seed in range(10):
                ours = self.run_with(router.name, {"seed": seed})
                theirs = self.run_with(native, {"seed": seed})
                self.assertEqual(ours.digest, theirs.digest)
                self.assertTrue((ours.requests["replica"] == theirs.requests["replica"]).all())

    def test_what_it_is_told(self):
        metronome.register(Told)
        warnings.simplefilter("ignore")
        config = dict(self.run_with("least_loaded").config)
        config["scheduler"] = {"policy": "vllm"}
        config["kv_cache"] = {"enable_prefix_caching": True}
        config["workload"]["prefix"] = {"kind": "groups", "num_groups": 2, "prefix_tokens": 500}
        config["fleet"] = {"replicas": 3, "router": "told", "told": {"stride": 2}}
        result = metronome.run(config).only
        router = Told.seen[-1]
        self.assertEqual(router.in_flight, [0, 0, 0])
        self.assertEqual(router.first_tokens, 80)
        self.assertEqual(router.stride, 2)
        self.assertGreaterEqual(router.cached, 496)
        self.assertGreater(router.reported, 0)
        self.assertEqual(result.requests["replica"].tolist()[:3], [2, 1, 0])

    def test_errors(self):
        answers = {"outside": 7, "nothing": [], "text": "first"}
        for name, answer in answers.items():
            metronome.register(type("Bad", (metronome.Router,), {
                "name": f"bad_{name}", "choose": lambda self, fleet, request, a=answer: a}))
            with self.assertRaisesRegex(metronome.PolicyError, "choose"):
                self.run_with(f"bad_{name}")

        def fail(*_):
            raise LookupError("mine")

        metronome.register(type("Fails", (metronome.Router,), {"name": "bad", "choose": fail}))
        with self.assertRaisesRegex(LookupError, "mine"):
            self.run_with("bad")
        with self.assertRaisesRegex(metronome.ArgumentError, "there is one"):
            metronome.register(type("Bad", (metronome.Router,), {"name": "dynamo", "choose": fail}))
        with self.assertRaisesRegex(metronome.ArgumentError, "has no choose"):
            metronome.register(type("Bad", (metronome.Router,), {"name": "none"}))
        with self.assertRaisesRegex(metronome.ScenarioError, "python_random"):
            metronome.register(Drawn)
            self.run_with("python_randon")


if __name__ == "__main__":
    unittest.main()
