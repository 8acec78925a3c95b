# SPDX-License-Identifier: Apache-2.0
"""The other functions: the command's JSON and files; its options are their arguments."""

import inspect
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import warnings
from concurrent.futures import ProcessPoolExecutor

import common
import metronome
from metronome import _native

SMALL = {"workload.num_requests": 60}
SMALL_SET = ("--set", "workload.num_requests=60")


class Commands(common.InFolder):
    def test_sweep(self):
        over = {"workload.arrivals.rate": [2, 4.5], "seed": "1:3:1"}
        ours = metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="ours",
                               jobs=2)
        printed = common.command("sweep", "quickstart", "--over", "workload.arrivals.rate=2,4.5",
                                 "--over", "seed=1:3:1", "--variant", "chunked-512", *SMALL_SET,
                                 "--out", "theirs", "--jobs", 1, "--json", cwd=self.folder)
        self.assertEqual(ours.rows, json.loads(printed))
        self.assertEqual(len(ours), 6)
        self.assert_same_files("ours", "theirs")
        frame = metronome.sweep("quickstart", over, SMALL, variants="chunked-512").to_pandas()
        self.assertEqual(frame["seed"].tolist(), [1, 2, 3, 1, 2, 3])
        text = self.quickstart.read_text()
        of_text = metronome.sweep(text, over, SMALL, variants="chunked-512")
        self.assertEqual([row["digest"] for row in of_text.rows],
                         [row["digest"] for row in ours.rows])

    def test_sweep_keeps_steps_of_some_replicas(self):
        for steps_of, word in (([1, 2], "1,2"), ((), "none")):
            ours, theirs = f"ours-{word}", f"theirs-{word}"
            metronome.sweep("quickstart", {"seed": [1]}, {**SMALL, "fleet.replicas": 3},
                            variants="chunked-512", out=ours, steps_of=steps_of)
            common.command("sweep", "quickstart", "--over", "seed=1", *SMALL_SET, "--replicas", 3,
                           "--variant", "chunked-512", "--steps-of", word, "--out", theirs,
                           cwd=self.folder)
            self.assert_same_files(ours, theirs)

    def test_executors(self):
        over = {"workload.arrivals.rate": [2, 4, 8], "seed": [1, 2]}
        metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="theirs", jobs=1)
        spawn = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=spawn) as pool:
            metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="ours", jobs=1,
                            executor=pool)
            self.assert_same_files("ours", "theirs")
            shutil.rmtree(next(path for path in pathlib.Path("ours").iterdir() if path.is_dir()))
            submitted = []

            class Counting:
                @staticmethod
                def submit(*call):
                    submitted.append(call)
                    return pool.submit(*call)

            metronome.sweep(self.quickstart.read_text(), over, SMALL, variants="chunked-512",
                            out="ours", jobs=1, executor=Counting)
            self.assertEqual(len(submitted), 1)
            metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="ours", jobs=1,
                            executor=Counting)
            self.assertEqual(len(submitted), 1)
            self.assert_same_files("ours", "theirs")

    def test_lost_worker(self):
        over = {"workload.arrivals.rate": [2, 4, 8]}
        metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="theirs", jobs=1)
        calls = []

        class Killing:
            """Its second worker dies with its task."""

            @staticmethod
            def submit(*call):
                calls.append(call)
                pool = ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn"))
                self.addCleanup(pool.shutdown)
                return pool.submit(os._exit, 1) if len(calls) == 2 else pool.submit(*call)

        with self.assertWarnsRegex(metronome.MetronomeWarning, "1 of 3 points were lost"):
            metronome.sweep("quickstart", over, SMALL, variants="chunked-512", out="ours", jobs=1,
                            executor=Killing)
        self.assert_same_files("ours", "theirs")

    def test_sweep_refuses_a_point(self):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            swept = metronome.sweep("quickstart", {"engine.max_num_seqs": [0, 8]}, SMALL)
        self.assertEqual(len(swept), 3)
        self.assertIn("1 point is not a valid scenario", str(caught[0].message))

    def test_tune(self):
        arguments = ("tune", "quickstart", "--variant", "chunked-512", "--variant", "budget-1024",
                     "--set", "slo.itl_ms=60", "--seeds", 1, "--set", "slo.ttft_ms=2000")
        printed = common.command(*arguments, "--out", "theirs", "--json", cwd=self.folder)
        found = metronome.tune("quickstart", sets={"slo.itl_ms": 60, "slo.ttft_ms": 2000},
                               variants=["chunked-512", "budget-1024"], seeds=1, out="ours")
        self.assertEqual(found.details, json.loads(printed))
        self.assert_same_files("ours", "theirs")
        self.assertIn("best: ", found.text)
        self.assertEqual(metronome.run(found.best).name, "best")
        with self.assertRaisesRegex(metronome.RunError, "no setting meets the SLO"):
            metronome.tune("quickstart", sets={"slo.itl_ms": 0.5}, seeds=1)

    def test_tune_a_command(self):
        found = metronome.tune("vllm serve Qwen/Qwen3-8B", gpu="h100", rate=4, chat=True, seeds=1,
                               time_limit=3)
        self.assertGreater(len(found.settings), 3)
        self.assertTrue(found.report().startswith("<!DOCTYPE html>"))

    def test_diagnose(self):
        results = metronome.run("quickstart", variants="unchunked")
        ours = metronome.diagnose(results, target_itl=40)
        results.save("saved")
        printed = common.command("diagnose", "saved", "--target-itl", 40, "--json", cwd=self.folder)
        self.assertEqual(ours, json.loads(printed))
        self.assertIsNotNone(ours[0]["what_if"])
        self.assertIsNone(metronome.diagnose("saved", target_itl=40, replay=False)[0]["what_if"])
        with self.assertRaisesRegex(metronome.ArgumentError, "target_itl: 0 is out of range"):
            metronome.diagnose("saved", target_itl=0)

    def test_validate_and_calibrate(self):
        measured = metronome.run("quickstart", SMALL, variants="chunked-512", seed=3)
        measured.save("measured")
        simulated = metronome.run("quickstart", SMALL, variants="chunked-512", seed=3)
        answer = metronome.validate("measured/chunked-512", simulated)
        self.assertNotIn("first_difference", answer["decisions"])
        self.assertEqual(answer["mean_abs_error"], 0)
        other = metronome.run("quickstart", SMALL, variants="unchunked", seed=3)
        with self.assertRaisesRegex(metronome.RunError, "decisions differ"):
            metronome.validate(other, simulated, same_decisions=True)
        fitted = metronome.calibrate(measured)
        common.command("calibrate", "--from", "measured", "--out", "theirs.json", cwd=self.folder)
        self.assertEqual(fitted.model["terms"] if "terms" in fitted.model else None,
                         json.loads(pathlib.Path("theirs.json").read_text()).get("terms"))
        fitted.save("ours.json")
        warnings.simplefilter("ignore")  # steps outside of what was measured
        again = metronome.run("quickstart", {**SMALL, "cost_model.file": "ours.json"},
                              variants="chunked-512", seed=3)
        self.assertEqual(again.summary["completed"], 60)

    def test_report(self):
        results = metronome.run("quickstart", SMALL)
        results.save("saved")
        page = metronome.report(["saved", results[0]], "page.html")
        self.assertEqual(page, pathlib.Path("page.html").read_text())
        common.command("report", "saved", "--out", "theirs.html", cwd=self.folder)
        self.assertEqual(metronome.report("saved"), pathlib.Path("theirs.html").read_text())

    def test_scenario(self):
        composed = metronome.scenario("vllm serve Qwen/Qwen3-8B", gpu="h100", rate=4, chat=True)
        printed = common.command("scenario", "--command", "vllm serve Qwen/Qwen3-8B", "--gpu",
                                 "h100", "--rate", 4, "--chat", cwd=self.folder)
        self.assertEqual(composed.yaml, printed)
        with self.assertRaisesRegex(metronome.ArgumentError, "gpu"):
            metronome.scenario("vllm serve Qwen/Qwen3-8B")

    def test_streams_stay_clean(self):
        script = "import metronome; metronome.sweep('quickstart', {'seed': [1]}, " \
                 "{'workload.num_requests': 5})"
        done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True,
                              check=True)
        self.assertEqual((done.stdout, done.stderr), ("", ""))


class Logs(common.InFolder):
    """Diagnoses of a log: the same answers as the command's."""

    LOG = common.ROOT / "tests/expected/logs/vllm.log"

    def test_files(self):
        ours = metronome.diagnose(self.LOG, target_itl=100, save="ours", html="ours.html")
        pathlib.Path("theirs").mkdir()
        theirs = common.command("diagnose", self.LOG, "--target-itl", "100", "--save", "ours",
                                "--json", cwd="theirs")
        self.assertEqual(ours, json.loads(theirs))
        self.assert_same_files("ours", "theirs/ours")
        self.assertIn("<html", pathlib.Path("ours.html").read_text())

    def test_requests(self):
        """The requests of a log may be a client's result, which is no scenario without a file."""
        pathlib.Path("bench.json").write_text("{}")
        error = common.command("diagnose", self.LOG, "--requests", "bench.json", cwd=self.folder,
                               code=2)
        with self.assertRaises(metronome.MetronomeError) as raised:
            metronome.diagnose(self.LOG, requests="bench.json")
        self.assertEqual(f"metronome: error: {raised.exception}\n", error)


class Words(common.InFolder):
    """What people read: lists, answers in words, and errors that say what is allowed."""

    def test_catalogue(self):
        for words in (["models"], ["policies", "vllm"], ["keys", "slo"]):
            self.assertEqual(metronome.catalogue(*words),
                             common.command("list", *words, cwd=self.folder))
        with self.assertRaisesRegex(metronome.ArgumentError, "did you mean 'models'"):
            metronome.catalogue("model")

    def test_diagnosis(self):
        results = metronome.run("quickstart", SMALL, variants="unchunked")
        results.save("saved")
        found = metronome.diagnose(results, target_itl=40)
        self.assertEqual(str(found), common.command(
            "diagnose", "saved/unchunked", "--target-itl", "40", cwd=self.folder))
        self.assertEqual(repr(found), "<Diagnosis of unchunked>")

    def test_no_paths_of_temporary_folders(self):
        command = {"scenario": "vllm serve Qwen/Qwen3-8B", "gpu": "h100", "rate": 4, "chat": True,
                   "requests": 100}
        over = {"scheduler.max_num_batched_tokens": [512, 2048]}
        for answer in (metronome.sweep(over=over, **command),
                       metronome.tune(over=over, seeds=1, **command),
                       metronome.diagnose(run=command.pop("scenario"), **command)):
            self.assertNotIn(tempfile.gettempdir(), str(answer))
            self.assertGreater(len(str(answer)), 300)

    def test_errors(self):
        results = metronome.run("quickstart", SMALL)
        chunked = results["chunked-512"]
        for call, kind, text in (
                (lambda: chunked.summary["p99_itl"], KeyError, "did you mean 'p99_itl_ms'"),
                (lambda: chunked.gaps["gap_ms"], KeyError, "did you mean 'gap_ns'"),
                (lambda: metronome.run("vllm serve Qwen/Qwen3-8B"), metronome.ArgumentError,
                 "gpu: is missing"),
                (lambda: metronome.validate(results, results), metronome.ArgumentError,
                 "several variants; allowed: results.NAME. with one of unchunked"),
                (lambda: metronome.sweep("quickstart", {"seed": [1]}, executor=4),
                 metronome.ArgumentError, "executor: is a int; allowed: an executor of"),
                (lambda: metronome.tune("quickstart", executor=4), metronome.ArgumentError,
                 "executor: is a int; allowed: an executor of")):
            with self.assertRaisesRegex(kind, text):
                call()

    def test_class_for_its_name(self):
        @metronome.register
        class Other(metronome.Policy):
            name = "named_by_class"

            def fill(self, books):
                books.plan_decodes()
                if (request := books.next_waiting()) is not None:
                    books.admit(request, books.uncomputed_tokens(request))

        sets = {**SMALL, "variants.unchunked.scheduler": {"policy": Other}}
        one = metronome.run("quickstart", sets, variants="unchunked")
        self.assertEqual(one.config["scheduler"]["policy"], "named_by_class")


class Options(common.InFolder):
    """An option of a command is an argument of its function, or is left out here with a reason."""

    LEFT_OUT = {
        "help": "help()", "json": "the answer is that", "quiet": "nothing is printed",
        "slurm": "a script for a cluster", "points-per-task": "of slurm", "only": "of slurm",
        "merge": "of slurm", "expect": "of slurm", "dry-run": "a list for people",
        "command": "the first argument", "from": "the first argument",
    }
    RENAMED = {"set": "sets", "variant": "variants", "run": "run_number", "no-replay": "replay",
               "import": "folder", "source": "source_text", "measured": "measured"}

    def test_all(self):
        self.assertEqual(sorted(_native.commands()),
                         sorted(name for name in (*metronome.__all__, "list")
                                if name in ("sweep", "tune", "diagnose", "validate", "calibrate",
                                            "report", "list")))
        described = set(metronome.Searched.__annotations__)
        for name in set(_native.commands()) - {"list"}:
            text = common.command(name, "--help", cwd=self.folder)
            options = re.findall(r"^  (?:-\w \[ )?--([a-z-]+)", text, re.MULTILINE)
            self.assertGreater(len(options), 1)
            known = set(inspect.signature(getattr(metronome, name)).parameters)
            if "imported" in known:
                known |= {"system", "engine", "quantization", "kv_dtype", "experts_kernel",
                          "router_dtype", "expert_parallel", "source_text"}
            for option in options:
                arguments = {self.RENAMED.get(option), option.replace("-", "_")}
                self.assertTrue(option in self.LEFT_OUT or arguments & (known | described),
                                f"{name} --{option} is no argument")


class Program(common.InFolder):
    def test_module_is_the_command(self):
        try:
            import importlib.metadata
            importlib.metadata.files("metronome")
        except importlib.metadata.PackageNotFoundError:
            self.skipTest("the package is not installed")
        done = subprocess.run([sys.executable, "-m", "metronome", "--version"],
                              capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout, f"metronome {metronome.__version__}\n")


if __name__ == "__main__":
    unittest.main()
