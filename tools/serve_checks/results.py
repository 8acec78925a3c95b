# SPDX-License-Identifier: Apache-2.0
"""What Metronome makes of the result that a load generator wrote about its server."""

import json
import subprocess

SCENARIO = """model: llama-3.2-3b
hardware: h200
engine: {max_num_seqs: 128, max_model_len: 32768}
kv_cache: {num_blocks: 16384}
scheduler: {policy: token_budget, max_num_batched_tokens: 1024}
workload: {trace: lengths.csv}
"""


def run(program, *arguments):
    """(exit code, standard output, standard error)"""
    done = subprocess.run([str(part) for part in (program, *arguments)], text=True,
                          capture_output=True, check=False)
    return done.returncode, done.stdout, done.stderr.strip()


def check_read_back(program, faults, scratch, result, lengths):
    """`validate` and `report` take `result`. `lengths` are the prompt and output tokens of its
    requests as the client has them, in the order of their starts; `validate` compares them."""
    folder = scratch / "read_back"
    folder.mkdir()
    (folder / "lengths.csv").write_text("arrival_s,prompt_tokens,output_tokens\n" + "".join(
        f"{0.05 * i:.2f},{prompt},{output}\n" for i, (prompt, output) in enumerate(lengths)))
    (folder / "scenario.yaml").write_text(SCENARIO)
    code, output, error = run(program, "validate", folder / "scenario.yaml", "--measured", result,
                              "--json")
    if faults.equal((code, error), (0, ""), "validate: exit code and standard error"):
        found = json.loads(output)
        faults.equal((found["failed"], found["same_requests"]), (0, True),
                     "validate: requests that failed, and whether the requests are the same")
        names = {figure["metric"] for figure in found["latencies"]}
        faults.expect({"ttft", "tpot", "e2el"} <= names, f"validate: figures of {sorted(names)}")
    page = folder / "report.html"
    code, output, error = run(program, "report", result, "--out", page)
    faults.equal((code, error), (0, ""), "report: exit code and standard error")
    faults.expect(page.exists() and page.stat().st_size > 10000, "report: the page is missing")
