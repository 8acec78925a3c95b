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


def version_of(row):
    """Of the engine. Rows of 2025 may lack it; then the release of their date."""
    date, version = measured_on(row), row["backend_version"]
    if row["backend"] == "trtllm" and version.startswith("1.1.0") and date >= "2026-01":
        return "1.2.0"  # the scripts of that year, with an image of the year before
    released = {"vllm": "0.11.0", "sglang": "0.5.5", "trtllm": "1.1.0"}[row["backend"]]
    return version or (released if date < "2026" else "")


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
