# SPDX-License-Identifier: Apache-2.0
"""Runs of vLLM 0.19 of which each request's instants were logged (github.com/casys-kaist/
LLMServingSim, MIT). They are replayed with their own arrivals."""

import dataclasses
import json
import pathlib
import re
import tempfile

from points import ROOT, command, short_reason

# scenario, folder of the log, GPU, model, degree
RUNS = [("rtx4090_sharegpt", "rtx4090_llama-3.1-8b", "rtx-4090", "llama-3.1-8b", 1),
        ("rtxpro6000_sharegpt", "rtxpro6000_llama-3.1-8b", "rtx-pro-6000", "llama-3.1-8b", 1),
        ("rtxpro6000_tp2_sharegpt", "rtxpro6000_qwen3-32b_tp2", "rtx-pro-6000", "qwen3-32b", 2)]
FITTED_SECONDS = 40
STATISTICS = ("mean", "p50", "p90", "p95", "p99")


@dataclasses.dataclass
class LoggedRun:
    gpu: str
    model: str
    degree: int
    cost_model: str
    fitted_on: str
    figures: list  # of `metronome validate`: metric, statistic, measured, simulated, error
    mean: float    # of |error| of mean, p50, p90, p95, p99 of TTFT, TPOT and E2EL
    reason: str | None = None

    def error(self, metric, statistic="mean"):
        for figure in self.figures:
            if (figure["metric"], figure["statistic"]) == (metric, statistic):
                return figure["error"]
        return None


def corrected(scenario, log, folder):
    """Settings with step times corrected by the first seconds of the log."""
    out, reason = command(["calibrate", "--from", log, "--scenario", scenario, "--until",
                           str(FITTED_SECONDS), "--out", folder / "corrected.json"])
    settings = [f"cost_model.file={folder / 'corrected.json'}"]
    # The pause that was found, or the better one that its first step tells.
    found = re.search(r"^cold start +(\d+) ms", out or "", re.MULTILINE)
    better = re.search(r"cost_model.cold_start_ms: (\d+)\s+simulates", out or "")
    if better or found:
        settings.append(f"cost_model.cold_start_ms={(better or found).group(1)}")
    return settings, reason


def replay(scenario, log, settings, folder):
    options = [part for setting in settings for part in ("--set", setting)]
    out, reason = command(["run", scenario, *options, "--quiet", "--out", folder / "run"])
    if reason is None:
        out, reason = command(["validate", log, folder / "run", "--json"])
    return (json.loads(out), None) if reason is None else (None, short_reason(reason))


def read(shared):
    """The runs whose logs are at hand, each by three kinds of step times."""
    runs = []
    for name, log_folder, gpu, model, degree in RUNS:
        scenario = ROOT / f"scenarios/measured/{name}.yaml"
        log = shared / f"data/measured/{log_folder}/requests.jsonl"
        if not log.exists():
            continue
        for cost_model, fitted_on in (
                ("roofline", "nothing of the run"), ("profile", "nothing of the run"),
                ("profile, corrected", f"the run's first {FITTED_SECONDS} s")):
            with tempfile.TemporaryDirectory() as scratch:
                folder = pathlib.Path(scratch)
                settings, reason = [], None
                if cost_model == "roofline":
                    settings = ['cost_model.file=""', f"hardware={gpu}"]
                elif cost_model == "profile, corrected":
                    settings, reason = corrected(scenario, log, folder)
                found = None
                if reason is None:
                    found, reason = replay(scenario, log, settings, folder)
                runs.append(LoggedRun(gpu, model, degree, cost_model, fitted_on,
                                      found["latencies"] if found else [],
                                      found["mean_abs_error"] if found else float("nan"), reason))
    return runs
