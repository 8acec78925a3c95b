# SPDX-License-Identifier: Apache-2.0
"""Decisions of a real server, under each setting."""

import json
import shutil

from . import decisions, install, load, server, settings


def check(check):
    venv = install.vllm()
    model = install.model(venv)
    wanted = check.options.setting or [setting.name for setting in settings.SETTINGS]
    for setting in settings.SETTINGS:
        if setting.name not in wanted:
            continue
        try:
            row = examine(check, venv, model, setting)
        except (RuntimeError, OSError) as error:
            check.fault(f"decisions: {setting.name}: {error}")
            continue
        rows = {row["setting"]: row for row in check.figures().get("decisions", {}).get("rows", [])}
        rows[setting.name] = row
        ordered = [rows[one.name] for one in settings.SETTINGS if one.name in rows]
        check.keep("decisions", {"rows": ordered})


def examine(check, venv, model, setting):
    folder = check.folder / setting.name
    if not check.options.compare_only:
        serve(check, venv, model, setting, folder)
    row = {"setting": setting.name, "text": setting.text, "budget": setting.budget}
    cases = compare_records(check, setting, folder, row)
    if setting.client == "vllm":
        load.trace_of(folder / "bench.json", cases[0].lengths(), folder / "trace.csv")
    if setting.follows_log:
        follow_log(check, setting, folder, row)
    return row


def serve(check, venv, model, setting, folder):
    """A run of the server under load, recorded."""
    options = check.options
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    scenario = folder / "scenario.yaml"
    with server.vllm_server(venv, model, folder, setting.server_flags(), records=True,
                            is_async=setting.is_async,
                            environment=setting.environment) as running:
        num_blocks = load.cache_blocks(running)
        trace = folder / "trace.csv" if setting.client == "vllm" else ""
        if trace:
            load.vllm_bench(venv, running, model, options.requests, options.rate, options.seed,
                            folder / "bench.json")
        scenario.write_text(setting.scenario(model / "config.json", num_blocks, options.requests,
                                             options.rate, options.seed, trace=trace),
                            encoding="utf-8")
        if setting.client == "metronome":
            load.bench_serve(options.metronome, running, scenario, folder / "measured")
        (folder / "metrics.txt").write_text(running.metrics(), encoding="utf-8")


def compare_records(check, setting, folder, row):
    """What the scheduler recorded beside `metronome decisions`. Returns a case of each engine."""
    records = sorted(folder.glob("decisions.*"))
    cases = [decisions.Case(path, setting.version, i) for i, path in enumerate(records)]
    cases = [case for case in cases if case.requests]
    if len(cases) != setting.num_engines:
        check.fault(f"decisions: {setting.name}: {len(cases)} engines had requests, not "
                    f"{setting.num_engines}")
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(case.json(), separators=(",", ":")) + "\n"
                            for case in cases), encoding="utf-8")
    for name, value in cases[0].counts().items():
        row[name] = sum(case.counts()[name] for case in cases)
    code, text = load.judged(check.options.metronome, "decisions", "--engine", "vllm", path,
                             "--check", accepts=(0, 1))
    row["equal"] = code == 0
    if not row["equal"]:
        check.fault(f"decisions: {setting.name}: {text[:1000]}")
    check.say(f"decisions: {setting.name}: {row['steps']} steps, {row['preemptions']} preemptions: "
              + ("equal" if row["equal"] else "DIFFERENT"))
    return cases


def follow_log(check, setting, folder, row):
    """The iterations of the log beside the scenario's requests, as a user of `validate` does."""
    program = check.options.metronome
    scenario = folder / "scenario.yaml"
    cost = folder / "cost.json"
    load.metronome(program, "calibrate", "--from", folder / "server.log", "--scenario", scenario,
                   "--out", cost)
    simulated = folder / "simulated"
    load.metronome(program, "run", scenario, "--set", f"cost_model.file={cost}", "--out", simulated,
                   "-q")
    found = json.loads(load.metronome(program, "validate", folder / "server.log", simulated,
                                      "--json"))["decisions"]
    row["iterations"] = found["measured_steps"]
    row["equal_iterations"] = found["equal_steps"]
    left_out = found["left_out_before"] + found["left_out_after"]
    if found["equal_steps"] + left_out != found["measured_steps"]:
        check.fault(f"decisions: {setting.name}: the log differs: {found['first_difference']}")
    check.say(f"decisions: {setting.name}: {found['equal_steps']} of {found['measured_steps']} "
              "iterations of the log are equal")
