# SPDX-License-Identifier: Apache-2.0
"""Pairs of runs, measured (cuda/) and simulated (sim/), and pairs of bench reports."""

import json
import sys

# The scheduler's decisions in a step, without times, and which requests got tokens from which
# steps.
DECIDED = ("prefill_tokens", "decode_tokens", "emitted", "running", "waiting", "used_blocks",
           "preempted", "failed", "prefills")
METRICS = ("p50_ttft_ms", "p99_ttft_ms", "p50_itl_ms", "p99_itl_ms", "output_throughput")


def variants_of(run):
    """{variant name, or "" without variants: its folder}"""
    if (run / "result.json").exists():
        return {"": run}
    return {path.parent.name: path.parent for path in sorted(run.glob("*/result.json"))}


def result_of(folder):
    return json.loads((folder / "result.json").read_text())


def lines_of(path, keys):
    return [tuple(str(json.loads(line)[key]) for key in keys)
            for line in path.read_text().splitlines()]


def steps_of(folder):
    return lines_of(folder / "steps.jsonl", DECIDED)


def requests_of(folder):
    return lines_of(folder / "requests.jsonl", ("end", "output_tokens", "preemptions", "runs"))


def kv_blocks(run):
    options = []
    for name, folder in variants_of(run).items():
        result = result_of(folder)
        if result["config"]["kv_cache"]["backend"] == "paged":
            prefix = f"variants.{name}." if name else ""
            options.append(f"{prefix}kv_cache.num_blocks={result['num_kv_blocks']}")
    print(" ".join(options))
    return 0


def pairs_of(folder):
    for measured in sorted(folder.glob("**/cuda")):
        simulated = measured.parent / "sim"
        for name, variant in variants_of(measured).items():
            label = f"{measured.parent.relative_to(folder)} {name}".strip()
            yield label, variant, simulated / name


def print_table(rows):
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) if i == 0 else text.rjust(width)
                        for i, (text, width) in enumerate(zip(row, widths))).rstrip())


def decision_fault(measured, simulated):
    """None if both runs made the same steps."""
    a, b = steps_of(measured), steps_of(simulated)
    differing = [i for i, (x, y) in enumerate(zip(a, b)) if x != y]
    if differing or len(a) != len(b):
        first = differing[0] if differing else min(len(a), len(b))
        return f"differ from step {first} on"
    if requests_of(measured) != requests_of(simulated):
        return "differ in the tokens of requests"
    return None


def compare_decisions(folder):
    rows = [("scenario", "steps", "decisions")]
    has_difference = False
    for label, measured, simulated in pairs_of(folder):
        fault = decision_fault(measured, simulated)
        has_difference = has_difference or fault is not None
        rows.append((label, str(len(steps_of(measured))), fault or "identical"))
    print_table(rows)
    if len(rows) == 1:
        print(f"gpu_summary: no pair of runs in {folder}", file=sys.stderr)
        return 1
    return 1 if has_difference else 0


def compare_metrics(folder):
    rows = [("scenario",) + tuple(f"{name} measured / simulated" for name in METRICS)]
    for label, measured, simulated in pairs_of(folder):
        a, b = result_of(measured), result_of(simulated)
        cells = [f"{a[name]:.2f} / {b[name]:.2f} = {a[name] / b[name]:.2f}" if b[name] else "-"
                 for name in METRICS]
        rows.append((label, *cells))
    print_table(rows)
    return 0 if len(rows) > 1 else 1


CASE = ("decodes", "context", "chunk", "prefix")


def mixed_ratios(with_it, without):
    """[(step, its time with / without)] of the common steps with decodes and a chunk."""
    times = {tuple(point[key] for key in CASE): point["median_us"] for point in without["points"]}
    keys = [(tuple(point[name] for name in CASE), point["median_us"])
            for point in with_it["points"]]
    return [(key, median / times[key]) for key, median in keys
            if key in times and key[0] and key[2]]


def compare_invariance(paths):
    with_it, without = (json.loads(path.read_text()) for path in paths)
    case = CASE
    times = {tuple(point[key] for key in case): point["median_us"] for point in without["points"]}
    print(f"Cost of invariance '{with_it['invariance']}' over '{without['invariance']}': "
          f"{with_it['model']}, median times\n")
    rows = [("decodes at context, chunk after prefix", "with ms", "without ms", "ratio")]
    for point in with_it["points"]:
        key = tuple(point[name] for name in case)
        if key not in times:
            continue
        ratio = point["median_us"] / times[key]
        rows.append((f"{key[0]} at {key[1]}, {key[2]} after {key[3]}",
                     f"{point['median_us'] / 1e3:.3f}", f"{times[key] / 1e3:.3f}", f"{ratio:.3f}"))
    print_table(rows)
    mixed = [ratio for _, ratio in mixed_ratios(with_it, without)]
    if mixed:
        print(f"\nmixed steps: {100 * (sum(mixed) / len(mixed) - 1):.1f} % longer on average, "
              f"{100 * (max(mixed) - 1):.1f} % at most")
    return 0


def markdown_table(rows):
    lines = ["| " + " | ".join(rows[0]) + " |", "|" + "---|" * len(rows[0])]
    return lines + ["| " + " | ".join(row) + " |" for row in rows[1:]]
