# SPDX-License-Identifier: Apache-2.0
"""findings.md: every promise with its verdict, and the tables of the bench."""

from gpu_checks.bench_tables import (bench_reports, choice_text, chosen_text, option_table,
                                     product_reports, product_table)
from gpu_checks.pairs import markdown_table, print_table
from gpu_checks.promises import (COMPARED, Findings, find_chunking, find_floors, find_idle,
                                 find_invariance, find_torch, find_validation, pieces_of)


# Exceptions of a reader for a file with garbage or of another version.
BROKEN = (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError, ZeroDivisionError)


def all_findings(folder, pieces):
    """The findings for every promise; an unreadable file is a finding."""
    findings = Findings()
    reports = bench_reports(folder)
    for promise, find in (("steps near their floors", lambda: find_floors(reports, findings)),
                          ("faster than PyTorch", lambda: find_torch(folder, findings)),
                          ("chunk-invariance", lambda: find_invariance(folder, findings)),
                          ("p99 ITL", lambda: find_chunking(pieces, findings)),
                          ("GPU idle", lambda: find_idle(pieces, findings)),
                          ("validation", lambda: find_validation(folder, pieces, findings))):
        try:
            find()
        except BROKEN as error:
            findings.missing(promise, f"its files cannot be read: {error!r}")
    return findings.rows


def section(title, make):
    """Lines of a table with a title; empty without rows."""
    try:
        lines = make()
    except BROKEN as error:
        lines = [f"Its files cannot be read: {error!r}"]
    return ["", f"## {title}", "", *lines] if lines else []


def option_lines(folder):
    rows = option_table(folder)
    return [chosen_text(folder), "", *markdown_table(rows)] if rows else []


def product_lines(folder):
    reports = product_reports(folder)
    return [*markdown_table(product_table(reports)), "", choice_text(reports)] if reports else []


def piece_table(piece):
    rows = [("setting", "TTFT p50 ms", "TTFT p99 ms", "ITL p50 ms", "ITL p99 ms", "tokens/s",
             "equal steps", "worst figure")]
    for name, validation in piece.validations.items():
        a, b = piece.measured[name], piece.simulated[name]
        cells = ["-" if None in (a[key], b[key]) else f"{a[key]:.{digits}f} / {b[key]:.{digits}f}"
                 for key, digits in (("p50_ttft_ms", 1), ("p99_ttft_ms", 1), ("p50_itl_ms", 2),
                                     ("p99_itl_ms", 2), ("output_throughput", 0))]
        decisions = validation.get("decisions")
        steps = f"{decisions['equal_steps']} of {decisions['measured_steps']}" if decisions else "-"
        figures = [(abs(figure["error"]), figure) for figure in validation["latencies"]
                   if (figure["metric"], figure.get("statistic")) in COMPARED]
        worst = max(figures, key=lambda pair: pair[0], default=(0, None))[1]
        rows.append((name, *cells, steps, "-" if worst is None else
                     f"{worst['metric']} {worst['statistic']} {worst['error']:+.1%}"))
    return markdown_table(rows)


def publish(folder):
    """Writes findings.md of a folder of gpu_check, and published/README.md with every run."""
    pieces = pieces_of(folder)
    rows = all_findings(folder, pieces)
    table = [("promise", "verdict", "figure"), *rows]
    devices = sorted({piece.measured[name]["hardware"] for piece in pieces
                      for name in piece.measured}
                     | {report.get("device", "?") for report in bench_reports(folder).values()})
    head = ["Measured on " + ("; ".join(devices) or "nothing yet") + ". Weights are drawn at "
            "random: times depend on the models' shapes, texts have no meaning.", ""]
    tables = [*markdown_table(table),
              *section("With the options that are off by default", lambda: option_lines(folder)),
              *section("Linear layers by every kernel", lambda: product_lines(folder))]
    (folder / "findings.md").write_text("\n".join(["# Findings", "", *head, *tables]) + "\n")
    print_table(table)
    if not pieces:
        return 0
    lines = ["# Measured and simulated runs", "", *head,
             "Each cell is measured / simulated. `scenario.yaml`, both results and `report.html` "
             "are in MODEL/WORKLOAD.", "",
             "To repeat this with a build that has CUDA: `tools/gpu_check --only "
             "machine,start,calibrate,published`.", ""]
    lines += markdown_table(table)
    for piece in pieces:
        lines += ["", f"## {piece.model}, {piece.workload}", "", *piece_table(piece)]
    (folder / "published" / "README.md").write_text("\n".join(lines) + "\n")
    return 0
