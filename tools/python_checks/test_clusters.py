# SPDX-License-Identifier: Apache-2.0
"""Sweeps and searches on clusters of this machine: the same bytes, also where a worker dies."""

import concurrent.futures
import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import unittest

import common
import metronome

OVER = {"workload.arrivals.rate": [2, 4, 8]}
SMALL = {"workload.num_requests": 60}


def sweep(out, executor=None):
    return metronome.sweep("quickstart", OVER, SMALL, variants="chunked-512", out=out, jobs=1,
                           executor=executor)


def tune(out, executor=None):
    return metronome.tune("quickstart", sets={"slo.ttft_ms": 2000, "slo.itl_ms": 60}, seeds=1,
                          variants=["chunked-512", "budget-1024", "unchunked"], out=out, jobs=1,
                          executor=executor)


class Killing:
    """Ray, of whose workers one is killed with its task."""

    def __init__(self, ray, killed):
        self.wait, self.get, self.cancel = ray.wait, ray.get, ray.cancel
        self._ray, self._killed, self._count = ray, killed, 0

    def remote(self, **options):
        def wrap(function):
            def die():
                os.kill(os.getpid(), signal.SIGKILL)

            works = self._ray.remote(**options)(function)
            dies = self._ray.remote(**options)(die)

            class Task:
                @staticmethod
                def remote(*call):
                    self._count += 1
                    return dies.remote() if self._count == self._killed else works.remote(*call)

            return Task
        return wrap


def has(package):
    return importlib.util.find_spec(package) is not None


@unittest.skipUnless(has("ray"), "needs Ray: tools/check_python --clusters")
class Ray(common.InFolder):
    @classmethod
    def setUpClass(cls):
        import logging
        import warnings

        os.environ["RAY_raylet_start_wait_time_s"] = "300"  # on a busy machine
        import ray
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Ray's own
            ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR,
                     log_to_driver=False)
        cls.addClassCleanup(ray.shutdown)
        cls.ray = ray

    def setUp(self):
        import warnings
        super().setUp()
        warnings.simplefilter("ignore")  # as above
        sweep("theirs")

    def test_sweep(self):
        sweep("ours", self.ray)
        self.assert_same_files("ours", "theirs")

    def test_lost_worker(self):
        with self.assertWarnsRegex(metronome.MetronomeWarning, "1 of 3 points were lost.*Crashed"):
            sweep("ours", Killing(self.ray, 2))
        self.assert_same_files("ours", "theirs")

    def test_tune(self):
        tune("searched")
        tune("ours", self.ray)
        self.assert_same_files("ours", "searched")

    def test_tune_with_lost_worker(self):
        tune("searched")
        with self.assertWarnsRegex(metronome.MetronomeWarning, "1 of .* trials were lost.*Crashed"):
            tune("ours", Killing(self.ray, 3))
        self.assert_same_files("ours", "searched")

    def test_policy(self):
        """A policy that only this process has is sent to the workers."""
        sets = {"variants.budget-1024.scheduler.policy": "of_this_test"}

        @metronome.register
        class OfThisTest(metronome.Policy):
            name = "of_this_test"
            keys = ("max_num_batched_tokens",)

            def fill(self, books):
                books.plan_decodes()
                while (left := self.max_num_batched_tokens - books.planned_tokens) > 0:
                    request = next((r for r in books.unfinished_prefills()
                                    if r.state == "prefill"), None)
                    if request is not None:
                        if not books.plan_prefill(request, min(left, request.uncomputed_tokens)):
                            return
                    elif (request := books.next_waiting()) is None or not books.admit(
                            request, min(left, books.uncomputed_tokens(request))):
                        return

        metronome.sweep("quickstart", OVER, {**SMALL, **sets}, variants="budget-1024", out="one",
                        jobs=1)
        metronome.sweep("quickstart", OVER, {**SMALL, **sets}, variants="budget-1024", out="other",
                        executor=self.ray)
        self.assert_same_files("one", "other")


@unittest.skipUnless(has("distributed"), "needs Dask: tools/check_python --clusters")
class Dask(common.InFolder):
    def test_sweep(self):
        import warnings

        from distributed import Client, LocalCluster
        warnings.simplefilter("ignore")  # Dask's own
        sweep("theirs")
        with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, \
                Client(cluster) as client:
            sweep("ours", client)
            tune("found", client)
        self.assert_same_files("ours", "theirs")
        tune("searched")
        self.assert_same_files("found", "searched")


class Pools(common.InFolder):
    """Those of the standard library."""

    def test_tune(self):
        tune("searched")
        for name, pool in (("processes", concurrent.futures.ProcessPoolExecutor(2)),
                           ("threads", concurrent.futures.ThreadPoolExecutor(2))):
            with pool:
                tune(name, pool)
            self.assert_same_files(name, "searched")

    def test_cost_of_tokens(self):
        """Trials of settings with prices have other lengths, which workers know."""
        scenario = {
            "model": "llama-3.2-3b", "hardware": "h100-sxm",
            "scheduler": {"policy": "token_budget", "max_num_batched_tokens": 1024},
            "workload": {"arrivals": {"process": "poisson", "rate": 8}, "num_requests": 100,
                         "prompt_tokens": {"value": 1000}, "output_tokens": {"value": 80}},
            "slo": {"ttft_ms": 1000, "itl_ms": 60},
            "variants": [{"name": "cheap", "price_per_gpu_hour": 2},
                         {"name": "dear", "hardware": "h200", "price_per_gpu_hour": 3}]}

        def found(out, executor=None):
            return metronome.tune(scenario, seeds=1, minimise="token_cost", out=out, jobs=1,
                                  executor=executor)

        found("searched")
        with concurrent.futures.ProcessPoolExecutor(2) as pool:
            found("ours", pool)
        self.assert_same_files("ours", "searched")

    def test_interrupted_tune(self):
        """Ctrl-C keeps the trials so far; the next call ends as if nothing had happened."""
        tune("searched")
        code = (f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})\n"
                "import concurrent.futures, threading, time, os, signal, test_clusters\n"
                # A shell's background command ignores it.
                "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
                "class Pool(concurrent.futures.ProcessPoolExecutor):\n"
                "    count = 0\n"
                "    def submit(self, *call):\n"
                "        Pool.count += 1\n"
                "        if Pool.count == 4: os.kill(os.getpid(), signal.SIGINT)\n"
                "        return super().submit(*call)\n"
                "with Pool(2, initializer=signal.signal, initargs=(signal.SIGINT,\n"
                "          signal.SIG_IGN)) as pool:\n"
                "    test_clusters.tune('ours', pool)\n")
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                              check=False)
        self.assertIn("KeyboardInterrupt", done.stderr)
        trials = pathlib.Path("ours/trials.jsonl").read_text().count("\n")
        whole = pathlib.Path("searched/trials.jsonl").read_text().count("\n")
        self.assertTrue(0 < trials < whole, (trials, whole))
        tune("ours")
        ours, theirs = (json.loads(pathlib.Path(name, "tune.json").read_text())
                        for name in ("ours", "searched"))
        self.assertGreaterEqual(ours.pop("num_trials_reused"), trials)
        for key in ("num_trials_reused", "num_requests_simulated"):
            ours.pop(key, None)
            theirs.pop(key)
        self.assertEqual(ours, theirs)


if __name__ == "__main__":
    unittest.main()
