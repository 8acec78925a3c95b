# SPDX-License-Identifier: Apache-2.0
"""The public sweep's rows of DeepSeek-R1, Kimi-K2.5 and Qwen3.5-397B: which of them count. Rows named
DeepSeek-V3 are runs of DeepSeek-R1, whose shape is the same."""

from composed import point_scenario
from points import ROOT, Point
from rows import (HARDWARE, NotCovered, clients_of, engine_of, is_public_sweep, measured_of,
                  measured_on, number)

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


def known_of(row, prompt):
    """Keys that the row's date tells, and not its version: vLLM's recipe of Kimi-K2.5 on a B200 as of
    April 20, 2026."""
    if row["backend"] != "vllm" or row["system"] != "b200_sxm" or measured_on(row) < "2026-04-20":
        return {}
    return {"kv_cache": {"dtype": "fp8"}, "scheduler": {"max_num_batched_tokens": 2 * prompt},
            "cost_model": {"max_graph_tokens": 2048}}


def experts_kernel_of(row):
    """TensorRT-LLM's own kernels (moe_config.backend: TRTLLM), where a recipe asks for them. The
    tables have those of fp8 by other engines alone."""
    if row["backend"] != "trtllm":
        return "auto"
    if row["precision"] == "fp4":
        return "min_latency"
    return "flashinfer_trtllm" if row["backend_version"] == "1.2.0rc6.post2" else "auto"


def point_of(row, systems, tp, dp, ep):
    """The point of a row, whose GPUs are divided so. Raises NotCovered."""
    model, precision = MODELS[row["model_path"]], row["precision"]
    prompt = number(row["isl"])
    check_counts(row, model, tp, dp, clients_of(row))
    gpu, served = HARDWARE[row["system"]], model_of(systems, model, precision)
    is_converted = served == "qwen3.5-397b-a17b" and precision == "fp8"
    base, scenario = point_scenario(row, gpu, served, "fp8_block" if is_converted else "auto", tp,
                                    known_of(row, prompt))
    return Point(
        source="aiconfigurator", name=row["id"], gpu=gpu, model=model,
        precision=PRECISIONS[precision], engine=engine_of(row), degree=tp, has_experts=True,
        measured=measured_of(row), base=base, scenario=scenario,
        tables={"system": row["system"], "engine": row["backend"],
                "ep": experts_of(row, tp, ep), "experts_kernel": experts_kernel_of(row)}, row=row)
