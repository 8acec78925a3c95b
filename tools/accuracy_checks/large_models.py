# SPDX-License-Identifier: Apache-2.0
"""The public sweep's rows of DeepSeek-R1, Kimi-K2.5 and Qwen3.5-397B: which of them count, and how
their servers were started.

Settings are those of the recipes of github.com/SemiAnalysisAI/InferenceX (Apache-2.0),
benchmarks/single_node/*.sh, at the commits whose image and date are the row's. Rows named
DeepSeek-V3 are runs of DeepSeek-R1, whose shape is the same."""

from points import FRONT_END, ROOT, Point, closed_loop, lengths
from rows import (HARDWARE, NotCovered, clients_of, engine_of, is_public_sweep, measured_of,
                  measured_on, number, prompt_graphs_of)

# Name on the page -> configuration in the package's model_configs, or a name of our catalogue.
CONFIGS = {
    ("deepseek-r1", "fp8"): "deepseek-v3",
    ("deepseek-r1", "fp4"): "nvidia--DeepSeek-V3.1-NVFP4",
    ("kimi-k2.5", "int4"): "moonshotai--Kimi-K2.5",
    ("kimi-k2.5", "fp4"): "nvidia--Kimi-K2.5-NVFP4",
    ("qwen3.5-397b-a17b", "bf16"): "qwen3.5-397b-a17b",
    ("qwen3.5-397b-a17b", "fp8"): "qwen3.5-397b-a17b",
    ("qwen3.5-397b-a17b", "fp4"): "nvidia--Qwen3.5-397B-A17B-NVFP4",
}
MODELS = {
    "deepseek-ai/DeepSeek-R1": "deepseek-r1",
    "deepseek-ai/DeepSeek-V3": "deepseek-r1",
    "moonshotai/Kimi-K2.5": "kimi-k2.5",
    "Qwen/Qwen3.5-397B-A17B": "qwen3.5-397b-a17b",
}
PRECISIONS = {"fp8": "fp8_block", "fp4": "nvfp4", "int4": "int4", "bf16": "plain"}
DRAFTS = "drafts, which rows do not tell"


def model_of(systems, model, precision):
    """The scenario's `model`: a name, or a folder with the package's configuration."""
    name = CONFIGS[model, precision]
    configs = systems.parent / "model_configs"
    if not (configs / f"{name}_config.json").is_file():
        return name
    folder = ROOT / "build/accuracy/models" / name
    folder.mkdir(parents=True, exist_ok=True)
    for file in ("config.json", "hf_quant_config.json"):
        source = configs / f"{name}_{file}"
        if source.is_file():
            (folder / file).write_text(source.read_text())
    return str(folder)


def check_counts(row, model, tp, dp, clients):
    """Raises NotCovered where a row does not count."""
    backend, version, date = row["backend"], row["backend_version"], measured_on(row)
    precision, gpu = row["precision"], row["system"]
    if gpu == "gb200":
        raise NotCovered("prefill and decode on separate GPUs")  # though rows say otherwise
    if not is_public_sweep(row) or (gpu == "b300_sxm" and date == "2026-04-03"):
        raise NotCovered("a recipe that is not public")
    if dp > 1:
        raise NotCovered("data-parallel attention")
    if backend == "trtllm":
        if version == "1.2.0rc6.post3" or date == "2026-01-14" or \
                (date == "2026-01-28" and clients != 64):
            raise NotCovered(DRAFTS)
        if not version and precision == "fp4":
            raise NotCovered("a layout of experts that nobody recorded")
        if not version and clients == 64 and (gpu == "b200_sxm" or row["isl"] == "8192"):
            raise NotCovered("data-parallel attention")  # lost in rows of November 2025
    is_deepseek_fp8 = model == "deepseek-r1" and gpu == "b200_sxm" and precision == "fp8"
    if is_deepseek_fp8 and version == "0.5.9" and date == "2026-03-25" and tp == 8:
        raise NotCovered(DRAFTS)  # in half of these
    if model == "qwen3.5-397b-a17b" and precision == "fp8" and version == "0.5.9" and tp == 4 and \
            number(row["moe_ep_size"]) == 1:
        raise NotCovered(DRAFTS)


def experts_of(row, tp, ep):
    """GPUs among which whole experts are divided, as recipes have them."""
    if row["backend"] == "vllm":
        return 1  # the sweep's column has no effect in these recipes
    if not row["backend_version"]:  # rows of November 2025 lost this
        return tp if row["precision"] == "fp4" or row["backend"] == "trtllm" or \
            measured_on(row) == "2025-11-18" else 1
    return ep


def sglang(row, model, tp, clients, prompt, output):
    """(scheduler, engine, cost model, KV type)"""
    precision, gpu = row["precision"], row["system"]
    chunk, running, graph, memory, kv = 32768, 128, clients, 0.82, "fp8"
    if model == "deepseek-r1" and precision == "fp4":
        chunk, running, graph, memory = 16384, 256, 256, 0.85
    elif model == "deepseek-r1" and gpu == "h200_sxm":
        running = graph = 512 if prompt == output else 256
        kv = "bf16"
    elif model == "deepseek-r1" and tp == 4:
        chunk, running, graph, memory = 8192, 32, 32, 0.95
    elif model == "deepseek-r1":
        graph = 128
    elif precision == "bf16":
        kv = "bf16"
    elif precision == "fp4":
        memory = 0.85 if gpu == "b200_sxm" else 0.8
    elif gpu == "h200_sxm":
        chunk, memory = 16384, 0.8
    elif gpu == "b300_sxm":
        chunk, running, memory = 16384, clients, 0.8
    # Recipes for Hopper leave the interval alone.
    interval = 1 if gpu == "h200_sxm" else 10 if clients < 16 else 30
    if model == "qwen3.5-397b-a17b" and gpu == "b300_sxm" and precision == "fp8":
        interval = 10
    scheduler = {"policy": "sglang", "chunked_prefill_size": chunk,
                 "scheduler_recv_interval": interval}
    if model != "deepseek-r1" or precision != "fp4":
        scheduler["max_prefill_tokens"] = chunk
    return scheduler, {"max_num_seqs": running}, \
        {"max_graph_tokens": graph, "gpu_memory_utilization": memory}, kv


def tensorrt_llm(row, clients, prompt, output):
    length = prompt + output + 200
    tokens = (clients + prompt + 127) // 64 * 64
    graph = {"fp4": 512, "fp8": 256}[row["precision"]]
    scheduler = {"policy": "tensorrt_llm", "enable_chunked_context": False}
    if row["system"] == "h200_sxm":
        graph = 128
    if measured_on(row) >= "2026-01":
        tokens, length = max(8192, tokens), max(8192, length)
    if row["backend_version"] == "1.2.0rc6.post2":
        graph = clients
        if row["precision"] == "fp8" and prompt == output and clients >= 64:
            scheduler |= {"batch_wait_max_tokens_ratio": 0.8, "batch_wait_timeout_iters": 40}
    scheduler["max_num_tokens"] = tokens
    # Recipes give KV 0.75 to 0.8 of the memory that weights leave. With those it is 0.9 of all, or
    # more where weights fill the GPU.
    memory = 0.97 if row["precision"] == "fp8" and number(row["tp_size"]) == 4 else 0.9
    return scheduler, {"max_num_seqs": 2048, "max_model_len": length}, \
        {"max_graph_tokens": graph, "gpu_memory_utilization": memory}, "fp8"


def vllm(row, clients, prompt):
    is_late = row["system"] == "b200_sxm" and measured_on(row) >= "2026-04-20"
    budget = 2 * prompt if is_late else 8192
    kv = "fp8" if is_late else "auto"
    version = row["backend_version"]
    return {"policy": "vllm", "version": "0.22", "max_num_batched_tokens": max(budget, clients)}, \
        {"max_num_seqs": clients}, \
        {"max_graph_tokens": 2048 if is_late else 512,
         "gpu_memory_utilization": 0.95 if version in ("0.15.1", "0.16.0") else 0.9}, kv


def experts_kernel_of(row):
    """TensorRT-LLM's own kernels (moe_config.backend: TRTLLM), where a recipe asks for them. The
    tables have those of fp8 by other engines alone."""
    if row["backend"] != "trtllm":
        return "auto"
    if row["precision"] == "fp4":
        return "min_latency"
    return "flashinfer_trtllm" if row["backend_version"] == "1.2.0rc6.post2" else "auto"


def settings_of(row, model, tp, clients, prompt, output):
    """(scheduler, engine, cost model, KV type) of the row's recipe."""
    if row["backend"] == "sglang":
        return sglang(row, model, tp, clients, prompt, output)
    if row["backend"] == "trtllm":
        return tensorrt_llm(row, clients, prompt, output)
    return vllm(row, clients, prompt)


def point_of(row, systems, tp, dp, ep):
    """The point of a row, whose GPUs are divided so. Raises NotCovered."""
    model, precision = MODELS[row["model_path"]], row["precision"]
    clients, prompt, output = clients_of(row), number(row["isl"]), number(row["osl"])
    check_counts(row, model, tp, dp, clients)
    scheduler, engine, cost_model, kv_dtype = settings_of(row, model, tp, clients, prompt, output)
    gpu = HARDWARE[row["system"]]
    base = {"model": model_of(systems, model, precision), "hardware": gpu,
            "kv_cache": {"dtype": kv_dtype, "enable_prefix_caching": False},
            "cost_model": {"tensor_parallel_size": tp, "frontend": FRONT_END}}
    if base["model"] == "qwen3.5-397b-a17b" and precision == "fp8":
        base["quantization"] = "fp8_block"
    scenario = {
        "scheduler": scheduler,
        "engine": {"max_model_len": prompt + 2 * output + 256, "async_depth": 2, **engine},
        "cost_model": {**cost_model, **prompt_graphs_of(row["backend"])},
        "workload": closed_loop(clients, lengths(prompt, 0.8), lengths(output, 0.8),
                                max(10 * clients, 20)),
    }
    return Point(
        source="aiconfigurator", name=row["id"], gpu=gpu, model=model,
        precision=PRECISIONS[precision], engine=engine_of(row), degree=tp, has_experts=True,
        measured=measured_of(row), base=base, scenario=scenario,
        tables={"system": row["system"], "engine": row["backend"],
                "ep": experts_of(row, tp, ep), "experts_kernel": experts_kernel_of(row)}, row=row)
