# SPDX-License-Identifier: Apache-2.0
"""Tables from reports of `metronome bench`: steps beside their floors, steps with optional
features, and linear layers by every kernel.
"""

import json
import math
import sys

def read_json(path):
    """None for a missing file, and for a file that is not JSON, which is reported."""
    try:
        return json.loads(path.read_text())
    except OSError:
        return None
    except ValueError as error:
        print(f"gpu_summary: {path} is not JSON ({error}) and counts as missing", file=sys.stderr)
        return None


def is_report(report):
    """Whether the report has the keys that the tables read."""
    try:
        return all(isinstance(report[key], str) for key in ("model", "invariance")) and all(
            isinstance(point["median_us"], (int, float)) for point in report["points"])
    except (KeyError, TypeError):
        return False


def bench_reports(folder):
    """{model: report}, with the invariance that the check ran with."""
    reports = {}
    for path in sorted(folder.glob("bench.*.json")):
        report = read_json(path)
        if not is_report(report):
            continue
        if report["invariance"] != "none" or report["model"] not in reports:
            reports[report["model"]] = report
    return reports


def point_of(report, decodes=0, context=0, chunk=0, prefix=0):
    wanted = {"decodes": decodes, "context": context, "chunk": chunk, "prefix": prefix}
    for point in report["points"]:
        if all(point[key] == value for key, value in wanted.items()) and "floor_us" in point:
            return point
    return None


def option_table(folder):
    """Steps with the features that are off by default, if stage options measured them; else
    none."""
    names = ("default", "early_launches", "fused_decodes", "wgmma_attention",
             "wgmma_products", "together")
    files = {name: read_json(folder / f"options.{name}.json") for name in names}
    reports = {name: report for name, report in files.items() if report is not None}
    if "default" not in reports:
        return []
    steps = [(f"{batch} decodes at 2k", {"decodes": batch, "context": 2048})
             for batch in (1, 8, 64)]
    steps += [(f"chunk of {chunk}" + (f" after {prefix}" if prefix else ""),
               {"chunk": chunk, "prefix": prefix})
              for prefix in (0, 8192, 16384) for chunk in (128, 512, 2048)]
    rows = [("step of " + reports["default"]["model"], *(f"{name} ms" for name in reports))]
    for text, what in steps:
        points = [point_of(report, **what) for report in reports.values()]
        if not any(points):
            continue
        rows.append((text, *(f"{point['median_us'] / 1e3:.3f} "
                             f"({point['floor_us'] / point['median_us']:.1%} of the floor)"
                             if point else "not measured" for point in points)))
    return rows


def chosen_text(folder):
    chosen = (read_json(folder / "state.json") or {}).get("chosen", [])
    return ("All later stages ran with " + (", ".join(f"`cuda.{name}`" for name in chosen)
                                                or "none of them") + ".")


PRODUCT_TOKENS = (64, 128, 512, 2048)


def tiles_of(point):
    """Tiles of launch_prefill_gemm: the chosen and the fastest; None without them."""
    tiles = [kernel for kernel in point["kernels"] if kernel["kernel"] == "prefill_gemm"]
    chosen = next((tile for tile in tiles if tile["chosen"]), None)
    return tiles, chosen, min(tiles, key=lambda tile: tile["us"], default=None)


def us_of(point, kernel):
    return next((timed["us"] for timed in point["kernels"] if timed["kernel"] == kernel), None)


def tile_text(tile):
    if tile is None:
        return "not measured"
    return f"{tile['us']:.2f} ({tile['rows']} x {tile['columns']} x {tile['cluster']})"


def product_table(reports):
    rows = [("model", "product", "tokens", "floor us", "cuBLASLt invariant us", "chosen tile us",
             "best tile us")]
    for report in reports:
        for point in report["points"]:
            if point["tokens"] not in PRODUCT_TOKENS:
                continue
            _, chosen, best = tiles_of(point)
            invariant = us_of(point, "cublaslt invariant")
            rows.append((report["model"], point["product"], str(point["tokens"]),
                         f"{point['floor_us']:.2f}",
                         "not measured" if invariant is None else f"{invariant:.2f}",
                         tile_text(chosen), tile_text(best)))
    return rows


def mean_text(ratios):
    if not ratios:
        return "not measured"
    mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
    return f"{mean:.3f} over {len(ratios)} points"


def choice_text(reports):
    """The loss from the choice of tiles. For few tokens only one tile was timed, and only some at a
    point where a bench ended: these do not show the best."""
    by_best, by_library = [], []
    for report in reports:
        most = max((len(tiles_of(point)[0]) for point in report["points"]), default=0)
        for point in report["points"]:
            tiles, chosen, best = tiles_of(point)
            invariant = us_of(point, "cublaslt invariant")
            if chosen and len(tiles) == most > 1:
                by_best.append(chosen["us"] / best["us"])
            if chosen and invariant:
                by_library.append(chosen["us"] / invariant)
    return (f"Geometric means: chosen / best tile {mean_text(by_best)}; chosen tile / cuBLASLt "
            f"invariant {mean_text(by_library)}.")


def product_reports(folder):
    reports = [read_json(path) for path in sorted(folder.glob("products.*.json"))]
    return [report for report in reports if report is not None]
