# SPDX-License-Identifier: Apache-2.0
"""The page, the picture and the list of what was compared."""

import collections
import dataclasses
import math
import statistics

import logs

TITLES = {"mean_ttft_ms": "TTFT", "mean_tpot_ms": "TPOT", "p95_ttft_ms": "TTFT p95",
          "p95_tpot_ms": "TPOT p95", "p50_itl_ms": "ITL p50", "request_throughput": "requests/s"}
COST_MODELS = ["operators", "roofline"]
MEANS = ["mean_tpot_ms", "mean_ttft_ms"]


@dataclasses.dataclass
class Findings:
    logged: list = dataclasses.field(default_factory=list)
    silybench: list = dataclasses.field(default_factory=list)
    distserve: list = dataclasses.field(default_factory=list)
    silicon: list = dataclasses.field(default_factory=list)
    left_out: dict = dataclasses.field(default_factory=dict)
    peer: str = ""  # the section about another estimator

    def points(self):
        return self.silybench + self.distserve + self.silicon


def percent(value, sign=False):
    if value is None or math.isnan(value):
        return "-"
    return f"{100 * value:+.1f}" if sign else f"{100 * value:.1f}"


def row(cells):
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def table(head, rows):
    return "\n".join([row(head), "|" + "---|" * len(head), *map(row, rows)])


def errors_of(points, cost_model, figure):
    errors = [point.error(cost_model, figure) for point in points if figure in point.measured]
    return [error for error in errors if error is not None]


def mean_error(points, cost_model, figure):
    errors = errors_of(points, cost_model, figure)
    return statistics.mean(map(abs, errors)) if errors else math.nan


def is_simulated(point, cost_model):
    return isinstance(point.simulated.get(cost_model), dict)


def summary_cells(points, cost_model, figures):
    """For each figure the mean |error|, the mean error, and the worst error, in per cent."""
    cells = []
    for figure in figures:
        errors = errors_of(points, cost_model, figure)
        cells += [percent(statistics.mean(map(abs, errors))),
                  percent(statistics.mean(errors), True), percent(max(errors, key=abs), True)]
    return cells


def summary_table(points, figures, title, key):
    groups = collections.defaultdict(list)
    for point in points:
        groups[key(point)].append(point)
    rows = []
    for name, group in sorted(groups.items()):
        for cost_model in COST_MODELS:
            simulated = [point for point in group if is_simulated(point, cost_model)]
            if simulated:
                rows.append([name, cost_model, len(simulated),
                             *summary_cells(simulated, cost_model, figures)])
    head = [title, "step times", "points"]
    for figure in figures:
        head += [f"{TITLES[figure]} %", "bias %", "worst %"]
    return table(head, rows)


def refusals(points):
    """Why points have no simulated figures."""
    reasons = collections.Counter()
    for point in points:
        for cost_model in COST_MODELS:
            reason = point.simulated.get(cost_model)
            if isinstance(reason, str):
                reasons[(cost_model, point.model, point.gpu, reason)] += 1
    return [[cost_model, model, gpu, count, reason]
            for (cost_model, model, gpu, reason), count in sorted(reasons.items())]


def logged_table(runs):
    rows = []
    for run in runs:
        if run.reason:
            rows.append([run.gpu, run.model, run.degree, run.cost_model, run.fitted_on, run.reason,
                         "-", "-", "-", "-"])
            continue
        worst = max((figure["error"] for figure in run.figures
                     if figure["metric"] in ("ttft", "tpot", "e2el")), key=abs)
        rows.append([run.gpu, run.model, run.degree, run.cost_model, run.fitted_on,
                     percent(run.mean), percent(run.error("ttft"), True),
                     percent(run.error("tpot"), True), percent(run.error("e2el"), True),
                     percent(worst, True)])
    return table(["GPU", "model", "TP", "step times", "fitted on", "mean error %", "TTFT %",
                  "TPOT %", "E2EL %", "worst %"], rows)


def point_table(points):
    rows = []
    for point in points:
        for cost_model in COST_MODELS:
            if is_simulated(point, cost_model):
                cells = [percent(point.error(cost_model, figure), True)
                         for figure in point.measured]
                rows.append([point.name, cost_model, *cells])
    return table(["point", "step times", *(TITLES[figure] + " %" for figure in points[0].measured)],
                 rows)


def worst_table(points, count=12):
    """Groups with the largest errors of TPOT, by operator tables where they cover the group."""
    groups = collections.defaultdict(list)
    for point in points:
        cost_model = next((name for name in COST_MODELS if is_simulated(point, name)), None)
        if cost_model:
            key = (point.model, point.gpu, point.precision, point.engine, point.degree, cost_model)
            groups[key].append(point)
    ranked = sorted(groups.items(),
                    key=lambda item: -mean_error(item[1], item[0][-1], "mean_tpot_ms"))
    rows = [[*key, len(group), *summary_cells(group, key[-1], MEANS)]
            for key, group in ranked[:count]]
    return table(["model", "GPU", "weights", "engine", "TP", "step times", "points", "TPOT %",
                  "bias %", "worst %", "TTFT %", "bias %", "worst %"], rows)


HEAD = """# How far off are simulated times?

<!-- Made by tools/accuracy. Change that script, and run it. -->

This page simulates all openly licensed measured runs and serving points, each with its own
settings. An error is simulated / measured - 1. A mean is that of the absolute errors; bias is the
signed mean. Bad rows stay in; rows that lack a setting are marked. `operators` composes steps of NVIDIA's
operator tables ([guide](guide/operator_tables.md)). `roofline` knows the GPU's figures and the
model's shape.

    pip download --no-deps aiconfigurator-core==0.12.0
    tools/accuracy --wheel aiconfigurator_core-0.12.0-*.whl --peer
"""

LOGS = """## Runs whose requests were logged

vLLM 0.19, 300 ShareGPT requests at 10 a second (github.com/casys-kaist/LLMServingSim, MIT). The
engine's own instants count, so there is no front end. The mean is over mean, p50, p90, p95 and p99
of TTFT, TPOT and E2EL. `profile` has kernel times of the same GPU and model. Collectives of the
third run are from another host with the same GPU.
"""

SILYBENCH = """## Qwen3-8B on an H100

Points of vLLM 0.30 in bf16 (silybench-data, CC BY 4.0), clients in a closed loop. Points whose
prompts were cached from the run before are left out. The front end has 4.4 ms and 4.9 us a prompt
token (`client.preset: bench`), as these clients saw it. Two constants of `operators` were fitted to
these points: the time between two kernels, and that between two passes. Of the roofline's constants
for H100 one was, the overhead of a layer, by the points of one client.
"""

DISTSERVE = """## OPT-13B on an A100

vLLM of early 2024 (its first engine, which prefills whole prompts first), ShareGPT lengths, from
the evaluation of DistServe (Zhong et al., OSDI 2024; Apache-2.0). The paper alone names the GPU.
Its runs on separate GPUs for prefill and decode are left out. Settings are those of its script.
Engine and worker ran in Ray: each step hands over all requests, which takes host time. Gap, gap a
request and front end (`cost_model.host_gap_us` 5,500, `host_gap_us_per_request` 700, `frontend`
24.4 ms) were fitted to the run at 1 a second. The others show how far that carries.
"""

SILICON = """## NVIDIA's serving points

The aggregated points of `silicon_sample.csv` in aiconfigurator-core 0.12.0 (Apache-2.0). The
host's time for launches was fitted to first tokens of 1 to 4 clients with prompts of up to 1,024
tokens ([cost models](internals/cost_models.md#passes-without-a-cuda-graph)). These rows do
not count. How releases and served prompts differ from kernels (`cost_model.step_factor`,
`prompt_factor`, three overheads, vLLM's host time before 0.14, and the time in which some versions
launch a layer) was fitted for the roofline to every second to fifth point of an engine, and tried on
the others: engines/NAME/recipe.cpp has each.
Nothing else is fitted to the points, but fourteen choices were made with them known:

- KV of Llama-3.1-70B counts as 16-bit on the H100.
- KV of MiniMax-M2.5 counts as 8-bit on later GPUs.
- Outputs of sweeps whose client was not published scatter by a tenth, or by less for fewer than 64
  clients, but for SGLang's on an H100, which are equal, and those of experts on TensorRT-LLM, which
  scatter by a fiftieth.
- Llama-3.1-8B on TensorRT-LLM 1.0.0rc3 held one request less than there were clients: at every
  length and number of GPUs first tokens come as if one client waited for another's whole answer.
- Clients of Llama-3.1-8B in fp8 on vLLM 0.12 sent 100 prompts again and again, which were cached.
- vLLM before 0.14 took 30 us of host time between steps for each request.
- Operator tables whose products were timed with their launches are refused.
- TensorRT-LLM's products count without quantising their input.
- MiniMax-M2.5 on a B200 with vLLM 0.19 was started on April 3 as published for April 8.
- Of two published limits of Llama-3.1-70B on TensorRT-LLM, max_num_tokens 16384 counts.
- Experts of gpt-oss-120b on an H200 are whole in TensorRT-LLM's sweep of November 2025, too: its
  times are those of the sweep of December, which says so.
- Experts of DeepSeek-R1 on TensorRT-LLM run its own kernels where recipes ask for its backend
  TRTLLM. The tables have those of nvfp4 as `min_latency`; for fp8 those of vLLM count.
- All-reduces of Qwen3.5 on SGLang have norms inside, as by default in 0.5.23; some of these recipes
  did not ask for that.
- On several B200, B300, GB200 or GB300 the roofline counts no overhead of a layer beside its
  all-reduces: the tables leave none.

Rows of DeepSeek-V3 are runs of DeepSeek-R1: most are copies of such rows. Some rows had drafts and
do not say so. Recipes, versions and dates tell which, and these are left out.

Points of the public sweep (InferenceX) have the settings of its published recipes.

The error of NVIDIA's own simulator on such points was published as 28.4 % for TPOT and 76.7 % for
TTFT over 723 points. That set of points is another one.
"""


CAUSES = """### Why the worst families are off

The causes below come from the points themselves.

- Llama-3.1-8B in fp8 on an H200, vLLM 0.12: with more than 80 clients the first prompts were cached
  from an earlier run, too, it seems.
- Qwen3-32B on a GB200, TensorRT-LLM 1.3.0rc1: several engines behind one client. With one client
  the error is 7 %; with two the measured time is 3 to 5 times as long, with 32 up to 16 times.
- gpt-oss-120b on an H100, TensorRT-LLM 1.3.0rc1: several engines behind one client, too.
- Qwen3-235B on an H200, vLLM 0.12: 52 ms a token on two GPUs, whether 4 or 20 clients. The tables
  have experts of vLLM 0.19 and later.
- Llama-3.1-8B and Qwen3-32B, TensorRT-LLM 1.0.0rc3: the more requests a second, the later are first
  tokens and the longer are steps. TP 8 with 128 clients waits 2 s. The front end sends some 9,000
  tokens a second, and the rest wait. SGLang 0.5.6 sends some 19,000. No simulation has that.
- Kimi-K2.5 on an H200, 16 clients of 1024/8192: 64 ms a token in one run, 16 ms in its rerun.
- DeepSeek-R1 on a B200, SGLang of November 2025: with 32 clients and more, first tokens took 7 to
  9 s, whatever the prompt. These runs had no warm-up.
- Qwen3.5-397B on SGLang 0.5.9 and builds before it: 15 to 25 % slower than operators of 0.5.14 say.
  With 0.5.10 the error is 3 to 6 %.
- DeepSeek-R1 on H200, TensorRT-LLM and SGLang: prompts of 1,024 tokens take 3.4 ms a layer,
  whatever the chunk. These hosts launch more slowly than those with B200, it seems.
- DeepSeek-R1 on a B200, SGLang of November 2025, and Llama-3.1-8B on an H200, SGLang 0.5.6: the
  front end, or first uses of a batch size, hold first tokens back. The engine's steps are right.
"""


def text(found):
    parts = [HEAD]
    if found.silybench or found.silicon:
        parts.append("![simulated over measured TPOT and TTFT](accuracy.svg)\n")
    if found.logged:
        parts += [LOGS, logged_table(found.logged) + "\n"]
    if found.silybench:
        figures = list(found.silybench[0].measured)
        parts += [SILYBENCH,
                  summary_table(found.silybench, figures, "GPU", lambda point: point.gpu) + "\n",
                  point_table(found.silybench) + "\n"]
    if found.distserve:
        parts += [DISTSERVE, point_table(found.distserve) + "\n"]
    if found.silicon:
        parts += [SILICON, silicon_text(found)]
    if found.peer:
        parts.append(found.peer)
    refused = refusals(found.points())
    if refused:
        parts += ["## Not simulated\n",
                  table(["step times", "model", "GPU", "points", "why"], refused) + "\n"]
    return "\n".join(parts)


def unknown_limit_text(points):
    num_unknown = sum(point.lacks_limit for point in points)
    return (f"{num_unknown} points were measured with a server's limit that nobody recorded: the "
            "sweep's recipe\nof gpt-oss on the H100 had `--max-concurrency 512` for every "
            "`--max-num-seqs`, and sent\nall prompts at once. So first tokens come at 9/11 of the "
            "answers, as ten waves do. The picture has\nthem with the limit of 4 to 64 whose TTFT "
            "fits best. With them:\n\n" +
            summary_table(points, MEANS, "with these", lambda point: "with these") + "\n")


def silicon_text(found):
    points = [point for point in found.silicon if not point.lacks_limit]
    left_out = sorted(found.left_out.items(), key=lambda item: -item[1])
    left_out.append(("a server's limit that nobody recorded; see below",
                     len(found.silicon) - len(points)))
    parts = [f"{len(points)} points are simulated. Left out are:\n",
             table(["rows", "why"], [[count, why] for why, count in left_out]) + "\n",
             summary_table(points, MEANS, "all", lambda point: "all") + "\n",
             unknown_limit_text(found.silicon)]
    for title, key in (("model", lambda point: point.model), ("GPU", lambda point: point.gpu),
                       ("weights", lambda point: point.precision),
                       ("engine", lambda point: point.engine.split()[0]),
                       ("TP", lambda point: point.degree),
                       ("model, GPU, weights, engine",
                        lambda point: f"{point.model}, {point.gpu}, {point.precision}, "
                                      f"{point.engine.split()[0]}")):
        parts += [f"### By {title}\n", summary_table(points, MEANS, title, key) + "\n"]
    parts += ["### The largest errors of TPOT\n", worst_table(points) + "\n", CAUSES]
    return "\n".join(parts)


def clients_bucket(point):
    """The clients of a closed loop, down to a power of four; 0 where they are not known."""
    arrivals = point.scenario["workload"].get("arrivals", {})
    clients = arrivals.get("concurrency", 0)
    return 4 ** int(math.log(clients + 0.5, 4)) if clients else 0


def checked(found):
    """All compared points, as CSV. The program takes its bands from the nearest, and warns where
    nothing near was compared."""
    groups = collections.defaultdict(lambda: ([], []))
    for point in found.points():
        for cost_model in COST_MODELS:
            if is_simulated(point, cost_model) and not point.lacks_limit:
                statistic = "mean" if "mean_tpot_ms" in point.measured else "p95"
                key = (cost_model, point.gpu, point.model, "experts" if point.has_experts else "dense",
                       point.precision, point.engine.split()[0].replace("-", "_"), point.degree,
                       clients_bucket(point))
                for errors, figure in zip(groups[key], ("tpot", "ttft")):
                    errors.append(point.error(cost_model, f"{statistic}_{figure}_ms"))
    for run in found.logged:
        if run.cost_model in ("roofline", "profile") and not run.reason:
            key = (run.cost_model, run.gpu, run.model, "dense", "plain", "vllm", run.degree, 0)
            for errors, figure in zip(groups[key], ("tpot", "ttft")):
                errors += [run.error(figure, statistic) for statistic in logs.STATISTICS]
    lines = ["# Comparisons with measurements, by tools/accuracy: errors of TPOT and TTFT in per cent,",
             "# simulated / measured - 1. clients: at least so many; 0: not known.",
             "cost_model,hardware,model,kind,weights,engine,tensor_parallel_size,clients,tpot,ttft"]
    for key, errors in sorted(groups.items()):
        numbers = [" ".join(f"{100 * error:.1f}" for error in sorted(one)) for one in errors]
        lines.append(",".join([*map(str, key), *numbers]))
    return "\n".join(lines) + "\n"


# ---- the picture ----

COLOURS = {"operators": "#0072b2", "roofline": "#d55e00"}
PANEL, GAP, LEFT, TOP = 320, 70, 62, 40


def ticks(low, high):
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [10 ** power for power in powers if low <= 10 ** power <= high]


def dots(points, figure):
    return [(point.measured[figure], point.simulated[name][figure], name)
            for name in reversed(COST_MODELS) for point in points
            if figure in point.measured and is_simulated(point, name)]


def panel(points, figure, left):
    """Simulated over measured on logarithmic axes, with lines 20 % to either side."""
    pairs = dots(points, figure)
    if not pairs:
        return ""
    low = 0.8 * min(min(pair[:2]) for pair in pairs)
    high = 1.25 * max(max(pair[:2]) for pair in pairs)

    def x_of(value):
        return left + PANEL * math.log(value / low) / math.log(high / low)

    def y_of(value):
        return TOP + PANEL - PANEL * math.log(value / low) / math.log(high / low)

    parts = [f'<text x="{left}" y="{TOP - 14}" font-weight="700">{TITLES[figure]}, ms: simulated '
             f'over measured</text>']
    for tick in ticks(low, high):
        x, y = x_of(tick), y_of(tick)
        parts.append(f'<path d="M{x:.1f} {TOP}v{PANEL}M{left} {y:.1f}h{PANEL}" stroke="#e3e7ec"/>'
                     f'<text x="{x:.1f}" y="{TOP + PANEL + 18}" text-anchor="middle">{tick:g}'
                     f'</text><text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end">{tick:g}'
                     f'</text>')
    for measured, simulated, name in pairs:
        parts.append(f'<circle cx="{x_of(measured):.1f}" cy="{y_of(simulated):.1f}" r="2" '
                     f'fill="{COLOURS[name]}" fill-opacity="0.4"/>')
    for factor, dashes in ((1, "none"), (1.2, "4 3"), (1 / 1.2, "4 3")):
        start, end = max(low, low / factor), min(high, high / factor)
        parts.append(f'<path d="M{x_of(start):.1f} {y_of(start * factor):.1f}'
                     f'L{x_of(end):.1f} {y_of(end * factor):.1f}" stroke="#1b2430" '
                     f'stroke-dasharray="{dashes}"/>')
    parts.append(f'<rect x="{left}" y="{TOP}" width="{PANEL}" height="{PANEL}" fill="none" '
                 f'stroke="#8b96a5"/>')
    return "\n".join(parts)


def picture(found):
    width, height = LEFT + 2 * PANEL + GAP + 20, TOP + PANEL + 62
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
             f'font-family="DejaVu Sans, sans-serif" font-size="12" fill="#1b2430">',
             f'<rect width="{width}" height="{height}" fill="#fff"/>']
    for i, figure in enumerate(MEANS):
        parts.append(panel(found.silicon, figure, LEFT + i * (PANEL + GAP)))
    x, y = LEFT, TOP + PANEL + 46
    for name in COST_MODELS:
        parts.append(f'<circle cx="{x + 5}" cy="{y - 4}" r="4" fill="{COLOURS[name]}"/>'
                     f'<text x="{x + 14}" y="{y}">{name}</text>')
        x += 100
    parts.append(f'<text x="{x}" y="{y}">dashed: 20 % to either side</text></svg>')
    return "\n".join(part for part in parts if part) + "\n"
