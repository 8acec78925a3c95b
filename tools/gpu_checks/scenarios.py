# SPDX-License-Identifier: Apache-2.0
"""The shipped scenarios: measured on the GPU, then simulated with the GPU's KV cache."""

import os
import sys

from gpu_checks.gpu import label
from gpu_checks.run import ROOT, Failure, NoTime

MODELS = ("llama-3.2-3b", "qwen3-4b", "gemma-3-1b")
# Chunked prefill matters most, so its workload comes first, in case time runs out.
WORKLOADS = ("chunked_prefill", "baseline", "continuous_batching", "paged_attention",
             "prefix_caching")


def scenario_command(run, backend, scenario, folder, settings):
    command = [run.metronome, "run", scenario, f"--backend={backend}", "--quiet", "--out",
               str(folder)]
    if backend == "cuda":
        settings = [*settings, f"cuda.invariance={run.invariance}"]
    own = run.settings() if backend == "cuda" else run.options.set
    # Traces and reports are large and can be made from the steps and requests.
    for setting in [*settings, "results.trace=false", "results.report=false", *own]:
        command += ["--set", setting]
    return command


def scenario_path(model, workload):
    """The scenario of the model, or of another one that differs only in model and request rate."""
    own = f"scenarios/{model}/{workload}.yaml"
    return own if (ROOT / own).exists() else f"scenarios/{MODELS[0]}/{workload}.yaml"


def kv_blocks(run, log, folder):
    """Settings that give a simulation the KV cache of a measured run."""
    return run.output_of([sys.executable, "tools/gpu_summary", "--kv-blocks", str(folder)], log, 20,
                         dict(os.environ)).split()


def measure(run, log, scenario, folder, settings, limit=90):
    if run.call(scenario_command(run, "cuda", scenario, folder / "cuda", settings), log,
                limit) != 0:
        raise Failure("the measured run")


def simulate(run, log, scenario, folder, settings, simulated_as):
    simulated = [*simulated_as, *kv_blocks(run, log, folder / "cuda"), *settings]
    if run.call(scenario_command(run, "sim", scenario, folder / "sim", simulated), log, 60) != 0:
        raise Failure("the simulation")


def simulated_as(run):
    """Decisions do not depend on the hardware. Times are those of this GPU if the catalogue has it,
    else of an H200."""
    return (f"hardware={run.gpu.hardware or 'h200'}", "cost_model.batching=ragged",
            "cost_model.gather_kv=false")


def all_pairs(run, log, folder, settings, summary):
    failed, waiting = [], []
    for workload in WORKLOADS:
        for model in run.options.models:
            place = folder / label(model) / workload
            done = f"{folder.name}: {model} {workload}"
            if done in run.done:
                continue
            try:
                run.need(10, f"{model} {workload}")
                run_of = (run, folder.with_suffix(".runs.log"), scenario_path(model, workload),
                          place, [f"model={model}", *settings])
                measure(*run_of)
                simulate(*run_of, simulated_as(run))
                run.keep(done)
            except NoTime as no_time:
                waiting.append(str(no_time))
            except Failure as failure:
                failed.append(f"{model} {workload}: {failure}")
    run.note(log, *failed)
    status = run.call_python(["tools/gpu_summary", summary, folder], log, 20)
    if failed or (status != 0 and not waiting):
        raise Failure(failed[0] if failed else "see the table")
    if waiting:
        raise NoTime(waiting[0])
