# SPDX-License-Identifier: Apache-2.0
"""The promises for a GPU, and whether a folder of gpu_check fulfils them."""

import json
import sys

from gpu_checks.bench_tables import point_of, read_json
from gpu_checks.pairs import decision_fault, mixed_ratios, pairs_of, result_of

# Minimum floor / measured time of a step.
DECODE_SHARE, SMALL_DECODE_SHARE = 0.80, 0.60
CHUNK_SHARES, SMALL_CHUNK_SHARES = {512: 0.70, 2048: 0.85}, {512: 0.50, 2048: 0.70}
ATTENTION_TFLOPS = 400
INVARIANCE_COST = 0.05
ITL_GAIN, THROUGHPUT_LOSS = 10, 0.03
IDLE_SHARE = 0.03
FIGURE_ERROR = 0.05
COMPARED = [(metric, statistic) for metric in ("ttft", "tpot", "itl", "e2el")
            for statistic in ("mean", "p50", "p90", "p99")]
# Settings within this distance may come in either order.
RANK_TIE = 0.02
RANKED = ("p99_itl_ms", "p50_ttft_ms", "output_throughput")


class Findings:
    """Rows (promise, verdict, figure)."""

    def __init__(self):
        self.rows = []

    def add(self, promise, is_met, figure):
        verdict = "not measured" if is_met is None else "PASS" if is_met else "FAIL"
        self.rows.append((promise, verdict, figure))

    def missing(self, promise, why):
        self.add(promise, None, why)


def is_small(model):
    return model.startswith("gemma-3-1b")


def attention_flops(shape, chunk, prefix):
    """FLOPs of scores and values, by the positions that each query attends to."""
    def pairs(window):
        return sum(min(position + 1, window) for position in range(prefix, prefix + chunk))
    interval, layers = shape["global_layer_interval"], shape["n_layers"]
    has_window = shape["sliding_window"] > 0
    global_layers = layers // interval if has_window and interval else layers
    windows = (layers - global_layers) * pairs(shape["sliding_window"]) if has_window else 0
    return 4 * shape["n_heads"] * shape["head_dim"] * (
        global_layers * pairs(prefix + chunk) + windows)


def find_floors(reports, findings):
    if not reports:
        for promise in ("decode steps near their floor", "prefill chunks near their floor",
                        f"attention over a 16k prefix: {ATTENTION_TFLOPS} TFLOP/s"):
            findings.missing(promise, "no report of stage bench")
    for model, report in reports.items():
        least = SMALL_DECODE_SHARE if is_small(model) else DECODE_SHARE
        for batch in (1, 8, 64):
            promise = f"{model}: decodes at 2k, batch {batch}, {least:.0%} of the floor"
            point = point_of(report, decodes=batch, context=2048)
            add_share(findings, promise, point, least)
        for chunk, least in (SMALL_CHUNK_SHARES if is_small(model) else CHUNK_SHARES).items():
            promise = f"{model}: chunk of {chunk}, {least:.0%} of the floor"
            add_share(findings, promise, point_of(report, chunk=chunk), least)
        promise = f"{model}: attention over a 16k prefix, {ATTENTION_TFLOPS} TFLOP/s"
        short, long = point_of(report, chunk=2048), point_of(report, chunk=2048, prefix=16384)
        if short is None or long is None or long["median_us"] <= short["median_us"]:
            findings.missing(promise, "no such steps in the bench")
            continue
        flops = (attention_flops(report["shape"], 2048, 16384)
                 - attention_flops(report["shape"], 2048, 0))
        rate = flops / (long["median_us"] - short["median_us"]) / 1e6
        findings.add(promise, rate >= ATTENTION_TFLOPS,
                     f"{rate:.0f} TFLOP/s: additional work by additional time of the prefix")


def add_share(findings, promise, point, least):
    if point is None:
        findings.missing(promise, "no such step in the bench")
        return
    share = point["floor_us"] / point["median_us"]
    findings.add(promise, share >= least, f"{share:.1%}: {point['median_us'] / 1e3:.3f} ms, floor "
                 f"{point['floor_us'] / 1e3:.3f} ms")


def find_torch(folder, findings):
    promise = "faster than PyTorch at every step of the bench"
    reports = [read_json(path) for path in sorted(folder.glob("torch*.json"))]
    reports = [report for report in reports if report is not None]
    if not reports:
        findings.missing(promise, "no report of stage torch")
        return
    ratios = [point["torch_by_ours"] for report in reports for model in report["models"]
              for point in model["points"]]
    if not ratios:
        findings.missing(promise, "no steps")
        return
    findings.add(promise, min(ratios) > 1,
                 f"{sum(ratio > 1 for ratio in ratios)} of {len(ratios)} steps; the worst takes "
                 f"{1 / min(ratios):.2f} of PyTorch's time")


def find_invariance(folder, findings):
    promise = f"chunk-invariance costs less than {INVARIANCE_COST:.0%} of a mixed step"
    for path in sorted(folder.glob("bench.*.none.json")):
        without = read_json(path)
        with_it = read_json(path.with_name(path.name.replace(".none.", ".chunk.")))
        if with_it is None:
            continue
        ratios = [ratio for _, ratio in mixed_ratios(with_it, without)]
        if ratios:
            mean = sum(ratios) / len(ratios) - 1
            findings.add(promise, mean < INVARIANCE_COST, f"{mean:.1%} on average over "
                         f"{len(ratios)} mixed steps of {without['model']}, {max(ratios) - 1:.1%} "
                         "at most")
            return
    findings.missing(promise, "no bench with an invariance and without")


def idle_share(folder):
    """The share of time between steps, with none on the device, from the first step to the last."""
    busy, last = 0, None
    with open(folder / "steps.jsonl", encoding="utf-8") as file:
        steps = [json.loads(line) for line in file]
    for step in steps:
        begin = step["started_ns"] if last is None else max(last, step["started_ns"])
        busy += step["finished_ns"] - begin
        last = step["finished_ns"]
    return 1 - busy / (last - steps[0]["started_ns"])


class Piece:
    """One workload of one model, measured and simulated."""

    def __init__(self, place):
        self.model, self.workload = place.parent.name, place.name
        validation = read_json(place / "validation.json")
        self.is_calibrated = validation["is_calibrated"]
        self.validations = validation["variants"]
        self.folders = {name: place / "cuda" / name for name in self.validations}
        self.measured = {name: result_of(folder) for name, folder in self.folders.items()}
        self.simulated = {name: result_of(place / "sim" / name) for name in self.validations}
        self.label = f"{self.model} {self.workload}"

    def chunked(self):
        return [name for name in self.measured if name != "unchunked"]

    def errors(self):
        """[(|error|, "variant ttft p99 +4.2 %")] of all figures of all variants."""
        found = []
        for name, validation in self.validations.items():
            for figure in validation["latencies"]:
                if (figure["metric"], figure.get("statistic")) in COMPARED:
                    found.append((abs(figure["error"]), f"{name} {figure['metric']} "
                                  f"{figure['statistic']} {figure['error']:+.1%}"))
        return found

    def misranked(self):
        """(pairs of settings, ["A before B by p99_itl_ms"]): pairs that the simulation orders
        opposite to the measurement."""
        names, pairs, wrong = list(self.measured), 0, []
        for key in RANKED:
            for i, first in enumerate(names):
                for second in names[i + 1:]:
                    a, b = self.measured[first][key], self.measured[second][key]
                    c, d = self.simulated[first][key], self.simulated[second][key]
                    if None in (a, b, c, d) or abs(a - b) <= RANK_TIE * max(a, b):
                        continue
                    pairs += 1
                    if (a < b) != (c < d) and abs(c - d) > RANK_TIE * max(c, d):
                        wrong.append(f"{first} and {second} by {key}")
        return pairs, wrong


def pieces_of(folder):
    """The complete pieces; incomplete ones are reported."""
    pieces = []
    for path in sorted((folder / "published").glob("*/*/validation.json")):
        try:
            pieces.append(Piece(path.parent))
        except (OSError, ValueError, KeyError, TypeError) as error:
            print(f"gpu_summary: {path.parent} cannot be read ({error!r}) and counts as missing",
                  file=sys.stderr)
    return pieces


def find_chunking(pieces, findings):
    promise = (f"p99 ITL {ITL_GAIN} times better with chunking, throughput within "
               f"{THROUGHPUT_LOSS:.0%}")
    long_prompts = [piece for piece in pieces if piece.workload == "chunked_prefill"
                    and "unchunked" in piece.measured]
    if not long_prompts:
        findings.missing(promise, "chunked_prefill has not run")
    for piece in long_prompts:
        whole = piece.measured["unchunked"]
        gains = []
        for name in piece.chunked():
            run = piece.measured[name]
            kept = run["output_throughput"] / whole["output_throughput"] - 1
            gains.append((kept >= -THROUGHPUT_LOSS, whole["p99_itl_ms"] / run["p99_itl_ms"], name,
                          kept))
        is_kept, gain, name, kept = max(gains)
        findings.add(f"{piece.model}: {promise}", is_kept and gain >= ITL_GAIN,
                     f"{gain:.1f} times with {name}, throughput {kept:+.1%}")


def find_idle(pieces, findings):
    promise = f"GPU idle for less than {IDLE_SHARE:.0%} of a busy run"
    bursts = [piece for piece in pieces if piece.workload == "paged_attention"]
    if not bursts:
        findings.missing(promise, "paged_attention, with all requests at the start, has not "
                         "run")
    for piece in bursts:
        shares = {name: idle_share(folder) for name, folder in piece.folders.items()}
        worst = max(shares, key=shares.get)
        findings.add(f"{piece.model}: {promise}", shares[worst] < IDLE_SHARE,
                     f"{shares[worst]:.1%} at most, with {worst}")


def find_validation(folder, pieces, findings):
    decided = sorted((folder / "decisions").glob("*/*/cuda"))
    promise = "decisions identical in simulation and measurement, if they do not depend on time"
    if not decided:
        findings.missing(promise, "stage decisions has not run")
    else:
        same = [label for label, measured, simulated in pairs_of(folder / "decisions")
                if decision_fault(measured, simulated) is None]
        num_pairs = len(list(pairs_of(folder / "decisions")))
        findings.add(promise, len(same) == num_pairs, f"{len(same)} of {num_pairs} runs")
    promise = f"simulated figures within {FIGURE_ERROR:.0%}"
    ranks = "the same order of settings"
    if not pieces:
        findings.missing(promise, "stage published has not run")
        findings.missing(ranks, "stage published has not run")
    for piece in pieces:
        errors = piece.errors()
        within = sum(error <= FIGURE_ERROR for error, _ in errors)
        model = "the calibrated model" if piece.is_calibrated else "the roofline, not calibrated"
        findings.add(f"{piece.label}: {promise}", within == len(errors),
                     f"{within} of {len(errors)} figures by {model}; worst {max(errors)[1]}")
        pairs, wrong = piece.misranked()
        findings.add(f"{piece.label}: {ranks}", not wrong,
                     f"{pairs - len(wrong)} of {pairs} pairs"
                     + (f"; not {wrong[0]}" if wrong else ""))
