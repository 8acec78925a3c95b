# SPDX-License-Identifier: Apache-2.0
"""A run of the server under one setting, and its decisions beside those of `metronome`."""

import json
import pathlib
import shutil
import subprocess
import sys
import threading
import time

from vllm_checks import load, page
from vllm_checks.server import Server

from . import cut, log, settings

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build/check_llama_server"
REQUIREMENTS = ROOT / "tools/requirements/check_llama_server.txt"
SERVE = pathlib.Path(__file__).resolve().parent / "serve.py"
GOLDEN = ROOT / "tests/goldens/llama_cpp_served.jsonl"
IDLE_S = 60
TIMEOUT_S = 900  # of a request, on a busy machine


def call(*command):
    if subprocess.run([str(part) for part in command], cwd=ROOT, check=False).returncode != 0:
        raise RuntimeError(" ".join(map(str, command)))


def environment():
    """The folder of a virtual environment with the server."""
    venv = WORK / "venv"
    wanted = REQUIREMENTS.read_text(encoding="utf-8")
    done = venv / "installed"
    if not done.exists() or done.read_text(encoding="utf-8") != wanted:
        shutil.rmtree(venv, ignore_errors=True)
        call(sys.executable, "-m", "venv", venv)
        call(venv / "bin/python", "-m", "pip", "install", "-q", "--disable-pip-version-check",
             "--no-cache-dir", "--no-deps", "--only-binary", ":all:", "--require-hashes",
             "-r", REQUIREMENTS)
        done.write_text(wanted, encoding="utf-8")
    return venv


def model():
    path = WORK / "first_layer.gguf"
    if not path.exists():
        call(ROOT / "tools/model", "smollm2", "--into", WORK)
        cut.first_layers(WORK / "smollm2.gguf", path, 1)
    return path


def examine(setting, options):
    folder = WORK / setting.name
    if not options.compare_only:
        serve(setting, options, folder)
    return compare(setting, options, folder)


def serve(setting, options, folder):
    venv = environment()
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [venv / "bin/python", SERVE, "{port}", model(), json.dumps(setting.parameters())]
    with Server(command, folder / "server.log", {"LLAMA_BATCH_DEBUG": "2"}) as running:
        if setting.client == "bench-serve":
            scenario = folder / "scenario.yaml"
            scenario.write_text(setting.scenario(model(), options.seed), encoding="utf-8")
            load.bench_serve(options.metronome, running, scenario, folder / "measured")
            sent = []
        else:
            sent = send(setting, running, options.seed)
        wait_for_end(folder / "server.log")
    (folder / "sent.json").write_text(json.dumps(sent), encoding="utf-8")


def wait_for_end(path):
    """The server writes its log a little later than its answers."""
    deadline = time.monotonic() + IDLE_S
    while True:
        text = path.read_text(encoding="utf-8", errors="replace")
        if text.rfind("all slots are idle") > text.rfind("posting NEXT_RESPONSE"):
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{path} does not end with idle slots")
        time.sleep(0.2)


def send(setting, running, seed):
    """All clients at once. Returns their prompts, with the tokens that each asked for."""
    sent, errors = [], []

    def talk(script):
        prompt = []
        for new_tokens, count in script:
            prompt = (prompt if setting.continues else []) + new_tokens
            sent.append((prompt, count))
            try:
                answer = json.loads(running.ask("/completion", {
                    "prompt": prompt, "n_predict": count, "ignore_eos": True, "temperature": 0,
                    "return_tokens": True, "cache_prompt": setting.cache_prompt}, TIMEOUT_S))
                prompt = prompt + answer["tokens"]
            except OSError as error:  # an HTTP error, too
                errors.append(error)

    threads = [threading.Thread(target=talk, args=(script,)) for script in setting.scripts(seed)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors and not setting.may_fail:
        raise RuntimeError(f"{setting.name}: a request failed: {errors[0]}")
    return sent


def passes_of(num_tokens, n_ubatch):
    """A unified cache: passes of n_ubatch tokens."""
    return [min(n_ubatch, num_tokens - at) for at in range(0, num_tokens, n_ubatch)]


def compare(setting, options, folder):
    sent = [tuple(one) for one in json.loads((folder / "sent.json").read_text(encoding="utf-8"))]
    text = (folder / "server.log").read_text(encoding="utf-8", errors="replace")
    found = log.Log(text.split("\n"))
    case = found.case(options.seed, setting.config(), sent)
    path = folder / "cases.jsonl"
    path.write_text(json.dumps(case, separators=(",", ":")) + "\n", encoding="utf-8")
    code, said = load.judged(options.metronome, "decisions", "--engine", "llama_cpp", path,
                             "--check", accepts=(0, 1))
    problem = said.strip()[:1000] if code else ""
    for num_tokens, passes, has_failed in found.passes:
        if not has_failed and passes != passes_of(num_tokens, setting.n_ubatch):
            problem = problem or f"{num_tokens} tokens in passes of {passes}"
    steps = case["steps"]
    return {"setting": setting.name, "text": setting.text, "n_batch": setting.n_batch,
            "n_ubatch": setting.n_ubatch, "slots": setting.n_slots, "n_ctx": setting.n_ctx,
            "requests": len(case["requests"]), "steps": len(steps), "equal": not code,
            "passes": sum(len(passes) for _, passes, _ in found.passes),
            "chunked prompts": num_chunked(steps),
            "prompts with kept tokens": sum(count > 0 for step in steps
                                            for count in step["kept"].values()),
            "purged slots": sum(len(step["purged"]) for step in steps),
            "failures": sum("failed" in step for step in steps), "difference": problem}


def num_chunked(steps):
    chunks = [name for step in steps for name, kind, _, _ in step["batch"] if kind == "p"]
    return sum(chunks.count(name) > 1 for name in set(chunks))


def write(rows, options):
    if options.write_fixtures:
        paths = [WORK / setting.name / "cases.jsonl" for setting in settings.SETTINGS]
        GOLDEN.write_text("".join(path.read_text(encoding="utf-8") for path in paths
                                  if path.exists()), encoding="utf-8")
    if options.write:
        version = REQUIREMENTS.read_text(encoding="utf-8").split()[0].split("==")[1]
        page.write({"llama_server": {"version": version, "rows": rows}})
