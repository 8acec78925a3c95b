# SPDX-License-Identifier: Apache-2.0
"""Qwen3-8B on an H100 under vLLM 0.30: points of silybench-data (tgarg01, CC BY 4.0)."""

import csv

from points import Point, closed_loop, lengths

FILE = "data/measured/h100_qwen3-8b/points.csv"
# Our name of a figure in result.json, and theirs.
FIGURES = {"p95_tpot_ms": "tpot95", "p50_itl_ms": "itl50", "request_throughput": "rps",
           "p95_ttft_ms": "ttft95"}


def reuses_prompts(row):
    """Whether prompts were cached from the run before: more FLOP/s are implied than the peak."""
    clients = int(row["conc"])
    return row["workload"] == "chat" or (row["workload"] == "prefill" and 4 <= clients <= 32)


def read(shared):
    """The settings are those of github.com/tgarg01/silybench-bench (gpubench/config.py), else the
    defaults of `vllm serve` on an H100, which the scenario has as well."""
    base = {"model": "qwen3-8b", "hardware": "h100-sxm",
            "scheduler": {"policy": "vllm", "version": "0.30"},
            "engine": {"max_model_len": 16384},
            "client": {"preset": "bench"}, "cost_model": {"gpu_memory_utilization": 0.9}}
    points = []
    for row in csv.DictReader(open(shared / FILE, newline="")):
        if reuses_prompts(row):
            continue
        clients, prompt, output = int(row["conc"]), int(row["in"]), int(row["out"])
        points.append(Point(
            source="silybench", name=f"{row['workload']} {prompt}/{output}, {clients} clients",
            gpu="h100-sxm", model="qwen3-8b", precision="plain", engine="vllm 0.30", degree=1,
            has_experts=False,
            measured={ours: float(row[theirs]) for ours, theirs in FIGURES.items()},
            base=base,
            scenario={"workload": closed_loop(clients, lengths(prompt, 1), lengths(output, 1),
                                              int(row["n"]))},
            tables={"system": "h100_sxm", "engine": "vllm"}))
    return points
