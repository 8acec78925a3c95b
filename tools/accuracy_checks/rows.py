# SPDX-License-Identifier: Apache-2.0
"""The fields of all rows of silicon_sample.csv."""

import re

HARDWARE = {"h100_sxm": "h100-sxm", "h200_sxm": "h200", "b200_sxm": "b200", "b300_sxm": "b300",
            "gb200": "gb200", "gb300": "gb300", "a100_sxm": "a100-80gb", "l40s": "l40s"}
ENGINES = {"vllm": "vllm", "sglang": "sglang", "trtllm": "tensorrt-llm"}


class NotCovered(Exception):
    """Why a row is left out."""


def number(text):
    return int(float(text)) if text else 0


def measured_on(row):
    found = re.search(r"measured=(\d{4}-\d\d-\d\d)", row["silicon_data_source"])
    return found.group(1) if found else ""


def is_public_sweep(row):
    return "/Users/" not in row["silicon_data_source"]


def clients_of(row):
    found = re.search(r"silicon_concurrency=(\d+)", row["silicon_data_source"])
    batch = number(row["batch_size"])
    clients = int(found.group(1)) if found else batch
    # Fewer sequences a batch than clients: several engines behind one client.
    return batch if 0 < batch < clients else clients


def prompt_graphs_of(engine):
    """Part of `cost_model`: SGLang had no CUDA graphs for prompts up to 0.5.10, the latest here."""
    return {"max_prompt_graph_tokens": 0} if engine == "sglang" else {}


def engine_of(row):
    """With its version, if it is known."""
    return f"{ENGINES[row['backend']]} {row['backend_version']}".strip()


def measured_of(row):
    return {"mean_ttft_ms": float(row["silicon_ttft_ms"]),
            "mean_tpot_ms": float(row["silicon_tpot_ms"])}


def identity(row):
    """Equal for a row and its copies, some of which are rounded to two decimals."""
    return (row["system"], row["backend"], row["isl"], row["osl"],
            round(float(row["silicon_ttft_ms"]), 2), round(float(row["silicon_tpot_ms"]), 2))
