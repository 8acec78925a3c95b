# SPDX-License-Identifier: Apache-2.0
"""Random tiny models of every family: their folders, beside the GGUF files made of them.

The folders come from tools/hf_parity, with the greedy tokens that transformers computes.
"""

import importlib.machinery
import importlib.util
import json
import random
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy

from gguf_checks import conversion

ROOT = Path(__file__).resolve().parent.parent.parent


def load_hf_parity():
    loader = importlib.machinery.SourceFileLoader("hf_parity", str(ROOT / "tools/hf_parity"))
    module = importlib.util.module_from_spec(
        importlib.util.spec_from_loader(loader.name, loader))
    loader.exec_module(module)
    module.load_libraries()
    return module


def rounded(value):
    """Numbers of four digits: a file's float32 means the same one."""
    if isinstance(value, dict):
        return {key: rounded(item) for key, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def restrict_to_file(numbers, architecture, keys):
    """Takes away what a file cannot say: llama.cpp has one value for every model of a family."""
    rope = keys.get("rope_parameters", {})
    for part in (rope, rope.get("full_attention", {})):
        if part.get("rope_type") == "llama3":  # tests/models/weights has known answers for it
            kept = {"rope_type": "linear", "factor": part["factor"],
                    "rope_theta": part["rope_theta"]}
            part.clear()
            part.update(kept)
    if architecture in ("Gemma2ForCausalLM", "Gemma3ForCausalLM"):
        keys["query_pre_attn_scalar"] = keys["head_dim"]
    if architecture == "Gemma2ForCausalLM":
        keys.pop("layer_types")
        keys["rope_parameters"] = {"rope_type": "default", "rope_theta": 10000.0}
        keys.update(tie_word_embeddings=True, attn_logit_softcapping=numbers.uniform(1, 60),
                    final_logit_softcapping=numbers.uniform(1, 60))
    if architecture == "Qwen2ForCausalLM":
        for key in ("use_sliding_window", "sliding_window", "layer_types"):
            keys.pop(key, None)
    if architecture == "Qwen3MoeForCausalLM":
        keys.update(decoder_sparse_step=1, norm_topk_prob=True)
    if architecture == "SmolLM3ForCausalLM":
        keys.pop("no_rope_layers")
        keys["num_hidden_layers"] = numbers.randint(3, 6)
    if architecture == "GPT2LMHeadModel":
        keys.update(n_inner=None, activation_function="gelu_new")
    return rounded(keys)


def make_folder(hf_parity, folder, architecture, numbers):
    """Writes a folder of a random model."""
    dtype, length, keys = hf_parity.random_config(numbers, architecture)
    keys = restrict_to_file(numbers, architecture, keys)
    hf_parity.make_fixture(folder, hf_parity.config_of(architecture, keys), architecture, dtype,
                           length, numbers.randrange(2**31), "1GB")


def read(program, path, out):
    """The configuration and the weights that a path has, by name."""
    result = subprocess.run([program, path, out], capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"gguf_parity: {result.stderr.decode(errors='replace')}")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    data = numpy.fromfile(out, numpy.float32)
    weights, at = {}, 0
    for line in lines[1:]:
        count = line["rows"] * line["cols"]
        weights[line["name"]] = data[at:at + count]
        at += count
    return lines[0], weights


def is_close(ours, theirs):
    """Factors of attention that a file holds as float32 have seven digits."""
    if isinstance(ours, float) and isinstance(theirs, (int, float)):
        return abs(ours - theirs) <= 1e-7 * abs(theirs)
    return ours == theirs


def is_same(name, ours, theirs, has_one_added):
    if has_one_added and "norm" in name:  # 1 + the weight is what the file holds
        ours, theirs = ours + numpy.float32(1), theirs + numpy.float32(1)
    return ours.tobytes() == theirs.tobytes()


def different_parts(program, folder, path, scratch):
    """The keys and tensors that differ between a folder and the file made of it."""
    config, weights = read(program, path, scratch / "file")
    folder_config, folder_weights = read(program, folder, scratch / "folder")
    parts = [f"{key} {config.get(key)} {value}" for key, value in folder_config.items()
             if not is_close(config.get(key), value) and key != "bytes_per_weight"]
    parts += sorted(set(weights) ^ set(folder_weights))
    has_one_added = folder_config["architecture"].startswith("Gemma")
    return parts + [name for name in set(weights) & set(folder_weights)
                    if not is_same(name, weights[name], folder_weights[name], has_one_added)]


def greedy_tokens(program, path, prompt, count, scratch):
    """The tokens of the CPU backend."""
    trace = scratch / "prompt.jsonl"
    trace.write_text(json.dumps({"input_toks": len(prompt), "output_toks": count,
                                 "arrival_time_ns": 0, "input_tok_ids": prompt}) + "\n")
    scenario = scratch / "parity.yaml"
    scenario.write_text(
        f"model: {path}\nengine: {{max_num_seqs: 2, max_model_len: {len(prompt) + count}}}\n"
        f"scheduler: {{policy: chunked, prefill_chunk_size: 32}}\n"
        f"workload: {{trace: {{file: {trace}, format: sharegpt}}}}\nresults: {{outputs: true}}\n")
    out = scratch / "out"
    shutil.rmtree(out, ignore_errors=True)
    result = subprocess.run([program, "run", scenario, "--backend=cpu", "--quiet", "--out", out],
                            capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"gguf_parity: {result.stderr.decode(errors='replace')}")
    return json.loads((out / "outputs.jsonl").read_text().splitlines()[0])["token_ids"]


def differences(build, folder, scratch):
    path = scratch / "model.gguf"
    conversion.convert(folder, path)
    parts = different_parts(build / "metronome_gguf_weights", folder, path, scratch)
    expected = conversion.read_safetensors(folder / "expected.safetensors")
    prompt, greedy = expected["prompt"].tolist(), expected["greedy"].tolist()
    if greedy_tokens(build / "metronome", path, prompt, len(greedy), scratch) != greedy:
        parts.append("greedy tokens")
    return parts


def check(build, count, seed, folders):
    """Compares random models, or given folders of tools/hf_parity; returns how many are wrong."""
    wrong = 0
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        for folder in folders:
            parts = differences(build, folder, scratch)
            wrong += bool(parts)
            print(f"{folder.name}: {len(parts)} differences {parts[:5]}", flush=True)
        if folders:
            return wrong
        hf_parity = load_hf_parity()
        for architecture in conversion.ARCHITECTURES:
            bad = 0
            for i in range(count):
                numbers = random.Random(f"{seed} {architecture} {i}")
                folder = scratch / f"{architecture}-{i}"
                make_folder(hf_parity, folder, architecture, numbers)
                parts = differences(build, folder, scratch)
                if parts:
                    bad += 1
                    print(f"  case {i}: {parts[:5]}", flush=True)
            print(f"{architecture}: seed {seed}, {count} random models, {bad} differ", flush=True)
            wrong += bad
    return wrong
