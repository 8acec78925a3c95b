# SPDX-License-Identifier: Apache-2.0
"""AIPerf, a load generator for LLM servers, must count what the server counts."""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

from serve_checks import results
from serve_checks import server as serving
from serve_checks.server import Server

SCENARIO = serving.ROOT / "tools/serve_checks/scenario.yaml"
TOKENIZER = serving.ROOT / "tests/fixtures/tokenizers/llama3.json"
NUM_REQUESTS = 200
OUTPUT_TOKENS = 40
TIMEOUT_S = 300
KEY = "secret"


def tokenizer_folder(scratch):
    """The server's tokenizer in the format of transformers."""
    folder = scratch / "tokenizer"
    folder.mkdir()
    shutil.copy(TOKENIZER, folder / "tokenizer.json")
    (folder / "tokenizer_config.json").write_text(json.dumps({
        "tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": 32768,
        "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}))
    return folder


def profile(server, scratch, seed, certificate, key):
    """Runs the generator; returns its request records and its aggregates."""
    out = scratch / "profile"
    command = [
        pathlib.Path(sys.executable).parent / "aiperf", "profile", "--model", "llama-3.2-3b",
        "--url", server.url, "--endpoint-type", "completions", "--streaming",
        "--tokenizer", tokenizer_folder(scratch), "--use-server-token-count",
        "--request-count", str(NUM_REQUESTS), "--request-rate", "40", "--isl", "100",
        "--osl", str(OUTPUT_TOKENS), "--extra-inputs", "ignore_eos:true",
        "--random-seed", str(seed), "--output-artifact-dir", out, "--ui", "none"]
    if key:
        command += ["--api-key", key]
    environment = {**os.environ, "HOME": str(scratch), "HF_HOME": str(scratch / "hub")}
    if certificate:
        environment["SSL_CERT_FILE"] = certificate.cert
    environment.pop("HF_HUB_OFFLINE", None)  # it would look for the folder on the hub
    try:
        run = subprocess.run(list(map(str, command)), env=environment, cwd=scratch, text=True,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
                             preexec_fn=serving.die_with_parent)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"aiperf takes more than {TIMEOUT_S} s") from None
    if run.returncode != 0 or not (out / "profile_export.jsonl").exists():
        raise RuntimeError(f"aiperf: exit code {run.returncode}: {run.stdout[-2000:]}")
    records = [json.loads(line) for line in (out / "profile_export.jsonl").open()]
    return records, json.loads((out / "profile_export_aiperf.json").read_text())


def check_records(faults, records):
    faults.equal(len(records), NUM_REQUESTS, "requests")
    failed = [record["error"] for record in records if record.get("error")]
    faults.equal(failed, [], "requests that failed")
    for record in records:
        metrics = record["metrics"]
        faults.equal(metrics["output_sequence_length"]["value"], OUTPUT_TOKENS, "tokens")
        gaps = metrics["inter_chunk_latency"]["value"]
        faults.equal(len(gaps), OUTPUT_TOKENS - 1, "gaps: one event for a token")


def check_counts(faults, records, metrics):
    """The generator's sum of usage must equal the server's count."""
    for name, field in (("prompt", "input_sequence_length"),
                        ("generation", "output_sequence_length")):
        theirs = sum(record["metrics"][field]["value"] for record in records)
        faults.equal(metrics[f"vllm:{name}_tokens_total"], theirs, f"{name} tokens")
    faults.equal(metrics["vllm:request_success_total:length"], NUM_REQUESTS, "completed requests")
    for name in ("metronome:refused_total", "metronome:clients_cut_total",
                 "metronome:clients_left_total"):
        faults.equal(metrics[name], 0, name)


def check_times(faults, aggregates, metrics):
    """A client sees a token after the server has made it, and soon after on an idle machine."""
    for theirs, ours in (("time_to_first_token", "time_to_first_token_seconds"),
                         ("request_latency", "e2e_request_latency_seconds")):
        seen = aggregates[theirs]["avg"]
        made = 1e3 * metrics[f"vllm:{ours}_sum"] / metrics[f"vllm:{ours}_count"]
        faults.say(f"mean {theirs}: {seen:.1f} ms at the client, {made:.1f} ms at the server")
        faults.expect(made - 1 <= seen <= made + 1000, f"mean {theirs}: {seen} ms, {made} ms made")


def check(program, faults, options):
    seed = random.Random(options.seed).randrange(1 << 31)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        for certificate in (None, serving.make_certificate(scratch)):
            for key in (None, KEY):
                name = ("https" if certificate else "http") + (", key" if key else "")
                folder = pathlib.Path(scratch) / name
                folder.mkdir()
                faults.say(name)
                check_load(program, faults, seed, folder, certificate, key)


def check_load(program, faults, seed, scratch, certificate, key):
    """With a certificate: by HTTPS. With a key: the server asks for it."""
    options = ["--api-key", key] if key else []
    with Server(program, SCENARIO, "--tokenizer", TOKENIZER, *options, variant="budget",
                certificate=certificate) as server:
        records, aggregates = profile(server, scratch, seed, certificate, key)
        metrics = server.metrics()
        check_records(faults, records)
        check_counts(faults, records, metrics)
        check_times(faults, aggregates, metrics)
        server.expect_rest(faults, "the load")
        results.check_read_back(program, faults, scratch, scratch / "profile", [
            [int(record["metrics"][f"{side}_sequence_length"]["value"])
             for side in ("input", "output")]
            for record in sorted(records, key=lambda one: one["metadata"]["request_start_ns"])])
        faults.equal(server.stop(), 0, "exit code")
