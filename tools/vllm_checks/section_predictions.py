# SPDX-License-Identifier: Apache-2.0
"""Latencies of a real server, predicted from another setting's log.

All servers run at once, and only one has load. In each turn every setting is measured once, under
new requests. A turn's log of the first setting gives the step times; the others are predicted."""

import contextlib
import json
import os
import pathlib
import re
import shutil
import statistics

from . import install, load, server, settings

FIGURES = {"p50_itl_ms": "ITL p50, ms", "p99_itl_ms": "ITL p99, ms", "p50_ttft_ms": "TTFT p50, ms",
           "p99_ttft_ms": "TTFT p99, ms", "output_throughput": "output tokens/s"}
NUMBER = re.compile(r"Iteration\((\d+)\)")
LIMIT = 0.2  # of |error| of the mean p99 ITL with drift, beyond twice its bar


def check(check):
    folder = check.folder / "predictions"
    kept = folder / "runs.json"
    if not check.options.compare_only:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        kept.write_text(json.dumps(measure_all(check, folder), indent=1), encoding="utf-8")
    runs = json.loads(kept.read_text(encoding="utf-8"))
    turns = range(1 + max(run["turn"] for run in runs))
    rows = [row for turn in turns
            for row in predict(check, [run for run in runs if run["turn"] == turn], folder)]
    summary = summarise(rows)
    for line in summary:
        if line["figure"] == "p99_itl_ms" and abs(line["error"]) > LIMIT + 2 * line["bar"]:
            check.fault(f"predictions: {line['setting']}: p99 ITL off by {line['error']:+.1%}")
        check.say(f"predictions: {line['setting']}: {FIGURES[line['figure']]}: measured "
                  f"{line['measured']:.1f}, predicted {line['predicted']:.1f}, with drift "
                  f"{line['with_drift']:.1f} ({line['error']:+.1%} +- {line['bar']:.1%})")
    check.keep("predictions", {
        "fitted_to": runs[0]["setting"], "turns": len(turns), "rows": rows,
        "requests": runs[0]["requests"], "rate": runs[0]["rate"], "summary": summary,
        "load_averages": [run["load"] for run in runs], "cores": os.cpu_count(),
        "iterations": sum(row["iterations"] for row in rows),
        "equal_iterations": sum(row["equal_iterations"] for row in rows)})


def measure_all(check, folder):
    """The runs, turn by turn; the first setting of a turn is the one to fit to."""
    venv = install.vllm()
    model = install.model(venv)
    chosen = [setting for setting in settings.SETTINGS if setting.name.startswith("budget-")]
    if check.options.setting:
        chosen = [setting for setting in chosen if setting.name in check.options.setting]
    runs = []
    with contextlib.ExitStack() as stack:
        servers = {}
        for setting in chosen:
            place = folder / setting.name
            place.mkdir()
            servers[setting.name] = stack.enter_context(server.vllm_server(
                venv, model, place, setting.server_flags(), kv_gib=1))
        for turn in range(check.options.turns):
            for setting in chosen:
                runs.append(measure(check, servers[setting.name], model, setting, turn,
                                    folder / setting.name))
                check.say(f"predictions: turn {turn + 1}, {setting.name}: measured, load average "
                          f"{runs[-1]['load']:.1f}")
    return runs


def last_iteration(log):
    """The number of the last iteration; -1: there is none."""
    found = NUMBER.findall(log.read_text(errors="replace"))
    return int(found[-1]) if found else -1


def measure(check, running, model, setting, turn, place):
    options = check.options
    scenario = place / f"{turn}.yaml"
    scenario.write_text(setting.scenario(model / "config.json", load.cache_blocks(running),
                                         options.requests, options.rate, options.seed + turn),
                        encoding="utf-8")
    first = last_iteration(running.log) + 1
    load.bench_serve(options.metronome, running, scenario, place / f"measured{turn}")
    last = last_iteration(running.log)
    return {"turn": turn, "setting": setting.name, "scenario": str(scenario),
            "log": str(running.log), "range": f"{first}:{last}",
            "measured": str(place / f"measured{turn}"), "load": os.getloadavg()[0],
            "requests": options.requests, "rate": options.rate}


def figures_of(folder):
    result = json.loads((folder / "result.json").read_text(encoding="utf-8"))
    return {name: result[name] for name in FIGURES}


def predict(check, runs, folder):
    """A row for each setting of a turn; the first is fitted."""
    program = check.options.metronome
    fitted = runs[0]
    cost = folder / f"cost{fitted['turn']}.json"
    load.metronome(program, "calibrate", "--from", fitted["log"], "--scenario",
                   fitted["scenario"], "--iterations", fitted["range"], "--out", cost)
    for run in runs:
        simulated = folder / f"{run['setting']}-{run['turn']}"
        load.metronome(program, "run", run["scenario"], "--set", f"cost_model.file={cost}",
                       "--out", simulated, "-q")
        found = json.loads(load.metronome(program, "validate", run["log"], simulated,
                                          "--iterations", run["range"], "--json"))
        decided = found["decisions"]
        if "first_difference" in decided:
            check.fault(f"predictions: {run['setting']}: turn {run['turn'] + 1}: "
                        f"{decided['first_difference']}")
        drift = 1 / (1 + found["step_times"][-1]["total_error"])
        yield {"turn": run["turn"], "setting": run["setting"], "drift": drift,
               "load": run["load"], "iterations": decided["measured_steps"],
               "equal_iterations": decided["equal_steps"],
               "measured": figures_of(pathlib.Path(run["measured"])),
               "predicted": figures_of(simulated),
               "with_drift": with_drift(check, run, cost, drift, folder)}


def with_drift(check, run, cost, drift, folder):
    """The figures if each step takes `drift` times as long. That is the same as requests that
    arrive as much faster, on a clock that is as much slower."""
    slower = folder / f"{run['setting']}-{run['turn']}-drift"
    load.metronome(check.options.metronome, "run", run["scenario"], "--set",
                   f"cost_model.file={cost}", "--set",
                   f"workload.arrivals.rate={run['rate'] * drift}", "--out", slower, "-q")
    return {name: value * drift if name.endswith("_ms") else value / drift
            for name, value in figures_of(slower).items()}


def summarise(rows):
    """Means over the turns. `error` is that of predictions with the drift; its bar is a standard
    error."""
    lines = []
    for name in dict.fromkeys(row["setting"] for row in rows):
        own = [row for row in rows if row["setting"] == name]
        for figure in FIGURES:
            errors = [row["with_drift"][figure] / row["measured"][figure] - 1 for row in own]

            def mean(kind):
                return statistics.mean(row[kind][figure] for row in own)

            lines.append({
                "setting": name, "figure": figure, "turns": len(own), "measured": mean("measured"),
                "predicted": mean("predicted"), "with_drift": mean("with_drift"),
                "drift": statistics.mean(row["drift"] for row in own),
                "error": statistics.mean(errors),
                "bar": statistics.stdev(errors) / len(errors) ** 0.5 if len(errors) > 1 else 0})
    return lines
