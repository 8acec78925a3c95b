# SPDX-License-Identifier: Apache-2.0
"""Records cases in parallel, lets Metronome decide them, and counts by kind."""

import collections
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
RECORD = pathlib.Path(__file__).resolve().parent / "record.py"
DIFFERENCE = re.compile(r"^.*?:(\d+): (seed .*)$")


@dataclasses.dataclass
class Result:
    title: str
    num_cases: collections.Counter
    num_identical: collections.Counter
    num_refused: collections.Counter  # cases on which the engine itself failed
    num_faulty: collections.Counter   # by kind and name: those that show a known fault of it
    first: dict                       # by kind: the first difference

    def is_identical(self):
        return self.num_identical.total() == self.num_cases.total() > 0

    def table(self):
        lines = [self.title, f"{'kind':<24} {'identical':>9} / cases"]
        for kind, count in self.num_cases.items():
            notes = [f"the engine fails on {self.num_refused[kind]} more"] * (
                self.num_refused[kind] > 0)
            notes += [f"{more} more with the engine's fault '{fault}'"
                      for (of, fault), more in self.num_faulty.items() if of == kind]
            lines.append(f"{kind:<24} {self.num_identical[kind]:>9} / {count}"
                         + "".join("   " + note for note in notes))
        lines.append(f"{'all':<24} {self.num_identical.total():>9} / {self.num_cases.total()}")
        lines += [f"{kind}: {text}" for kind, text in self.first.items()]
        return "\n".join(lines)


def draw_cases(engine, version, kinds, options):
    """As many of each kind, in turn."""
    for i in range(options.cases):
        kind = kinds[i % len(kinds)]
        yield engine.cases.draw_case(options.seed + i // len(kinds), version, kind, options.size)


def record(engine, folder, cases):
    """The cases with the engine's steps, in their order."""
    num_jobs = os.cpu_count() or 1
    jobs = []
    for job in range(num_jobs):
        lines = "".join(json.dumps(case) + "\n" for case in cases[job::num_jobs])
        source = tempfile.TemporaryFile("w+")
        source.write(lines)
        source.seek(0)
        sink = tempfile.TemporaryFile("w+")
        jobs.append((subprocess.Popen([sys.executable, RECORD, engine.recorder, str(folder)],
                                      stdin=source, stdout=sink), sink))
    recorded = [None] * len(cases)
    for job, (process, sink) in enumerate(jobs):
        if process.wait() != 0:
            raise RuntimeError(f"the recorder ended with {process.returncode}")
        sink.seek(0)
        recorded[job::num_jobs] = [json.loads(line) for line in sink]
    return recorded


def compare(engine, version, folder, kinds, options):
    cases = record(engine, folder, list(draw_cases(engine, version, kinds, options)))
    result = Result(f"{engine.package} {version}, seeds from {options.seed}, size {options.size}",
                    *(collections.Counter() for _ in range(4)), {})
    good = [case for case in cases if "steps" in case and "fault" not in case]
    result.num_faulty.update((case["kind"], case["fault"]) for case in cases if "fault" in case)
    result.num_refused.update(case["kind"] for case in cases if "error" in case)
    with tempfile.TemporaryDirectory() as scratch:
        path = pathlib.Path(options.keep or f"{scratch}/cases.jsonl")
        path.write_text("".join(json.dumps(case, separators=(",", ":")) + "\n" for case in good))
        done = subprocess.run([ROOT / "build/release/metronome", "decisions", "--engine",
                               engine.decisions, path, "--check"],
                              capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1):
        raise RuntimeError(done.stderr)
    result.num_cases.update(case["kind"] for case in good)
    result.num_identical.update(result.num_cases)
    for line in done.stdout.splitlines():
        if match := DIFFERENCE.match(line):
            kind = good[int(match[1]) - 1]["kind"]
            result.num_identical[kind] -= 1
            result.first.setdefault(kind, match[2])
    return result
