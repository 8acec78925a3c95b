# SPDX-License-Identifier: Apache-2.0
"""Asks NVIDIA's estimator, in a Python that has it: one JSON object a line, the arguments of
`aiconfigurator.cli.api.cli_estimate`, and one line back for each: times in ms, or why none. Its
measured tables count where they cover the arguments (SILICON), else its extended ones (HYBRID)."""

import functools
import json
import logging
import sys

from aiconfigurator.cli.api import cli_estimate
from aiconfigurator.sdk import models, perf_database


def keep_what_repeats():
    """Versions of tables and models, which every call makes anew otherwise, in seconds."""
    perf_database.get_latest_database_version = functools.cache(
        perf_database.get_latest_database_version)
    make, made = models.get_model, {}

    def get_model(path, config, backend):
        key = (path, repr(config), backend)
        if key not in made:
            made[key] = make(path, config, backend)
        return made[key]

    models.get_model = get_model


def estimate(arguments, mode):
    """(times, None) or (None, why there are none)."""
    try:
        found = cli_estimate(**arguments, database_mode=mode)
    except Exception as reason:  # noqa: BLE001 - many kinds tell of what it does not cover
        lines = str(reason).strip().splitlines()
        return None, f"{type(reason).__name__}: {lines[0] if lines else ''}"
    return {"mean_ttft_ms": float(found.ttft), "mean_tpot_ms": float(found.tpot), "tables": mode,
            "version": found.backend_version,
            "waits_for_kv": found.kv_cache_warning is not None}, None


def answer(arguments):
    for mode in ("SILICON", "HYBRID"):
        times, reason = estimate(arguments, mode)
        if times is not None:
            return times
    return reason


def main():
    logging.disable(logging.WARNING)
    keep_what_repeats()
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
