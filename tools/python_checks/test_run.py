# SPDX-License-Identifier: Apache-2.0
"""`run`: the same bytes as the command, scenarios in each form, errors, Ctrl-C, threads."""

import _thread
import json
import pathlib
import threading
import time
import unittest
import warnings

import common
import metronome

DIGESTS = {"unchunked": "2da5c6bc09183575", "chunked-512": "74f8fbe7ee2712be",
           "budget-1024": "63b048eff3a64434"}


class Bytes(common.InFolder):
    """Results are the files of `metronome run`."""

    def test_quickstart(self):
        results = metronome.run("quickstart")
        self.assertEqual({result.name: result.digest for result in results}, DIGESTS)
        results.save("ours")
        common.command("run", "quickstart", "--out", "theirs", "--quiet", cwd=self.folder)
        self.assert_same_files("ours", "theirs")
        results.save("ours")  # replaces it
        self.assert_same_files("ours", "theirs")

    def test_settings(self):
        path = common.ROOT / "scenarios/policies.yaml"
        sets = {"workload.arrivals.rate": 3.5, "results.report": False, "workload.num_requests": 60,
                "variants.static.scheduler.batch_wait_ms": 200}
        results = metronome.run(path, sets, variants=["static", "token_budget"], seed=11)
        results.save("ours")
        options = [word for key, value in sets.items()
                   for word in ("--set", f"{key}={json.dumps(value)}")]
        common.command("run", path, "--variant", "static", "--variant", "token_budget", "--seed",
                       11, *options, "--out", "theirs", "--quiet", cwd=self.folder)
        self.assert_same_files("ours", "theirs")

    def test_command_of_a_server(self):
        server = "vllm serve Qwen/Qwen3-8B --max-num-batched-tokens 8192 --port 80"
        results = metronome.run(server, gpu="h100", rate=4, chat=True, requests=50)
        self.assertGreater(len(results.notes), 0)
        results.save("ours")
        common.command("run", "--command", server, "--gpu", "h100", "--rate", 4, "--chat",
                       "--requests", 50, "--quiet", cwd=self.folder)
        theirs = [path for path in pathlib.Path("results").iterdir() if path.is_dir()]
        self.assertEqual(len(theirs), 1)
        self.assert_same_files("ours", theirs[0])
        again = metronome.run(metronome.scenario(server, gpu="h100", rate=4, chat=True,
                                                 requests=50))
        self.assertEqual(again.digest, results.digest)

    def test_computed(self):
        """The CPU backend: dates and times differ, tokens do not."""
        sets = {"workload.num_requests": 6}
        ours = metronome.run("quickstart", sets, variants="chunked-512", backend="cpu")
        common.command("run", "quickstart", "--backend=cpu", "--variant", "chunked-512", "--set",
                       "workload.num_requests=6", "--out", "theirs", "--quiet", cwd=self.folder)
        theirs = json.loads(pathlib.Path("theirs/chunked-512/result.json").read_text())
        self.assertEqual(ours.output_digest, theirs["output_digest"])
        self.assertEqual(ours.summary["backend"], "cpu")


class Forms(common.InFolder):
    """One scenario in each form."""

    def test_text_and_mapping(self):
        text = self.quickstart.read_text()
        from_text = metronome.run(text)
        self.assertEqual({result.name: result.digest for result in from_text}, DIGESTS)
        chunked = from_text["chunked-512"]
        from_mapping = metronome.run(chunked.config)
        self.assertEqual(from_mapping.digest, chunked.digest)
        self.assertEqual(from_mapping.config, chunked.config)
        self.assertEqual(metronome.run(metronome.Scenario(text))[0].digest, from_text[0].digest)

    def test_paths_in_a_text(self):
        pathlib.Path("trace.csv").write_text(
            "arrived_at,num_prefill_tokens,num_decode_tokens\n0.5,100,5\n1,50,3\n")
        text = "model: llama-3.2-3b\nhardware: h200\nscheduler: {policy: chunked}\n" \
               "workload: {trace: trace.csv}\n"
        requests = metronome.run(text).requests
        self.assertEqual(requests["prompt_tokens"].tolist(), [100, 50])
        pathlib.Path("below").mkdir()
        pathlib.Path("below/mine.yaml").write_text(text.replace("trace.csv", "../trace.csv"))
        self.assertEqual(metronome.run("below/mine.yaml").summary["completed"], 2)

    def test_only(self):
        results = metronome.run("quickstart", {"workload.num_requests": 5})
        self.assertEqual(len(results), 3)
        with self.assertRaisesRegex(ValueError, "several variants.*chunked-512"):
            _ = results.summary
        with self.assertRaisesRegex(KeyError, "no variant 'x'"):
            _ = results["x"]
        self.assertIn("budget-1024", str(results))
        self.assertIn("<pre>", results._repr_html_())
        self.assertTrue(results.report().startswith("<!DOCTYPE html>"))


class Errors(common.InFolder):
    """Bad input is an exception with the command's text and its parts."""

    def error(self, *arguments, **options):
        with self.assertRaises(metronome.ScenarioError) as caught:
            metronome.run(*arguments, **options)
        return caught.exception

    def test_file(self):
        path = self.folder / "bad.yaml"
        path.write_text(self.quickstart.read_text().replace("max_num_seqs: 64", "max_num_seqs: 0"))
        error = self.error(path)
        printed = common.command("run", path, cwd=self.folder, code=2)
        self.assertEqual(f"metronome: error: {error}\n", printed)
        self.assertEqual(error.file, str(path))
        self.assertEqual(error.line, 7)
        self.assertEqual(error.key, "engine.max_num_seqs")
        self.assertIn("1", error.allowed)
        self.assertNotIn("engine", error.problem)

    def test_setting(self):
        error = self.error("quickstart", {"scheduler.polcy": "vllm"})
        self.assertEqual((error.file, error.line, error.key), (None, None, "scheduler.polcy"))
        self.assertIn("did you mean 'policy'", error.problem)
        self.assertEqual(error.allowed, "policy, order")
        self.assertIsInstance(error, metronome.MetronomeError)
        self.assertIsInstance(error, ValueError)

    def test_mapping_has_no_lines(self):
        scenario = dict(metronome.run("quickstart", {"workload.num_requests": 5})[0].config)
        scenario["seed"] = "many"
        error = self.error(scenario)
        self.assertIsNone(error.line)
        self.assertEqual(error.key, "seed")

    def test_arguments(self):
        for arguments, options, text in (
                (("quickstart",), {"variants": "x"}, "variant: .*no variant 'x'"),
                (("quickstart",), {"backend": "gpu"}, "backend: .*allowed: sim"),
                ((), {}, "scenario: is missing"),
                ((7,), {}, "is a int; allowed"),
                (("quickstart", 3), {}, "sets: is no mapping"),
                (("vllm serve Qwen/Qwen3-8B",), {"gpuu": "h100"}, "did you mean 'gpu'"),
                (("vllm serve Qwen/Qwen3-8B",), {"gpu": "h100", "rate": -1}, "rate: -1 is out of"),
        ):
            with self.assertRaisesRegex(metronome.ArgumentError, text):
                metronome.run(*arguments, **options)

    def test_nothing_half_written(self):
        results = metronome.run("quickstart", {"workload.num_requests": 5})
        pathlib.Path("mine").mkdir()
        pathlib.Path("mine/notes.txt").write_text("mine")
        with self.assertRaises(metronome.ScenarioError):
            results.save("mine")
        self.assertEqual(common.contents("mine"), {"notes.txt": b"mine"})

    def test_warning(self):
        with self.assertWarnsRegex(metronome.MetronomeWarning, "never fit"):
            warnings.simplefilter("always")
            results = metronome.run("quickstart", {"engine.max_model_len": 4096,
                                                   "workload.num_requests": 40})
        self.assertGreater(len(results[0].warnings), 0)


LONG = {"workload.num_requests": 2_000_000}


class Threads(common.InFolder):
    """The interpreter is free during a run."""

    def test_interrupt(self):
        timer = threading.Timer(0.5, _thread.interrupt_main)
        timer.start()
        began = time.monotonic()
        with self.assertRaises(KeyboardInterrupt):
            metronome.run("quickstart", LONG)
        self.assertLess(time.monotonic() - began, 30)
        # The next call knows nothing of it.
        self.assertEqual(metronome.run("quickstart")[0].digest, DIGESTS["unchunked"])
        timer = threading.Timer(0.5, _thread.interrupt_main)
        timer.start()
        with self.assertRaises(KeyboardInterrupt):
            metronome.sweep("quickstart", {"seed": [1, 2, 3]}, LONG, out="swept")
        rows = metronome.sweep("quickstart", {"seed": [1, 2, 3]}, {"workload.num_requests": 5},
                               out="swept").rows
        self.assertEqual(len(rows), 9)

    def test_lock(self):
        counts = []
        is_done = threading.Event()

        def count():
            number = 0
            while not is_done.is_set():
                number += 1
                time.sleep(0.001)
            counts.append(number)

        thread = threading.Thread(target=count)
        thread.start()
        began = time.monotonic()
        metronome.run("quickstart", {"workload.num_requests": 60_000})
        seconds = time.monotonic() - began
        is_done.set()
        thread.join()
        # A lock that is held would leave it a handful.
        self.assertGreater(counts[0], 20 * seconds)

    def test_many_threads(self):
        from concurrent.futures import ThreadPoolExecutor
        with ThreadPoolExecutor(4) as pool:
            digests = list(pool.map(lambda _: metronome.run("quickstart")[1].digest, range(8)))
        self.assertEqual(set(digests), {DIGESTS["chunked-512"]})

    def test_progress(self):
        seen = []
        metronome.run("quickstart", progress=lambda *call: seen.append(call))
        last = {name: (done, total) for name, done, total in seen}
        self.assertEqual(last, {name: (400, 400) for name in DIGESTS})

        def fail(*_):
            raise LookupError("mine")

        with self.assertRaisesRegex(LookupError, "mine"):
            metronome.run("quickstart", progress=fail)

    def test_overhead(self):
        """Printed, as it depends on the machine."""
        metronome.run("quickstart")
        scenario = {"model": "llama-3.2-3b", "hardware": "h200",
                    "scheduler": {"policy": "chunked"},
                    "workload": {"num_requests": 1,
                                 "prompt_tokens": {"distribution": "fixed", "value": 10},
                                 "output_tokens": {"distribution": "fixed", "value": 2},
                                 "arrivals": {"process": "poisson", "rate": 1}}}
        costs = []
        for _ in range(50):
            began = time.process_time()
            result = metronome.run(scenario).only
            costs.append(1e3 * (time.process_time() - began) - result.elapsed_ms)
        costs.sort()
        print(f"\na run takes {costs[25]:.1f} ms of CPU beyond its engine (median of 50)")


if __name__ == "__main__":
    unittest.main()
