# SPDX-License-Identifier: Apache-2.0
"""`advise` stands beside a server under four loads: a quiet one, long prompts among chats, a full KV
cache, and more requests than may run. It names the cause and the flags; the server is started again
by the command that it prints, and `advise` looks at the same load there. `verify` compares both
runs, without the drift of the machine."""

import contextlib
import dataclasses
import json
import os
import shlex
import shutil
import subprocess
import time

from . import install, load, server, settings

BUDGET = 2048
SHARE = 0.4  # of what the first look found: what is asked for

QUIET = """
  num_requests: {count}
  arrivals: {{process: constant, rate: 0.5}}
  prompt_tokens: {{distribution: uniform, min: 16, max: 64}}
  output_tokens: {{distribution: uniform, min: 16, max: 32}}
"""
CHATS = """
  num_requests: {count}
  arrivals: {{process: poisson, rate: 0.6}}
  prompt_tokens: {{distribution: lognormal, median: 120, p99: 2500, min: 16, max: 3000}}
  output_tokens: {{distribution: uniform, min: 32, max: 96}}
"""
FULL = """
  num_requests: {count}
  arrivals: {{process: poisson, rate: 1.2}}
  prompt_tokens: {{distribution: uniform, min: 200, max: 800}}
  output_tokens: {{distribution: uniform, min: 40, max: 80}}
"""
SLOTS = """
  num_requests: {count}
  arrivals: {{process: poisson, rate: 1.2}}
  prompt_tokens: {{distribution: uniform, min: 32, max: 128}}
  output_tokens: {{distribution: uniform, min: 30, max: 60}}
"""


@dataclasses.dataclass
class Case:
    name: str
    load: str
    causes: tuple = ()        # one of them is found
    flags: tuple = ()         # one of them is among those advised
    goal: str = ""            # the option
    figure: tuple = ()        # its figure in the report: keys
    verified: str = ""        # the figure of `verify` that falls
    blocks: int = 0
    max_num_seqs: int = 64
    count: int = 60


TTFT = ("window", "ttft_ms", "p99", "estimate")
CASES = (
    Case("quiet", QUIET, count=20),
    Case("long-prompts", CHATS, ("prefill",), ("--max-num-batched-tokens",), "--target-itl",
         ("log", "max_itl_ms"), "p99_itl_ms"),
    Case("full-cache", FULL, ("full",), ("--num-gpu-blocks-override", "--max-num-seqs"),
         "--target-ttft", TTFT, "p99_ttft_ms", blocks=settings.FULL, count=32),
    Case("overload", SLOTS, ("slots",), ("--max-num-seqs",), "--target-ttft", TTFT,
         "p99_ttft_ms", max_num_seqs=4, count=50),
)
QUIET_GOALS = ["--target-itl", "1500", "--target-ttft", "5000"]


def check(check):
    venv = install.vllm()
    model = install.model(venv)
    folder = check.folder / "advise"
    shutil.rmtree(folder, ignore_errors=True)
    rows = []
    for case in CASES:
        place = folder / case.name
        place.mkdir(parents=True)
        row = examine(check, venv, model, case, place)
        rows.append(row)
        check.say(f"advise: {case.name}: " + ", ".join(f"{key} {row[key]}" for key in row
                                                      if key not in ("name", "command")))
    check.keep("advise", {"cases": rows, "load_average": os.getloadavg()[0]})


def setting_of(case):
    return settings.Setting(case.name, case.name, budget=BUDGET, blocks=case.blocks,
                            load=case.load)


def flags_of(case):
    flags = setting_of(case).server_flags()
    flags[flags.index("--max-num-seqs") + 1] = str(case.max_num_seqs)
    return [*flags, "--enable-log-requests"]  # without it a log shows no waits


def examine(check, venv, model, case, place):
    """One load: what was found, and what the restart did."""
    row = {"name": case.name}
    with server.vllm_server(venv, model, place, flags_of(case), kv_gib=1) as running:
        scenario = place / "scenario.yaml"
        scenario.write_text(setting_of(case).scenario(
            model / "config.json", load.cache_blocks(running), case.count, 1, check.options.seed),
            encoding="utf-8")
        with loaded(check, running, scenario, place / "before"):
            first = look(check, running, 15, "--no-replay", *QUIET_GOALS)
            if not case.goal:
                row["causes"] = names(first)
                row["broken"] = broken(first)
                if row["causes"] or row["broken"]:
                    check.fault(f"advise: {case.name}: {row}")
                return row
            limit = SHARE * value_of(first, case.figure)
            goal = [case.goal, f"{limit:.1f}"]
            wait_for_steps(running)
            second = look(check, running, 20, *goal)
            (place / "advice.json").write_text(json.dumps(second, indent=1), encoding="utf-8")
    row.update(goal=" ".join(goal), causes=names(second), broken=broken(second))
    if not set(case.causes) & set(row["causes"]):
        check.fault(f"advise: {case.name}: the causes are {row['causes']}, not {case.causes}")
    advice = second["advice"] or {}
    row["flags"] = advice.get("flags")
    row["before_ms"] = round(value_of(second, case.figure))
    if not row["flags"] or not any(flag in row["flags"] for flag in case.flags):
        check.fault(f"advise: {case.name}: the flags are {row['flags']}: {second['notes']} "
                    f"{advice.get('change')}")
        return row
    row["command"] = advice["command"]
    with restarted(venv, advice["command"], place) as running:
        with loaded(check, running, scenario, place / "after"):
            look(check, running, 15, "--no-replay", *goal)
            third = look(check, running, 20, "--no-replay", *goal)
    (place / "after.json").write_text(json.dumps(third, indent=1), encoding="utf-8")
    row["after_ms"] = round(value_of(third, case.figure))
    row["causes_after"] = names(third)
    row["broken_after"] = broken(third)
    row.update(compared(check, case, place))
    if row["without_drift"] >= row["before"]:
        check.fault(f"advise: {case.name}: {row['flags']} does not help: {row}")
    return row


def compared(check, case, place):
    """The figure of the whole load before and after, and the drift between them."""
    sides = [("--before", place / "server.log", place / "before"),
             ("--after", place / "restarted/server.log", place / "after")]
    files = [word for option, log, result in sides for word in (option, log, option, result)]
    verified = json.loads(load.metronome(check.options.metronome, "verify", *files, "--json"))
    figure = next(one for one in verified["figures"] if one["figure"] == case.verified)
    return {"verified": case.verified, "before": figure["before"]["mean"],
            "without_drift": figure["without_drift"]["mean"]}


def restarted(venv, command, place):
    """The server that the printed command starts, on another port."""
    words = shlex.split(command)
    words[0] = venv / "bin/vllm"
    words[words.index("--port") + 1] = "{port}"
    after = place / "restarted"
    after.mkdir()
    return server.Server(words, after / "server.log", server.variables_of(kv_gib=1))


@contextlib.contextmanager
def loaded(check, running, scenario, out):
    """The scenario's requests go to the server; some have come before the block begins."""
    command = [check.options.metronome, "bench-serve", running.url, "--scenario", scenario, "--out",
               out, "-q"]
    with subprocess.Popen([str(part) for part in command], cwd=load.ROOT) as client:
        try:
            time.sleep(10)
            yield
            client.wait()
        finally:
            client.kill()


def look(check, running, seconds, *options):
    """The report of `advise --once`."""
    text = load.judged(check.options.metronome, "advise", running.url, "--once", "--interval",
                       seconds, "--timeout", 60, "--log", running.log, "--json", *options,
                       accepts=(0, 3))[1]
    return json.loads(text)


def wait_for_steps(running, enough=150, most_s=240):
    """Until the log has steps for a fit; a busy machine computes few a second."""
    deadline = time.monotonic() + most_s
    while time.monotonic() < deadline:
        if running.log.read_text(errors="replace").count("Iteration(") >= enough:
            return
        time.sleep(1)


def names(report):
    return [cause["cause"] for cause in report["causes"]]


def broken(report):
    return [goal["words"] for goal in report["goals"] if goal["state"] == "broken"]


def value_of(report, keys):
    for key in keys:
        if report is None:
            raise RuntimeError(f"the report has no {'.'.join(keys)}")
        report = report[key]
    return report
