# SPDX-License-Identifier: Apache-2.0
"""The calls for half an hour on a GPU machine, or for less."""

import dataclasses
import shlex

ARCHIVE = "build/gpu_check.tar.xz"
BUDGET = 480  # of a call's 600 s; the rest is for late ends and for transfers
MINUTES = 30  # of all three calls
START = 90  # seconds until a machine takes its first command
AFTER = 90  # seconds of a call that follow its budget
LEAST_BUDGET = 120  # a shorter call has little behind its start
LLAMA = ("llama-3.2-3b",)


@dataclasses.dataclass(frozen=True)
class Call:
    number: int
    machine: str
    models: tuple  # empty: all
    stages: dict  # name: expected seconds on an H200, derived from the stage's work
    budget: int = BUDGET

    def carry(self):
        return [ARCHIVE] + ([f"results/call{self.number - 1}"] if self.number > 1 else [])

    def command(self, build=ARCHIVE, more=()):
        words = ["tools/gpu_check", "--build", build, "--out", "results/gpu_check", "--archive",
                 "$OUT"]
        if self.number > 1:
            words += ["--resume", f"results/call{self.number - 1}"]
        if self.models:
            words += ["--models", ",".join(self.models)]
        words += ["--only", ",".join(self.stages), "--budget", str(self.budget), *more]
        return " ".join('"$OUT"' if word == "$OUT" else shlex.quote(word) for word in words)

    def expected(self):
        return sum(self.stages.values())


CALLS = (
    Call(1, "an H100 or an H200", LLAMA,
         {"machine": 5, "start": 45, "tests": 150, "options": 90, "products": 45, "bench": 25,
          "torch": 60, "decisions": 35}),
    Call(2, "the same", LLAMA,
         {"machine": 5, "tests": 0, "options": 0, "calibrate": 75, "published": 230, "parity": 110,
          "torch": 0, "decisions": 0}),
    Call(3, "an H200", (),
         {"machine": 5, "start": 0, "tests": 0, "options": 0, "bench": 110, "calibrate": 150,
          "published": 210, "torch": 0}))


def calls_for(minutes):
    """The calls that fit into a machine's minutes, its start included. The last has what is
    left. Raises ValueError for too few minutes."""
    if not minutes >= least_minutes():
        raise ValueError(f"--minutes: {minutes:g} is out of range; allowed: at least "
                         f"{least_minutes():g}")
    left = minutes * 60 - START
    calls = []
    for call in CALLS:
        budget = int(min(BUDGET, left - AFTER))
        if budget < LEAST_BUDGET:
            break
        calls.append(dataclasses.replace(call, budget=budget))
        left -= budget + AFTER
    return calls


def least_minutes():
    return (START + AFTER + LEAST_BUDGET) / 60


def call_lines(call):
    return [f"Call {call.number}, on {call.machine}: {call.expected()} s expected, at most "
            f"{call.budget} s and the command that runs then",
            f"  carry    {' '.join(call.carry())}",
            f"  command  {call.command()}",
            "  stages   " + ", ".join(f"{name} {seconds} s" if seconds else
                                      f"{name} (the rest of it)"
                                      for name, seconds in call.stages.items()),
            ""]


def plan_text(minutes):
    calls = calls_for(minutes)
    lines = [
        "Before: tools/build cuda-portable && tools/gpu_check pack",
        "After call N: copy the returned files to results/callN; unpack them with `tools/gpu_check",
        "unpack results/callN --out FOLDER`. To repeat a call, also carry its own archive, and",
        "--resume from it.",
        ""]
    for call in calls:
        lines += call_lines(call)
    last = calls[-1]
    if last.budget < BUDGET:
        lines += [f"{minutes:g} minutes end call {last.number} early. With the next machine, repeat "
                  f"it with --budget",
                  f"{BUDGET} and its own archive to resume."]
    if len(calls) < len(CALLS):
        lines += [f"Calls after call {last.number} need another machine: `tools/gpu_check plan` "
                  "prints them."]
    elif last.budget == BUDGET:
        lines += ["The published runs of call 3 need about 200 s more than it has: repeat it with "
                  "its",
                  "own archive to resume. On another GPU than in calls 1 and 2 it begins with start,",
                  "tests and options; each GPU has its own folder in the results."]
    return "\n".join(lines)
