# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's serving points: silicon_sample.csv of aiconfigurator-core (Apache-2.0). They validate;
nothing is fitted to them.

Most rows are runs of the public InferenceX sweep, others come from NVIDIA's own sweeps, whose client
was not published. The program composes a scenario from the fields of a row: how such servers were
started and how their clients ask is its knowledge. TTFT and TPOT are means over the requests, the
first burst included."""

import collections
import copy
import csv
import math

import large_models
from composed import point_scenario
from points import Point
from rows import (ENGINES, HARDWARE, NotCovered, clients_of, engine_of, identity, is_public_sweep,
                  measured_of, measured_on, number)

MODELS = {
    "meta-llama/Llama-3.1-70B": "llama-3.1-70b",
    "meta-llama/Llama-3.1-8B-Instruct": "llama-3.1-8b",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "llama-3.1-8b",
    "Qwen/Qwen3-32B": "qwen3-32b",
    "nvidia/Qwen3-32B-NVFP4": "qwen3-32b",
    "Qwen/Qwen3-235B-A22B-FP8": "qwen3-235b-a22b",
    "openai/gpt-oss-120b": "gpt-oss-120b",
    "MiniMaxAI/MiniMax-M2.5": "minimax-m2.5",
}
EXPERTS = {"qwen3-235b-a22b", "gpt-oss-120b", "minimax-m2.5"}
NOT_COVERED = [("GLM-5", "sparse attention")]
LIMITS = (4, 8, 16, 32, 64)  # of requests at once, in the recipes of gpt-oss on the H100
def layout_of(row):
    """(tensor parallel, data parallel attention, experts' tensor parallel, expert parallel). Some
    rows write a product: "tp 16, moe_tp 4, moe_ep 4" is a recipe's "tp4 ep4". One of these sweeps
    has 1, 4, 16 and 64 so, for its 1, 2, 4 and 8."""
    tp, dp = number(row["tp_size"]), number(row["attention_dp_size"]) or 1
    moe_tp, ep = number(row["moe_tp_size"]), number(row["moe_ep_size"]) or 1
    if moe_tp == 0:
        moe_tp, ep = tp, 1
    is_product = moe_tp in (4, 8) or (moe_tp == 2 and is_public_sweep(row))
    if dp == 1 and moe_tp == ep and is_product and tp == moe_tp * ep:
        return ep, 1, 1, ep
    if row["model_path"] == "openai/gpt-oss-120b" and row["backend"] == "trtllm" and \
            row["system"] == "h200_sxm" and measured_on(row) == "2025-11-02":
        # These rows say no EP. Their times are those of the sweep of December, where EP is TP.
        return tp, 1, 1, tp
    if dp > 1:
        return tp, dp, moe_tp, ep
    if row["model_path"] == "MiniMaxAI/MiniMax-M2.5" and row["system"] == "b200_sxm" and \
            row["backend_version"] == "0.17.0":
        # The recipe of MiniMax asked for --enable-expert-parallel even where EP is 1 (pull request
        # 947 mended that).
        return tp, 1, 1, tp
    return tp, 1, moe_tp, ep


def formats_of(row, model):
    """The scenario's `quantization`."""
    precision = {"": "bf16"}.get(row["precision"], row["precision"])
    if model == "gpt-oss-120b":
        return "mxfp4"
    if precision == "bf16":
        return "none"
    if precision == "int4":
        return "int4"
    if precision == "fp4":
        return "nvfp4"
    if model in EXPERTS or row["gemm_quant_mode"] == "fp8_block":
        return "fp8_block"
    return "fp8"


def is_tuned_minimax(row, model):
    """The public sweep's recipes of MiniMax on Blackwell with vLLM 0.19 (its pull requests 996 and
    1010 of April 8; first tokens of the runs of April 3 fit that, too)."""
    return model == "minimax-m2.5" and row["system"] in ("b200_sxm", "b300_sxm") and \
        row["backend_version"] == "0.19.0"


def router_dtype_of(row, model):
    """Those recipes set VLLM_FLOAT32_MATMUL_PRECISION=high from the middle of April on (1069, 1106
    and 1107)."""
    return "tf32" if is_tuned_minimax(row, model) and measured_on(row) >= "2026-04-21" else "auto"


def experts_kernel_of(row, model):
    """vLLM's own, in Triton, where a recipe turns others off: VLLM_USE_FLASHINFER_MOE_FP8=0 and
    VLLM_MOE_USE_DEEP_GEMM=0. With --moe-backend triton on the H200 they are the fastest anyway."""
    is_older = row["system"] == "b200_sxm" and row["backend_version"] == "0.17.0"
    return "vllm_fused_moe" if model == "minimax-m2.5" and is_older else "auto"


def lacks_limit(row, model, clients):
    """The public sweep's recipe of gpt-oss on the H100 had --max-concurrency 512, whatever the
    number of requests at once was: that is --max-num-seqs, and 10 prompts for each of these. The
    rows do not have it. Their first tokens come at 9/11 of the answers, as ten waves do."""
    return model == "gpt-oss-120b" and row["system"] == "h100_sxm" and \
        row["backend"] == "vllm" and clients == 512


def point_of(row, systems):
    for name, why in NOT_COVERED:
        if name in row["model_path"]:
            raise NotCovered(why)
    if row["backend"] not in ENGINES:
        raise NotCovered(f"the engine {row['backend']}")
    if not row["silicon_ttft_ms"]:
        raise NotCovered("no measured times")
    tp, dp, moe_tp, ep = layout_of(row)
    if row["model_path"] in large_models.MODELS:
        return large_models.point_of(row, systems, tp, dp, ep)
    if row["model_path"] not in MODELS:
        raise NotCovered(f"the model {row['model_path']}")
    model = MODELS[row["model_path"]]
    if number(row["pp_size"]) > 1:
        raise NotCovered("pipeline parallelism")
    if dp > 1:
        raise NotCovered("data-parallel attention")
    if model in EXPERTS and moe_tp * ep != tp:
        raise NotCovered("a layout of experts that does not fit the number of GPUs")
    if row["system"] not in HARDWARE:
        raise NotCovered(f"the GPU {row['system']}")
    clients = clients_of(row)
    quantization = formats_of(row, model)
    gpu = HARDWARE[row["system"]]
    # hf_quant_config.json of this checkpoint asks for it.
    known = {"kv_cache": {"dtype": "fp8"}} \
        if row["model_path"] == "nvidia/Llama-3.1-8B-Instruct-FP8" else {}
    base, scenario = point_scenario(row, gpu, model, quantization, tp, known)
    return Point(
        source="aiconfigurator", name=row["id"], gpu=gpu, model=model,
        precision={"none": "plain"}.get(quantization, quantization),
        engine=engine_of(row), degree=tp, has_experts=model in EXPERTS, measured=measured_of(row),
        base=base, scenario=scenario,
        tables={"system": row["system"], "engine": row["backend"], "ep": ep,
                "router_dtype": router_dtype_of(row, model),
                "experts_kernel": experts_kernel_of(row, model)},
        lacks_limit=lacks_limit(row, model, clients), row=row)


def with_limits(point):
    """The point, or where it lacks its limit, with each of the recipe's: 10 prompts for one at a
    time."""
    if not point.lacks_limit:
        return [point]
    points = []
    for limit in LIMITS:
        point = copy.deepcopy(point)
        point.scenario["engine"]["max_num_seqs"] = limit
        point.scenario["workload"]["num_requests"] = 10 * limit
        points.append(point)
    return points


def with_likely_limits(points):
    """Of points that differ in the server's limit alone, the one whose TTFT fits best."""
    def misfit(point):
        error = point.error("operators", "mean_ttft_ms")
        return math.inf if error is None else abs(math.log(1 + error))

    best = {}
    for point in points:
        if point.name not in best or misfit(point) < misfit(best[point.name]):
            best[point.name] = point
    return list(best.values())


def is_fitted(row):
    """Whether launches of passes without a CUDA graph were fitted to first tokens of such rows
    (sim/cost/eager_passes.h)."""
    return clients_of(row) <= 4 and number(row["isl"]) <= 1024


def read(systems):
    """(points, {reason: number of rows left out}) of the aggregated rows."""
    points, left_out, seen = [], collections.Counter(), set()
    for row in csv.DictReader(open(systems / "silicon_sample.csv", newline="")):
        if row["mode"] != "agg":
            left_out["prefill and decode on separate GPUs"] += 1
            continue
        try:
            point = point_of(row, systems)
        except NotCovered as reason:
            left_out[str(reason)] += 1
            continue
        if identity(row) in seen:
            left_out["copies of other rows"] += 1
            continue
        seen.add(identity(row))
        if is_fitted(row):
            left_out["1 to 4 clients with prompts of up to 1,024 tokens, which were fitted to"] += 1
            continue
        points.append(point)
    return points, left_out
