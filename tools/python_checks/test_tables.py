# SPDX-License-Identifier: Apache-2.0
"""Tables are the lines of the files, and their sums are the figures."""

import importlib.util
import json
import pathlib
import unittest

import common
import metronome
import numpy

# With preemptions, prefix caching, drafts: columns that the quickstart lacks.
CROWDED = {"kv_cache.num_blocks": 1600, "workload.num_requests": 120}


def lines(path):
    return [json.loads(line) for line in pathlib.Path(path).read_text().splitlines()]


class Tables(common.InFolder):
    def setUp(self):
        super().setUp()
        self.results = metronome.run("quickstart", CROWDED)
        self.results.save("saved")

    def test_requests_and_steps(self):
        for result in self.results:
            for name, table in (("requests", result.requests), ("steps", result.steps)):
                rows = lines(f"saved/{result.name}/{name}.jsonl")
                self.assertEqual(table.num_rows, len(rows))
                for key in table:
                    if key not in rows[0]:
                        self.assertEqual(key, "extrapolated")
                        continue
                    column = table[key].tolist()
                    for value, row in zip(column, rows):
                        if row[key] is None:
                            self.assertTrue(value == -1 or numpy.isnan(value), key)
                        else:
                            self.assertEqual(value, row[key], key)

    def test_summary(self):
        for result in self.results:
            written = json.loads(pathlib.Path(f"saved/{result.name}/result.json").read_text())
            for key, value in result.summary.items():
                self.assertEqual(value, written[key], key)
            requests = result.requests
            done = numpy.isin(requests["end"], ["length", "stop"])
            self.assertEqual(int(done.sum()), result.summary["completed"])
            self.assertAlmostEqual(numpy.percentile(requests["ttft_ms"][done], 99),
                                   result.summary["p99_ttft_ms"])

    def test_gaps(self):
        for result in self.results:
            gaps, steps, requests = result.gaps, result.steps, result.requests
            parts = sum(gaps[name] for name in ("decode_ns", "draft_ns", "encode_ns", "prefill_ns",
                                                "host_ns", "waiting_ns", "preemption_ns"))
            self.assertTrue((parts == gaps["gap_ns"]).all())
            finished = steps["finished_ns"]
            self.assertTrue((finished[gaps["step_after"]] - finished[gaps["step_before"]]
                             == gaps["gap_ns"]).all())
            counts = numpy.bincount(gaps["request"], minlength=requests.num_rows)
            tokens = numpy.maximum(requests["output_tokens"] - 1, 0)
            self.assertTrue((counts == tokens).all())
            self.assertAlmostEqual(numpy.percentile(gaps["gap_ns"], 99) / 1e6,
                                   result.summary["p99_itl_ms"])
            self.assertEqual(gaps["gap_ns"].max() / 1e6, result.summary["longest_stall_ms"])
            longest = result.details["longest_stall"]
            row = int(numpy.argmax(gaps["gap_ns"]))
            self.assertEqual(gaps["cause"][row], longest["cause"])
            self.assertEqual(gaps["preemption_ns"].any(), bool(result.preemptions.num_rows))
            of_prefill = numpy.isin(gaps["cause"], ["prefill", "encoding"])
            self.assertTrue(((gaps["chunk_request"] >= 0) == of_prefill).all())

    def test_prefills_and_preemptions(self):
        num_preempted = 0
        for result in self.results:
            prefills, steps = result.prefills, result.steps
            sums = numpy.bincount(prefills["step"], prefills["tokens"], steps.num_rows)
            self.assertTrue((sums == steps["prefill_tokens"]).all())
            lost = numpy.bincount(result.preemptions["request"],
                                  minlength=result.requests.num_rows)
            self.assertTrue((lost == result.requests["preemptions"]).all())
            num_preempted += result.preemptions.num_rows
        self.assertGreater(num_preempted, 0)

    def test_replicas(self):
        result = metronome.run("quickstart", {**CROWDED, "fleet.replicas": 3},
                               variants="chunked-512").only
        steps, gaps, requests = result.steps, result.gaps, result.requests
        self.assertEqual(set(requests["replica"]), {0, 1, 2})
        self.assertTrue((numpy.diff(steps["replica"]) >= 0).all())
        self.assertTrue((steps["replica"][gaps["step_after"]]
                         == requests["replica"][gaps["request"]]).all())
        for name in ("decode_ns", "prefill_ns", "host_ns"):
            self.assertTrue((gaps[name] >= 0).all(), name)

    def test_drafts(self):
        scenario = dict(self.results["budget-1024"].config)
        scenario["scheduler"] = {"policy": "vllm"}
        scenario["kv_cache"] = {}
        scenario["speculative"] = {"method": "ngram", "num_speculative_tokens": 3,
                                   "acceptance": {"rate": [0.7]}}
        result = metronome.run(scenario).only
        steps, gaps, requests = result.steps, result.gaps, result.requests
        self.assertGreater(steps["accepted_tokens"].sum(), 0)
        self.assertEqual(int(steps["emitted"].sum()), int(requests["output_tokens"].sum()))
        self.assertTrue(gaps["draft_ns"].any())
        parts = sum(gaps[name] for name in gaps if name.endswith("_ns")
                    and name not in ("gap_ns", "began_ns"))
        self.assertTrue((parts == gaps["gap_ns"]).all())
        self.assertAlmostEqual(numpy.percentile(gaps["gap_ns"], 99) / 1e6,
                               result.summary["p99_itl_ms"])

    @unittest.skipUnless(importlib.util.find_spec("pyarrow"), "needs pyarrow")
    def test_arrow(self):
        import pyarrow
        for table in (self.results[0].requests, self.results[0].gaps, self.results[0].steps):
            arrow = pyarrow.table(table)
            arrow.validate(full=True)
            self.assertEqual(arrow.column_names, list(table))
            self.assertEqual(arrow.num_rows, table.num_rows)
            for name in table:
                ours, theirs = table[name].tolist(), arrow[name].to_pylist()
                same = [a == b or a != a and b != b for a, b in zip(ours, theirs)]
                self.assertTrue(all(same), name)
        table = self.results[0].gaps
        parts = pyarrow.table(table)
        del table
        self.results = None
        self.assertGreater(sum(parts["gap_ns"].to_pylist()), 0)
        # A stream that nobody reads gives its columns back.
        capsule = metronome.run("quickstart", CROWDED)[0].steps.__arrow_c_stream__()
        del capsule

    def test_pandas(self):
        result = self.results[0]
        frame = result.requests.to_pandas()
        self.assertEqual(list(frame.columns), list(result.requests))
        self.assertEqual(len(frame), 120)
        figures = self.results.to_pandas()
        self.assertEqual(list(figures.index), self.results.names)
        self.assertEqual(figures.loc["unchunked", "digest"], result.digest)
        self.assertIn("rows of", repr(result.gaps))
        self.assertIn("<table", result.requests._repr_html_())
