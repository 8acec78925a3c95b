# SPDX-License-Identifier: Apache-2.0
"""Measures every workload of every model, simulates it with the calibrated model, and draws
both."""

import json
import re

from gpu_checks.gpu import label
from gpu_checks.run import ROOT, Failure, NoTime
from gpu_checks.scenarios import WORKLOADS, measure, scenario_path, simulate

# The engine's best settings: one pass per step, two steps in flight, no padding.
SETTINGS = ("engine.step_shape=mixed", "engine.async_depth=2", "kv_cache.allocation=incremental",
            "cost_model.batching=ragged", "cost_model.gather_kv=false", "slo.ttft_ms=500")
# The scenarios' rates are for a GPU with about an eighth of an H200's speed.
RATE = 8
# ITL target of policy `slo` in milliseconds: about twice a step of sixteen decodes.
ITL_MS = {"llama-3.2-3b": 6, "qwen3-4b": 7, "gemma-3-1b": 3}
VARIANTS = (
    "variants:\n  - {name: unchunked, scheduler: {policy: continuous}}\n"
    + "".join(f"  - {{name: chunked-{size}, scheduler: {{policy: chunked, "
              f"prefill_chunk_size: {size}}}}}\n" for size in (128, 256, 512, 1024, 2048))
    + "  - {name: budget-128, scheduler: {policy: token_budget, max_num_batched_tokens: 128}}\n"
    + "  - {name: slo, scheduler: {policy: slo}}\n")


def scenario_text(model, workload):
    """The shipped scenario for a GPU of this speed: unchunked, with every chunk size, and `slo`."""
    text = (ROOT / scenario_path(model, workload)).read_text()
    text = re.sub(r"\brate: ([0-9.]+)", lambda rate: f"rate: {float(rate[1]) * RATE:g}", text)
    base, variants = text.split("\nvariants:\n")
    cached = variants[variants.find("  - name: cached-"):] if "name: cached-" in variants else ""
    return f"{base}\n{VARIANTS}{cached}"


def validate(run, place, log):
    """Compares every variant's measured run with its simulation, in one file."""
    validations = {}
    for name in re.findall(r"name: ([\w-]+)", (place / "scenario.yaml").read_text()):
        text = run.output_of([run.metronome, "validate", "--json", str(place / "cuda" / name),
                              str(place / "sim" / name)], log, 30)
        try:
            validations[name] = json.loads(text)
        except ValueError as error:
            raise Failure(f"validate {name} printed no JSON ({error})") from error
    return validations


def calibration(run, model):
    return run.out / "calibrate" / f"{label(model)}.json"


def publish(run, log, model, workload, place):
    """One workload of one model: measured unless an earlier call did, simulated, compared and
    drawn."""
    place.mkdir(parents=True, exist_ok=True)
    scenario = place / "scenario.yaml"
    scenario.write_text(scenario_text(model, workload))
    calibrated = calibration(run, model)
    settings = [*SETTINGS, f"model={model}", f"slo.itl_ms={ITL_MS.get(model, 10)}"]
    if calibrated.exists():
        settings += [f"cost_model.file={calibrated}", f"hardware={run.gpu.hardware or chr(34) * 2}"]
    elif run.gpu.hardware:
        settings += [f"hardware={run.gpu.hardware}"]
    else:
        raise Failure(f"{run.gpu.name or 'this GPU'} is not in the catalogue, and there is no "
                      "calibrated model to simulate it")
    if run.options.requests:
        settings.append(f"workload.num_requests={run.options.requests}")
    measured = f"published: {model} {workload} measured"
    if measured not in run.done:
        measure(run, log, str(scenario), place, settings, limit=240)
        run.keep(measured)
    simulate(run, log, str(scenario), place, settings, ())
    validations = validate(run, place, log)
    if run.call([run.metronome, "report", str(place / "cuda"), str(place / "sim"), "--out",
                 str(place / "report.html")], log, 60) != 0:
        raise Failure("the report")
    (place / "validation.json").write_text(json.dumps(
        {"is_calibrated": calibrated.exists(), "variants": validations}, indent=1) + "\n")
    run.keep(done_text(run, model, workload))


def done_text(run, model, workload):
    """The key of a completed piece. A piece simulated by the roofline is repeated once there is a
    calibration."""
    model_of = "calibrated" if calibration(run, model).exists() else "roofline"
    return f"published: {model} {workload} by {model_of}"


def publish_all(run, log):
    """Workloads where chunking matters come first. Completed work is kept for the next call. Work
    without enough time left is not started."""
    folder = run.out / "published"
    failed, waiting, longest = [], [], 10
    for workload in WORKLOADS:
        for model in run.options.models:
            place = folder / label(model) / workload
            if done_text(run, model, workload) in run.done:
                continue
            if run.left() < 1.2 * longest + 5:
                waiting.append(f"{model} {workload}")
                continue
            started = run.clock.now()
            try:
                publish(run, folder.with_suffix(".runs.log"), model, workload, place)
            except NoTime:
                waiting.append(f"{model} {workload}")
            except Failure as failure:
                failed.append(f"{model} {workload}: {failure}")
            longest = max(longest, run.clock.now() - started)
    run.note(log, *failed)
    run.call_python(["tools/gpu_summary", "--published", run.out], log, 30)
    if failed:
        raise Failure(failed[0])
    if waiting:
        raise NoTime(f"no time was left for {len(waiting)}, the first is {waiting[0]}; continue "
                     "with --resume")
