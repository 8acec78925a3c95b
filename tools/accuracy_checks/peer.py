# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's estimator on our points: aiconfigurator (Apache-2.0), its `cli estimate`.

It composes the same operator tables by formulas of a steady state; nothing is simulated. Two times
it gets the formats of weights: as rows name them, which is how its adapter of InferenceX's records
asks (sdk/config_adapter/inferencex.py), and as they were served, which is what our simulation
counts with."""

import collections
import json
import shutil
import statistics
import subprocess

import page
from parity_checks import venv as packages
from points import ROOT
from rows import number

BY_ROW, AS_SERVED = "aiconfigurator", "aiconfigurator, as served"
ALL = [*page.COST_MODELS, BY_ROW, AS_SERVED]
VENV = ROOT / "build/accuracy_peer"
PACKAGES = "accuracy_peer"  # in tools/requirements
ESTIMATES = ROOT / "tools/accuracy_checks/peer_estimates.py"

# Our model -> the package's checkpoint. Rows tell the formats of most.
CHECKPOINTS = {
    "llama-3.1-70b": "meta-llama/Meta-Llama-3.1-70B",
    "llama-3.1-8b": "meta-llama/Meta-Llama-3.1-8B",
    "qwen3-32b": "Qwen/Qwen3-32B",
    "qwen3-235b-a22b": "Qwen/Qwen3-235B-A22B-FP8",
    "gpt-oss-120b": "openai/gpt-oss-120b",
    "minimax-m2.5": "MiniMaxAI/MiniMax-M2.5",
    "deepseek-r1": "deepseek-ai/DeepSeek-V3",
    "kimi-k2.5": "moonshotai/Kimi-K2.5",
    "qwen3.5-397b-a17b": "Qwen/Qwen3.5-397B-A17B",
}
# The checkpoint that was served, where it is another one.
SERVED = {
    ("minimax-m2.5", "nvfp4"): "nvidia/MiniMax-M2.5-NVFP4",
    ("deepseek-r1", "fp8_block"): "deepseek-ai/DeepSeek-R1",
    ("deepseek-r1", "nvfp4"): "nvidia/DeepSeek-V3.1-NVFP4",
    ("kimi-k2.5", "nvfp4"): "nvidia/Kimi-K2.5-NVFP4",
    ("qwen3.5-397b-a17b", "nvfp4"): "nvidia/Qwen3.5-397B-A17B-NVFP4",
}
# Formats that a server made of a checkpoint, which does not tell them.
CONVERTED = {
    ("llama-3.1-70b", "fp8"): {"gemm_quant_mode": "fp8"},
    ("llama-3.1-70b", "nvfp4"): {"gemm_quant_mode": "nvfp4"},
    ("llama-3.1-8b", "fp8"): {"gemm_quant_mode": "fp8"},
    ("llama-3.1-8b", "fp8_block"): {"gemm_quant_mode": "fp8_block"},
    ("qwen3-32b", "fp8"): {"gemm_quant_mode": "fp8"},
    ("qwen3-32b", "nvfp4"): {"gemm_quant_mode": "nvfp4"},
    ("qwen3.5-397b-a17b", "fp8_block"): {"gemm_quant_mode": "fp8_block",
                                         "moe_quant_mode": "fp8_block"},
}
KV_DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}


def python():
    """The Python of a virtual environment with the estimator, which is made if it is not there.
    Raises OSError or CalledProcessError."""
    done = VENV / "installed"
    wanted = (packages.REQUIREMENTS / f"{PACKAGES}.txt").read_text()
    if not done.exists() or done.read_text() != wanted:
        shutil.rmtree(VENV, ignore_errors=True)
        for command in packages.install_commands(VENV, PACKAGES):
            subprocess.run(command, check=True)
        done.write_text(wanted)
    return VENV / "bin/python"


def formats_by_row(point):
    """(checkpoint, formats) as rows have them; gpt-oss has its own."""
    columns = ["gemm_quant_mode"] + ["moe_quant_mode"] * point.has_experts
    formats = {} if point.model == "gpt-oss-120b" else \
        {name: point.row[name] for name in columns if point.row[name]}
    return CHECKPOINTS[point.model], formats


def formats_as_served(point):
    key = (point.model, point.precision)
    return SERVED.get(key, CHECKPOINTS[point.model]), CONVERTED.get(key, {})


FORMATS = {BY_ROW: formats_by_row, AS_SERVED: formats_as_served}


def arguments_of(point, name):
    """Of the package's `cli_estimate`."""
    checkpoint, formats = FORMATS[name](point)
    system, engine, experts = (point.tables[key] for key in ("system", "engine", "ep"))
    arguments = {"model_path": checkpoint, "system_name": system, "backend_name": engine,
                 "isl": number(point.row["isl"]), "osl": number(point.row["osl"]),
                 "batch_size": point.scenario["workload"]["arrivals"]["concurrency"],
                 "tp_size": point.degree, **formats}
    if point.model == "gpt-oss-120b" and (system, engine) == ("b200_sxm", "trtllm"):
        arguments["moe_quant_mode"] = "w4a8_mxfp4_mxfp8"  # as its sweep sets it (sdk/task_v2.py)
    if point.has_experts:
        arguments |= {"moe_tp_size": point.degree // experts, "moe_ep_size": experts}
    kv_dtype = point.base.get("kv_cache", {}).get("dtype", "auto")
    if kv_dtype != "auto":
        arguments["kvcache_quant_mode"] = KV_DTYPES[kv_dtype]
    return arguments


def estimate(points):
    """Adds the estimator's times, or why it has none, to what is simulated of the points."""
    asked = [(arguments_of(point, name), point, name) for point in points for name in FORMATS]
    # Neighbours share tables, which the estimator keeps.
    asked.sort(key=lambda item: (item[0]["system_name"], item[0]["backend_name"]))
    lines = "".join(json.dumps(item[0]) + "\n" for item in asked)
    done = subprocess.run([python(), ESTIMATES], input=lines, stdout=subprocess.PIPE, text=True,
                          check=True)
    for (_, point, name), line in zip(asked, done.stdout.splitlines(), strict=True):
        point.simulated[name] = json.loads(line)


# ---- its section of the page ----

INTRO = """## Beside NVIDIA's estimator

aiconfigurator 0.12.0 (NVIDIA, Apache-2.0) is an analytic estimator of a steady state, not a
simulation. It sums times of operators to a step with prompts and a step without. TTFT and TPOT
follow from the number of such steps. `operators` is made from tables of the same package. Its
source says that constants for vLLM were calibrated on its corpus of serving points: the host's
time a layer and the wait for a first token (`vllm_backend.py`).

The mode is its `cli estimate` of one aggregated configuration (`cli_estimate` in Python):

- It gets the TP, EP and format of KV that our simulation gets.
- Prompts and outputs have the lengths that a row names. The batch size is the number of clients.
- `aiconfigurator` gets the formats of weights that a row names. Its own adapter of InferenceX's
  records asks for the same. `aiconfigurator, as served` gets those of the checkpoint that was
  served, as our simulation does. They differ in fp8 of blocks, and in layers that a checkpoint
  leaves in 16 bits.
- Experts of gpt-oss on a B200 have 8-bit inputs in TensorRT-LLM, as in its own sweep.
- All else is its default: its current tables of each engine, and a context budget of one prompt.
  Versions of these rows cannot be chosen. The tables are those of
  {versions}.
- Its measured tables count where they cover a row (mode `SILICON`, the default), else those that
  it extends itself (mode `HYBRID`).

Nothing was tuned on either side for this comparison. Our simulation knows more of a row: the drawn
lengths, the recipe's limits, and what the section above names. The estimator has no place for most of
these. Each row of the table is about the points that all four have times for:

"""
HEAD = ["rows", "times from", "points", "TPOT %", "median %", "bias %", "TTFT %", "median %",
        "bias %"]


def cells(points, name):
    """For each figure the mean and the median |error|, and the mean error, in per cent."""
    result = []
    for figure in page.MEANS:
        errors = page.errors_of(points, name, figure)
        sizes = [abs(error) for error in errors]
        result += [page.percent(statistics.mean(sizes)), page.percent(statistics.median(sizes)),
                   page.percent(statistics.mean(errors), True)]
    return result


def rows_of(title, points):
    return [[title, name, len(points), *cells(points, name)] for name in ALL] if points else []


def by(points, key):
    groups = collections.defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    return [row for title, group in sorted(groups.items()) for row in rows_of(title, group)]


def has_tables(point):
    return all(point.simulated[name]["tables"] == "SILICON" for name in FORMATS)


# Part of what the estimator says -> in short why it has no times.
REASONS = {
    " does not fit in GPU memory": "out of memory, by its count",
    "No empirical utilisation data": "no table of an operator, and none near to extend",
    "Invalid quantized MoE configuration": "experts on a GPU are no multiple of the fp8 block",
}


def why_none(reason):
    return next((short for part, short in REASONS.items() if part in reason), reason)


def refusals(points):
    refused = collections.Counter(
        (name, point.model, point.gpu, why_none(point.simulated[name]))
        for point in points for name in FORMATS if not page.is_simulated(point, name))
    return [[name, model, gpu, count, why] for (name, model, gpu, why), count in
            sorted(refused.items())]


def coverage(points, common):
    lines = [f"All have times for {len(common)} of the {len(points)} points.\n"]
    for name in FORMATS:
        answers = [point.simulated[name] for point in points if page.is_simulated(point, name)]
        extended = sum(answer["tables"] == "HYBRID" for answer in answers)
        waiting = sum(answer["waits_for_kv"] for answer in answers)
        lines.append(f"- `{name}` has times for {len(answers)}, {extended} of them from `HYBRID`. "
                     f"For\n  {waiting} it warns that KV does not hold the batch. They count.")
    return "\n".join(lines) + "\n"


def text(points):
    points = [point for point in points if not point.lacks_limit]
    common = [point for point in points if all(page.is_simulated(point, name) for name in ALL)]
    versions = sorted({f"{point.engine.split()[0]} {point.simulated[BY_ROW]['version']}"
                       for point in common})
    measured = [point for point in common if has_tables(point)]
    parts = [INTRO.format(versions=", ".join(versions)),
             page.table(HEAD, rows_of("all", common) + rows_of("none of `HYBRID`", measured) +
                        by(common, lambda point: point.gpu) +
                        by(common, lambda point: point.engine.split()[0])),
             "\n\n" + coverage(points, common)]
    refused = refusals(points)
    if refused:
        parts += ["\nThe estimator has no times for:\n\n",
                  page.table(["times from", "model", "GPU", "points", "why"], refused) + "\n"]
    return "".join(parts)
