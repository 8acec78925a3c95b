# SPDX-License-Identifier: Apache-2.0
"""OPT-13B on an A100 under vLLM of early 2024: requests of DistServe's evaluation (LLMServe/
DistServe at 20a1633, Apache-2.0). Its runs on separate GPUs for prefill and decode are left out.

The server's settings are those of its evaluation/2-benchmark-serving/2-start-api-server.py. Engine
and worker were processes of Ray, which hand over every request in every step. The host's times are
fitted to the run at 1 a second alone: of a grid, they have the least sum of mean errors of TPOT and
TTFT over its requests."""

import json
import statistics

from points import Point

FOLDER = "data/measured/distserve_opt-13b"
HOST = {"host_gap_us": 5500, "host_gap_us_per_request": 700}


def read(shared, scratch):
    """`scratch` gets the traces of the runs."""
    points = []
    for path in sorted((shared / FOLDER).glob("vllm-*.jsonl")):
        rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
        rows.sort(key=lambda request: request["issue_time"])
        first = rows[0]["issue_time"]
        trace = scratch / f"{path.stem}.csv"
        lines = ["arrived_at,num_prefill_tokens,num_decode_tokens"]
        lines += [f"{request['issue_time'] - first:.6f},{request['prompt_len']},"
                  f"{request['output_len']}" for request in rows]
        trace.write_text("\n".join(lines) + "\n")
        rate = path.stem.split("-")[-1]
        points.append(Point(
            source="distserve", name=f"{len(rows)} requests at {rate} a second", gpu="a100-80gb",
            model="opt-13b", precision="plain", engine="vllm of early 2024", degree=1,
            has_experts=False,
            measured={
                "mean_tpot_ms": statistics.mean(request["tpot_ms"] for request in rows
                                                if request["output_len"] > 1),
                "mean_ttft_ms": statistics.mean(request["ttft_ms"] for request in rows)},
            base={"model": "opt-13b", "hardware": "a100-80gb",
                  "scheduler": {"policy": "vllm_prefill_first", "max_num_batched_tokens": 16384},
                  "engine": {"max_num_seqs": 1024, "max_model_len": 2048},
                  "client": {"preset": "ray"},
                  "cost_model": {**HOST, "gpu_memory_utilization": 0.95}},
            scenario={"workload": {"trace": {"format": "vidur", "file": str(trace)}}}))
    return points
