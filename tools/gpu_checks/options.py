# SPDX-License-Identifier: Apache-2.0
"""The `cuda` options that are off by default: times them, and enables those that gain in later
stages."""

import dataclasses
import json
import math

from gpu_checks.run import Failure, NoTime

KERNEL_TESTS = ("norm", "heads", "elementwise", "prefill_attention", "decode_attention",
                "decode_gemm", "prefill_gemm", "sampling")
LEAST_GAIN = 1.01  # over all steps of the bench; less is noise


@dataclasses.dataclass(frozen=True)
class Option:
    flag: str  # of `metronome bench`
    tests: tuple  # that cover the option


OFF = {"early_launches": Option("--early-launches", ("batching",)),
       "fused_decodes": Option("--fused-decodes", ("decode_gemm", "batching", "model")),
       "wgmma_attention": Option("--wgmma-attention", ("prefill_attention", "chunking")),
       "wgmma_products": Option("--wgmma-products", ("prefill_gemm", "chunking"))}


def faults(run, name):
    """{test file of the option: how it ended} for the files that did not pass."""
    ends = {test: run.test_files.get(f"test_gpu_{test}", "not run") for test in OFF[name].tests}
    return {test: end for test, end in ends.items() if end != "passed"}


def bench_command(run, model, invariance, chosen, name):
    flags = [OFF[option].flag for option in chosen]
    return [run.metronome, "bench", model, "--invariance", invariance, "--json",
            str(run.out / name), *flags]


def gain(default, other):
    """The geometric mean of the speedups of one bench's steps over another's. Raises ValueError if
    the steps differ."""
    def medians(report):
        return {tuple(point[key] for key in ("decodes", "context", "chunk", "prefix")):
                point["median_us"] for point in report["points"]}
    ours, theirs = medians(default), medians(other)
    if not ours or ours.keys() != theirs.keys():
        raise ValueError("its steps differ from those of the default")
    return math.exp(sum(math.log(ours[step] / theirs[step]) for step in ours) / len(ours))


def gains_of(run, names, log):
    """The gain of each option over the default, if its bench passed."""
    reports = {}
    for name in ("default", *names):
        path = run.out / f"options.{name}.json"
        if f"options: {name}" not in run.done:
            continue
        try:
            reports[name] = json.loads(path.read_text())
        except FileNotFoundError:
            continue
        except (OSError, ValueError) as error:
            run.note(log, f"{path.name} cannot be read: {error}")
    default = reports.pop("default", None)
    found = {}
    for name, report in reports.items() if default else ():
        try:
            found[name] = gain(default, report)
        except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
            run.note(log, f"options.{name}.json is not a report of a bench: {error!r}")
    return found


def sort_out(run, log):
    """({set: its options} to be timed, options that may be chosen, options that wait for tests)."""
    sets, proven, waiting = {"default": []}, set(), []
    for name in OFF:
        wrong = faults(run, name)
        text = ", ".join(f"test_gpu_{test} {end}" for test, end in wrong.items())
        if any(end.startswith(("crashed", "hung")) for end in wrong.values()):
            run.note(log, f"{name} is not timed: {text}")
            continue
        sets[name] = [name]
        if not wrong:
            proven.add(name)
            continue
        run.note(log, f"{name} is timed, but cannot be chosen: {text}")
        if all(end.startswith(("slow", "not run")) for end in wrong.values()):
            waiting.append(name)
    return sets, proven, waiting


def choose(run, log):
    """Times one model with each option, then with the gaining options together. An option whose
    tests crashed or hung is not tried. The best set whose tests passed is enabled for later stages;
    a later call chooses again."""
    sets, proven, waiting = sort_out(run, log)

    def measure(names):
        for name in names:
            if f"options: {name}" not in run.done:  # a leftover of a bench that did not end
                (run.out / f"options.{name}.json").unlink(missing_ok=True)
        run.call_all([(name, bench_command(run, run.options.models[0], run.invariance, sets[name],
                                           f"options.{name}.json"))
                      for name in names], log, 80, least=15)

    def select():
        """The sets that gain, from the options that may be chosen. Enables the best of them."""
        gains = {name: factor for name, factor in gains_of(run, sets, log).items()
                 if factor > LEAST_GAIN and proven.issuperset(sets[name])}
        run.chosen = sets[max(gains, key=gains.get)] if gains else []
        return [name for name in gains if name in OFF]
    failures = []

    def try_to_measure(names):
        try:
            measure(names)
        except Failure as failure:
            failures.append(failure)
    try_to_measure(list(sets))
    gaining = select()
    if len(gaining) > 1:
        sets["together"] = gaining
        of = f"options: together of {', '.join(gaining)}"
        if of not in run.done:
            run.done = [place for place in run.done if place != "options: together"]
        try_to_measure(["together"])
        if "options: together" in run.done:
            run.keep(of)
        select()
    run.note(log, f"enabled in later stages: {', '.join(run.chosen) or 'none'}")
    if failures:
        raise failures[0]
    if waiting:
        raise NoTime(f"tests of {', '.join(waiting)} have not ended")
