# SPDX-License-Identifier: Apache-2.0
"""Random serving points of silicon_sample.csv, each from one line: only what its row says of model,
GPU, engine, version, precision, GPUs, clients and lengths. Left out are the rows that the page leaves
out; those that something was fitted to stay in."""

import csv
import random
import statistics

import page
import silicon
from composed import composed, divided, line_of
from points import simulate
from rows import NotCovered, identity

FIGURES = ("mean_tpot_ms", "mean_ttft_ms")


def draw(systems, count, seed):
    """Points of `count` rows, without what their dates tell."""
    rows = [row for row in csv.DictReader(open(systems / "silicon_sample.csv", newline=""))
            if row["mode"] == "agg"]
    random.Random(seed).shuffle(rows)
    points, seen = [], set()
    for row in rows:
        if len(points) == count:
            break
        try:
            point = silicon.point_of(row, systems)
        except NotCovered:
            continue
        if point.lacks_limit or identity(row) in seen:
            continue
        seen.add(identity(row))
        point.line = line_of(row, point.gpu, point.base["model"],
                             point.base.get("quantization", "auto"), point.degree,
                             row["backend_version"])
        scenario, _ = composed(point.line)
        point.base, point.scenario = divided(scenario)
        points.append(point)
    return points


def text(points):
    """A table of the points and their mean errors."""
    rows = []
    for point in points:
        simulate([point], "roofline", {})
        cells = [" ".join(point.line)]
        for figure in FIGURES:
            figures = point.simulated["roofline"]
            if not isinstance(figures, dict):
                return f"{' '.join(point.line)}: {figures}"
            cells += [f"{point.measured[figure]:.1f}", f"{figures[figure]:.1f}",
                      page.percent(point.error("roofline", figure), True)]
        rows.append(cells)
    head = ["metronome scenario", "TPOT ms", "simulated", "%", "TTFT ms", "simulated", "%"]
    means = []
    for name, figure in zip(("TPOT", "TTFT"), FIGURES):
        errors = [point.error("roofline", figure) for point in points]
        sizes = [abs(error) for error in errors]
        means.append(f"{name} {page.percent(statistics.mean(sizes))} % "
                     f"(median {page.percent(statistics.median(sizes))} %, "
                     f"bias {page.percent(statistics.mean(errors), True)} %)")
    return page.table(head, rows) + f"\n\nmean |error|: {', '.join(means)}\n"
