# SPDX-License-Identifier: Apache-2.0
"""The stages of a check on a GPU."""

import dataclasses
import shutil
import tempfile
from collections.abc import Callable

from gpu_checks import options, published
from gpu_checks.gpu import ask_nvidia_smi, label
from gpu_checks.run import ROOT, Failure, NoTime, Skipped, Stop, TooLong
from gpu_checks.scenarios import all_pairs, scenario_command, scenario_path

EXIT_SKIPPED = 77  # of the scripts called here
SMOKE_SECONDS = 20
FILE_SECONDS = 40
IMPORT_SECONDS = 60  # for PyTorch on a machine that has not read it before
# Tests of single kernels come first: they are short, and the others depend on them. Then the tests
# that the options depend on. The last one tunes algorithms six times.
FIRST_TESTS = (*options.KERNEL_TESTS, "batching", "chunking", "model")
LAST_TESTS = ("bench",)
CALIBRATED_KEYS = ("engine.", "kv_cache.", "cuda.")  # keys of --set that a calibration uses
CALIBRATE_SECONDS = 45  # enough for two rounds


@dataclasses.dataclass(frozen=True)
class Stage:
    run: Callable
    most: float  # the most seconds, however much time is left


def machine(run, log):
    """Whether the programs start; all other stages need them."""
    for command in ([run.metronome, "--version"], [run.tests, "--help"]):
        try:
            status = run.call(command, log, SMOKE_SECONDS)
        except Failure as failure:
            raise Stop(f"{command[0]} does not start: {failure}") from failure
        if status != 0:
            raise Stop(f"{command[0]} does not start (exit status {status})")
    if shutil.which("nvidia-smi") is None:
        raise Skipped("nvidia-smi is not installed")
    fields = "name,driver_version,memory.total,clocks.max.sm,clocks.max.mem,power.limit"
    if run.gpu.is_silent or run.call(["nvidia-smi", f"--query-gpu={fields}", "--format=csv"], log,
                                     SMOKE_SECONDS) != 0:
        raise Stop("nvidia-smi finds no GPU")


def start(run, log):
    """Whether the engine starts. If the default invariance fails, all later stages run without
    it."""
    model = run.options.models[0]
    if "start: done" in run.done:
        return
    run.need(20, "it")
    found = run.options.out / "cache/metronome/invariance.txt"
    found.unlink(missing_ok=True)

    def begin(name):
        return run.call(
            scenario_command(run, "cuda", scenario_path(model, "baseline"), run.out / name,
                             [f"model={model}", "workload.num_requests=2"]), log, 120)
    run.invariance = "chunk"
    status = begin("start")
    if status != 0 and not found.exists():
        run.note(log, f"exit status {status}; trying again")
        status = begin("start")
    if status == 0:
        run.keep("start: done")
        return
    if not found.exists():
        raise Failure(f"exit status {status}, twice")
    run.note(log, found.read_text(errors="replace"))
    run.invariance = "none"
    status = begin("start.none")
    if status != 0:
        run.invariance = "chunk"
        raise Failure(f"exit status {status} even without invariance")
    raise Failure("invariance does not hold; later stages ran with cuda.invariance: none")


def test_files():
    names = {path.stem for path in (ROOT / "tests/gpu").glob("test_*.cpp")}
    first = [f"test_gpu_{name}" for name in FIRST_TESTS if f"test_gpu_{name}" in names]
    last = [f"test_gpu_{name}" for name in LAST_TESTS if f"test_gpu_{name}" in names]
    return first + sorted(names.difference(first, last)) + last


def end_of(run, name, log, limit):
    """How a test file ended, as text."""
    command = [run.tests, "--durations", "yes", "--filenames-as-tags", f"[#{name}]~[slow]"]
    try:
        status = run.call(command, log, limit)
    except TooLong as too_long:
        return "hung" if too_long.hangs else f"slow (longer than {limit} s)"
    if status == 0:
        return "passed"
    return f"crashed (signal {-status})" if status < 0 else f"failed (exit status {status})"


def check_gpu(run, name, end):
    """Raises Stop if the GPU no longer answers; then the test says nothing about the code."""
    if run.gpu.name and end.startswith(("crashed", "hung", "failed")) and \
            not ask_nvidia_smi(run.clock):
        raise Stop(f"the GPU no longer answers after {name}, which {end}")


def tests(run, log):
    """One process per file: after an illegal access nothing else in a process can pass. With the
    same build a completed file is not repeated; a slow one gets twice the time."""
    waiting = []
    for name in test_files():
        before = run.test_files.get(name, "")
        if not before or before.startswith("slow"):
            try:
                run.need(5, name)
                end = end_of(run, name, log, FILE_SECONDS * (2 if before else 1))
                check_gpu(run, name, end)
                run.test_files[name] = end
                run.write_state()
            except NoTime:
                waiting.append(name)
    faults = [f"{name} {end}" for name, end in run.test_files.items() if end != "passed"]
    unbegun = f"no time was left for {', '.join(waiting)}" if waiting else ""
    if faults:
        raise Failure("; ".join([*faults, *([unbegun] if unbegun else [])]))
    if unbegun:
        raise NoTime(unbegun)


def slow(run, log):
    """Runs every chunk size, ten thousand requests, and random cases."""
    run.call_all([(name, [run.tests, "--durations", "yes", "--filenames-as-tags",
                          f"[#{name}][slow]"]) for name in test_files()], log, 120)


def with_what(run, model, invariance):
    """A text of the measured configuration; it differs if anything else would be measured."""
    return " ".join([model, invariance, *run.chosen])


def bench(run, log):
    def path_of(model, invariance):
        return f"bench.{label(model)}.{invariance}.json"

    def entry(model, invariance):
        return (with_what(run, model, invariance),
                options.bench_command(run, model, invariance, run.chosen,
                                      path_of(model, invariance)))
    models = run.options.models
    commands = [entry(model, run.invariance) for model in models]
    if run.invariance != "none":
        commands.append(entry(models[0], "none"))
    if all(f"bench: {name}" in run.done for name, _ in commands):
        return
    try:
        run.call_all(commands, log, 100, least=20)
    finally:
        pair = [run.out / path_of(models[0], invariance) for invariance in (run.invariance, "none")]
        if run.invariance != "none" and all(path.exists() for path in pair):
            try:
                run.call_python(["tools/gpu_summary", "--invariance", *pair], log, 20)
            except Failure as failure:  # the benches have their own verdict
                run.note(log, str(failure))


def products(run, log):
    """Times each model's linear layers with every kernel, to check the chosen tiles."""
    flags = [options.OFF["early_launches"].flag] if "early_launches" in run.chosen else []
    run.call_all([(" ".join([model, *flags]),
                   [run.metronome, "bench", model, "--products", "--repeats", "3", "--json",
                    str(run.out / f"products.{label(model)}.json"), *flags])
                  for model in run.options.models], log, 60, least=20)


def calibrate(run, log):
    """Measures steps of each model and fits a cost model to them."""
    (run.out / "calibrate").mkdir(exist_ok=True)
    hardware = ["--hardware", run.gpu.hardware] if run.gpu.hardware else []
    settings = [setting for setting in run.settings() if setting.startswith(CALIBRATED_KEYS)]
    settings.append(f"cuda.invariance={run.invariance}")
    commands = []
    for model in run.options.models:
        command = [run.metronome, "calibrate", "--backend=cuda", "--model", model, "--out",
                   str(run.out / "calibrate" / f"{label(model)}.json"), "--seconds",
                   str(run.options.calibrate_seconds), *hardware]
        for setting in settings:
            command += ["--set", setting]
        commands.append((with_what(run, model, run.invariance), command))
    run.call_all(commands, log, run.options.calibrate_seconds + 60,
                 least=run.options.calibrate_seconds + 30)


def need_torch(run, log, modules):
    code = f"import {modules}; assert torch.cuda.is_available()"
    if run.call_python(["-c", code], log, IMPORT_SECONDS) != 0:
        raise Skipped(f"Python has no {modules}, or no GPU")


def torch(run, log):
    """Runs model by model, so that one unreadable report does not affect the others."""
    reports = sorted(run.out.glob(f"bench.*.{run.invariance}.json"))
    names = {report: report.name.removeprefix("bench.") for report in reports}
    reports = [report for report in reports if f"torch: {names[report]}" not in run.done]
    if not names:
        raise Skipped("no report of the stage bench")
    if not reports:
        return
    run.need(75, "it")
    need_torch(run, log, "torch")
    failed = []
    for report in reports:
        status = run.call_python(["tools/torch_bench", report, "--json",
                                  run.out / f"torch.{names[report]}"], log, 80)
        if status == EXIT_SKIPPED:
            raise Skipped("PyTorch found no GPU")
        if status == 0:
            run.keep(f"torch: {names[report]}")
        else:
            failed.append(f"{names[report]} (exit status {status})")
    if failed:
        raise Failure("; ".join(failed))


def decisions(run, log):
    """All requests arrive at the start, more than run at once, with two steps in flight. So
    decisions do not depend on times."""
    all_pairs(run, log, run.out / "decisions",
              [f"workload.num_requests={run.options.requests or 12}",
               "workload.arrivals.process=burst", "engine.max_num_seqs=4", "engine.async_depth=2"],
              "--decisions")


def scenarios(run, log):
    all_pairs(run, log, run.out / "scenarios",
              [f"workload.num_requests={run.options.requests or 12}"], "--metrics")


def parity(run, log):
    if "parity: done" in run.done:
        return
    run.need(100, "it")
    need_torch(run, log, "torch, transformers, safetensors")
    with tempfile.TemporaryDirectory() as fixtures:  # some gigabytes
        if run.call_python(["tools/hf_parity", "bf16", fixtures, "--size", "large", "--device",
                            "cuda"], log, 120) != 0:
            raise Failure("hf_parity made no models")
        status = run.call([run.tests, "[hf_parity]"], log, 120,
                          dict(run.environment, METRONOME_FIXTURES_BF16=fixtures))
        if status != 0:
            raise Failure("logits are too far from transformers'")
    run.keep("parity: done")


def sanitizer(run, log):
    if shutil.which("compute-sanitizer") is None:
        raise Skipped("compute-sanitizer is not installed")
    kernels = ",".join(f"[#test_gpu_{name}]~[slow]" for name in options.KERNEL_TESTS)
    run.call_all([(tool, ["compute-sanitizer", "--tool", tool, "--error-exitcode", "1",
                          run.tests, "--filenames-as-tags", kernels])
                  for tool in ("memcheck", "racecheck", "initcheck")], log, 90, least=30)


# The most important stages first, each with its maximum of seconds.
STAGES = {
    "machine": Stage(machine, 3 * SMOKE_SECONDS),
    "start": Stage(start, 200),
    "tests": Stage(tests, 240),
    "options": Stage(options.choose, 240),
    "products": Stage(products, 150),
    "bench": Stage(bench, 300),
    "calibrate": Stage(calibrate, 400),
    "torch": Stage(torch, 180),
    "decisions": Stage(decisions, 200),
    "published": Stage(published.publish_all, 480),
    "parity": Stage(parity, 300),
    "slow": Stage(slow, 480),
    "sanitizer": Stage(sanitizer, 300),
    "scenarios": Stage(scenarios, 300)}
