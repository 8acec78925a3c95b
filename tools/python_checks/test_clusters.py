# SPDX-License-Identifier: Apache-2.0
"""Sweeps on clusters of this machine: the same bytes, also where a worker dies."""

import importlib.util
import os
import unittest

import common
import metronome

OVER = {"workload.arrivals.rate": [2, 4, 8]}
SMALL = {"workload.num_requests": 60}


def sweep(out, executor=None):
    return metronome.sweep("quickstart", OVER, SMALL, variants="chunked-512", out=out, jobs=1,
                           executor=executor)


def has(package):
    return importlib.util.find_spec(package) is not None


@unittest.skipUnless(has("ray"), "needs Ray: tools/check_python --clusters")
class Ray(common.InFolder):
    def setUp(self):
        super().setUp()
        import logging
        import warnings

        import ray
        warnings.simplefilter("ignore")  # Ray's own
        ray.init(num_cpus=2, include_dashboard=False, logging_level=logging.ERROR,
                 log_to_driver=False)
        self.addCleanup(ray.shutdown)
        self.ray = ray
        sweep("theirs")

    def test_sweep(self):
        sweep("ours", self.ray)
        self.assert_same_files("ours", "theirs")

    def test_lost_worker(self):
        ray = self.ray
        calls = []

        class Killing:
            """Ray, whose second worker dies with its task."""

            wait, get, cancel = ray.wait, ray.get, ray.cancel

            @staticmethod
            def remote(**options):
                def wrap(function):
                    def die(code):
                        os._exit(code)

                    works = ray.remote(**options)(function)
                    dies = ray.remote(**options)(die)

                    class Task:
                        @staticmethod
                        def remote(*call):
                            calls.append(call)
                            return dies.remote(1) if len(calls) == 2 else works.remote(*call)

                    return Task
                return wrap

        with self.assertWarnsRegex(metronome.MetronomeWarning, "1 of 3 points were lost"):
            sweep("ours", Killing)
        self.assert_same_files("ours", "theirs")


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
        self.assert_same_files("ours", "theirs")


if __name__ == "__main__":
    unittest.main()
