# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's serving points: silicon_sample.csv of aiconfigurator-core (Apache-2.0). They validate;
nothing is fitted to them.

Two kinds of rows are told apart by their source. Most are runs of the public InferenceX sweep: a
closed loop of N clients, 10 N prompts, lengths drawn from 0.8 of the named length to all of it,
inputs and outputs alike, and no prefix caching. Others come from sweeps whose client was not
published: lengths count as named there. Outputs scatter by a tenth: with equal outputs the clients
would stay in lock step for ever, and first tokens would come twice as late as measured. Those of
SGLang on an H100 do stay so. TTFT and TPOT are means over the requests, the first burst
included."""

import collections
import copy
import csv
import math
import re

import large_models
from points import FRONT_END, Point, closed_loop, lengths
from rows import (ENGINES, HARDWARE, NotCovered, clients_of, engine_of, identity, is_public_sweep,
                  measured_of, measured_on, number, prompt_graphs_of)

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


def kv_dtype_of(row, model, quantization):
    """As recipes and checkpoints say, but for two: queueing at 64 clients on an H100 shows that
    Llama-3.1-70B had 16-bit KV there, and its absence that MiniMax had 8-bit KV on GPUs newer than
    that."""
    blackwell = row["system"][0] in "bg"
    if row["model_path"] == "nvidia/Llama-3.1-8B-Instruct-FP8":
        return "fp8"  # hf_quant_config.json
    if not is_public_sweep(row):
        is_quantised = quantization not in ("none", "mxfp4")
        return "fp8" if model == "qwen3-32b" and row["backend"] == "trtllm" and is_quantised \
            else "bf16"
    if model == "llama-3.1-70b":
        return "bf16" if row["system"] == "h100_sxm" and row["backend"] == "vllm" else "fp8"
    if model == "gpt-oss-120b":
        return "fp8" if blackwell else "bf16"
    if model == "minimax-m2.5":
        return "bf16" if row["system"] == "h100_sxm" else "fp8"
    return "bf16"


def is_tuned_minimax(row, model):
    """The public sweep's recipes of MiniMax on Blackwell with vLLM 0.19: --max-num-batched-tokens
    of two prompts, --max-cudagraph-capture-size 2048 (its pull requests 996 and 1010 of April 8;
    first tokens of the runs of April 3 fit that, too)."""
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


def tensorrt_llm_of(row, model, prompt, output):
    """As the public sweep's recipes start trtllm-serve, which does not chunk prompts by default."""
    if not is_public_sweep(row):
        return {"policy": "tensorrt_llm", "max_num_tokens": max(8192, prompt)}
    settings = {"policy": "tensorrt_llm", "enable_chunked_context": False}
    if model == "gpt-oss-120b":
        return {**settings, "max_num_tokens": 20000}
    # As of commit a267b4b, October 2025.
    settings["max_num_tokens"] = 16384
    if (prompt, output) == (1024, 1024) and number(row["tp_size"]) < 8:
        settings |= {"batch_wait_max_tokens_ratio": 0.9, "batch_wait_timeout_iters": 20}
    return settings


def scheduler_of(row, model, clients, prompt, output):
    backend = row["backend"]
    if backend == "sglang":
        return {"policy": "sglang", "chunked_prefill_size": 8192}
    if backend == "trtllm":
        return tensorrt_llm_of(row, model, prompt, output)
    budget = 8192
    if is_tuned_minimax(row, model):
        budget = 2 * prompt
    if model == "minimax-m2.5" and row["system"] == "h200_sxm" and \
            row["backend_version"] in ("0.18.0", "0.19.0"):
        budget = 16384 if clients <= 32 else 32768
    return {"policy": "vllm", "version": "0.22", "max_num_batched_tokens": max(budget, clients)}


def steps_in_flight(row):
    """vLLM plans a step while another runs by default since 0.14 (its release notes); recipes of
    the public sweep ask for that (async-scheduling)."""
    version = re.match(r"(\d+)\.(\d+)", row["backend_version"])
    is_older = version is not None and (int(version[1]), int(version[2])) < (0, 14)
    return 1 if row["backend"] == "vllm" and is_older and not is_public_sweep(row) else 2


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
    clients, prompt, output = clients_of(row), number(row["isl"]), number(row["osl"])
    share = 0.8 if is_public_sweep(row) else 1
    quantization = formats_of(row, model)
    kv_dtype = kv_dtype_of(row, model, quantization)
    gpu = HARDWARE[row["system"]]
    base = {
        "model": model, "hardware": gpu, "quantization": quantization,
        "kv_cache": {"dtype": kv_dtype, "enable_prefix_caching": False},
        "cost_model": {
            "tensor_parallel_size": tp, "frontend": FRONT_END,
            "gpu_memory_utilization": 0.85 if row["backend"] == "sglang" else 0.9,
        },
    }
    has_large_graphs = model == "gpt-oss-120b" or is_tuned_minimax(row, model)
    graph_tokens = {"vllm": 2048 if has_large_graphs else 512, "trtllm": 1024,
                    "sglang": max(160, clients)}[row["backend"]]
    outputs = lengths(output, share)
    stays_in_step = row["backend"] == "sglang" and row["system"] == "h100_sxm"
    if not is_public_sweep(row) and not stays_in_step:
        outputs = {"distribution": "uniform", "min": max(1, round(0.9 * output)),
                   "max": round(1.1 * output)}
    is_served_alone = is_public_sweep(row) and row["backend"] == "vllm"
    scenario = {
        "scheduler": scheduler_of(row, model, clients, prompt, output),
        "engine": {"max_num_seqs": clients if is_served_alone else max(1024, clients),
                   "max_model_len": prompt + 2 * output + 256, "async_depth": steps_in_flight(row)},
        "cost_model": {"max_graph_tokens": graph_tokens, **prompt_graphs_of(row["backend"])},
        "workload": closed_loop(clients, lengths(prompt, share), outputs,
                                max(10 * clients, 20)),
    }
    if row["backend"] == "sglang" and not is_public_sweep(row):
        # With its cache on, as by default, SGLang does not count with whole outputs
        # (PrefillAdder.add_one_req). These prompts share nothing, so that is all the cache does.
        scenario["sampling"] = {"ignore_eos": False}
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
