# SPDX-License-Identifier: Apache-2.0
"""`diagnose` reads the log of a server with long steps, and advises a budget. The server is started
again with it, and both serve the same requests in turns. `verify` judges."""

import contextlib
import dataclasses
import json
import os
import re
import shutil

from . import install, load, server, settings
from .section_predictions import last_iteration

BUDGET = 2048
SHARE = 0.4  # of the longest gap: what is asked for


def check(check):
    venv = install.vllm()
    model = install.model(venv)
    program, options = check.options.metronome, check.options
    folder = check.folder / "advice"
    shutil.rmtree(folder, ignore_errors=True)
    before = dataclasses.replace(settings.SETTINGS[0], name="before", budget=BUDGET)
    with contextlib.ExitStack() as stack:
        old = start(stack, venv, model, folder, before)
        blocks = load.cache_blocks(old)
        scenario = folder / "scenario.yaml"
        text = before.scenario(model / "config.json", blocks, options.requests, options.rate,
                               options.seed)
        scenario.write_text(text, encoding="utf-8")
        runs = {"before": [], "after": []}
        runs["before"].append(measure(check, old, scenario, folder / "before0"))
        first = runs["before"][0]
        load.metronome(program, "calibrate", "--from", old.log, "--scenario", scenario,
                       "--iterations", first["range"], "--out", folder / "cost.json")
        scenario.write_text(before.scenario(model / "config.json", blocks, options.requests,
                                            options.rate, options.seed, folder / "cost.json"),
                            encoding="utf-8")
        advice, limit = advise(check, first, scenario, folder)
        flag = next((change["to"] for flags in advice["flags"] for change in flags["change"]
                     if change["to"].startswith("--max-num-batched-tokens ")), None)
        if flag is None:
            raise RuntimeError(f"the advice has no token budget: {advice['flags']}")
        after = dataclasses.replace(before, name="after", budget=int(flag.split()[1]))
        new = start(stack, venv, model, folder, after)
        for turn in range(options.turns):
            if turn > 0:
                runs["before"].append(measure(check, old, scenario, folder / f"before{turn}"))
            runs["after"].append(measure(check, new, scenario, folder / f"after{turn}"))
    arguments = ["--advice", folder / "advice.json", "--json"]
    for side in ("before", "after"):
        for run in runs[side]:
            arguments += [f"--{side}", run["log"], f"--{side}", run["measured"]]
    text = load.judged(program, "verify", *arguments, accepts=(0, 3))[1]
    verified = json.loads(text.replace(f"{load.ROOT}/", ""))  # files by their place in the tree
    check.say(f"advice: {flag} for gaps within {limit:.0f} ms: "
              + ("came true" if verified["came_true"] else "did not come true"))
    for row in verified["figures"]:
        check.say(f"advice: {row['figure']}: {row['before']['mean']:.1f} before, promised "
                  f"{row['promised']:.1f}, {row['without_drift']['mean']:.1f} after, without drift")
    itl = next(row for row in verified["figures"] if row["figure"] == "p99_itl_ms")
    if not itl["is_kept"]:
        check.fault("advice: the p99 ITL is worse than promised by more than the tolerance")
    check.keep("advice", {"budget": BUDGET, "flag": flag, "limit_ms": limit,
                          "turns": options.turns, "verified": verified,
                          "load_average": os.getloadavg()[0], "requests": options.requests,
                          "rate": options.rate})


def start(stack, venv, model, folder, setting):
    place = folder / setting.name
    place.mkdir(parents=True)
    return stack.enter_context(server.vllm_server(venv, model, place, setting.server_flags(),
                                                  kv_gib=1))


def measure(check, running, scenario, out):
    """A run, and the part of the server's log that belongs to it."""
    first = last_iteration(running.log) + 1
    load.bench_serve(check.options.metronome, running, scenario, out)
    last = last_iteration(running.log)
    log = out.with_suffix(".log")
    kept = []
    for line in running.log.read_text(errors="replace").splitlines(keepends=True):
        found = re.search(r"Iteration\((\d+)\)", line)
        if found is None or first <= int(found[1]) <= last:
            kept.append(line)
    log.write_text("".join(kept), encoding="utf-8")
    return {"range": f"{first}:{last}", "log": log, "measured": out}


def advise(check, run, scenario, folder):
    """The diagnosis of a run for a limit that it breaks, and the limit."""
    program = check.options.metronome
    longest = json.loads(load.metronome(program, "diagnose", run["log"], "--json"))[0]["max_itl_ms"]
    limit = SHARE * longest
    text = load.metronome(program, "diagnose", run["log"], "--scenario", scenario, "--target-itl",
                          f"{limit:.3f}", "--json")
    (folder / "advice.json").write_text(text, encoding="utf-8")
    what_if = json.loads(text)[0]["what_if"]
    if not what_if or not what_if.get("change"):
        raise RuntimeError("diagnose advises no change")
    return what_if, limit
