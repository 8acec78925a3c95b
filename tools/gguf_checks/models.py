# SPDX-License-Identifier: Apache-2.0
"""Greedy tokens of a GGUF file on the CPU backend, beside transformers' on the same weights."""

import json
import os
import random
import subprocess
import tempfile
from pathlib import Path

from gguf_checks import metadata

NUM_TOKENS = 64
MAX_PROMPT_TOKENS = 1000
# Documents of the repository, for prompts that are texts.
ROOT = Path(__file__).resolve().parent.parent.parent


def shared_keys(fields, weights):
    """The keys of a config.json that every family has."""
    name = fields["general.architecture"]

    def key(suffix, otherwise=None):
        return fields.get(f"{name}.{suffix}", otherwise)

    heads = key("attention.head_count")
    return {
        "num_hidden_layers": key("block_count"), "hidden_size": key("embedding_length"),
        "intermediate_size": key("feed_forward_length"), "num_attention_heads": heads,
        "num_key_value_heads": key("attention.head_count_kv", heads),
        "head_dim": key("attention.key_length", key("embedding_length") // heads),
        "vocab_size": weights["model.embed_tokens.weight"].shape[0],
        "max_position_embeddings": key("context_length"),
        "rms_norm_eps": round_trip(key("attention.layer_norm_rms_epsilon")),
        "tie_word_embeddings": "lm_head.weight" not in weights,
        "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}


def round_trip(number):
    """1e-5 for the float32 nearest to it."""
    import numpy
    return float(str(numpy.float32(number)))


def config_of(fields, weights):
    """The class and the configuration of transformers."""
    import transformers
    name = fields["general.architecture"]
    keys = shared_keys(fields, weights)
    base = fields.get(f"{name}.rope.freq_base", 10000.0)
    if name == "gemma3":
        keys.update(
            sliding_window=fields["gemma3.attention.sliding_window"], sliding_window_pattern=6,
            query_pre_attn_scalar=keys["head_dim"], hidden_activation="gelu_pytorch_tanh",
            rope_parameters={
                "full_attention": {"rope_type": "default", "rope_theta": base},
                "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}})
        return transformers.Gemma3ForCausalLM, transformers.Gemma3TextConfig(**keys)
    keys["rope_parameters"] = {"rope_type": "default", "rope_theta": base}
    if name == "qwen3":
        return transformers.Qwen3ForCausalLM, transformers.Qwen3Config(**keys)
    if name == "llama":
        return transformers.LlamaForCausalLM, transformers.LlamaConfig(**keys)
    raise SystemExit(f"gguf_parity: {name}: no class of transformers is known for it here")


def load_model(path):
    """transformers' model with the file's weights in float32, and the file's metadata."""
    import torch
    fields, tensors = metadata.read_file(path)
    weights = metadata.folder_weights(fields, tensors)
    model_class, config = config_of(fields, weights)
    model = model_class._from_config(config, attn_implementation="eager", dtype=torch.float32)
    state = {name: torch.from_numpy(values.copy()) for name, values in weights.items()}
    missing, unexpected = model.load_state_dict(state, strict=False)
    missing = [name for name in missing if name != "lm_head.weight" or not config.tie_word_embeddings]
    if missing or unexpected:
        raise SystemExit(f"gguf_parity: {path}: {missing} are missing, {unexpected} are too many")
    model.tie_weights()
    return model.eval(), fields


def encode(program, path, texts):
    """Metronome's own token ids of texts."""
    lines = "".join(json.dumps({"hex": text.encode().hex(), "add": True}) + "\n" for text in texts)
    result = subprocess.run([program, path], input=lines.encode(), capture_output=True, check=True)
    return [json.loads(line) for line in result.stdout.splitlines()]


def make_prompts(program, path, vocab_size, count, seed):
    """A third random token ids, the others texts; of up to 1,000 tokens."""
    numbers = random.Random(seed)
    pages = sorted((ROOT / "docs").rglob("*.md"))
    texts = []
    for _ in range(count):
        text = numbers.choice(pages).read_text()
        texts.append(text[numbers.randrange(max(1, len(text) // 2)):])
    prompts = []
    for i, ids in enumerate(encode(program, path, texts)):
        # Short ones as well: most are below 300.
        length = int(MAX_PROMPT_TOKENS ** numbers.uniform(0.3, 1))
        length = MAX_PROMPT_TOKENS if i == 1 else length
        if i % 3 == 0:
            ids = [numbers.randrange(vocab_size) for _ in range(length)]
        prompts.append(ids[:length])
    return prompts


def ours(program, path, prompts, folder):
    """The tokens of the CPU backend, as it serves all prompts together in chunks."""
    trace = Path(folder) / "prompts.jsonl"
    trace.write_text("".join(json.dumps({
        "input_toks": len(ids), "output_toks": NUM_TOKENS, "arrival_time_ns": 0,
        "input_tok_ids": ids}) + "\n" for ids in prompts))
    scenario = Path(folder) / "parity.yaml"
    scenario.write_text(
        f"model: {path}\nengine: {{max_num_seqs: 8, max_model_len: 1200}}\n"
        f"scheduler: {{policy: chunked, prefill_chunk_size: 128}}\n"
        f"workload: {{trace: {{file: {trace}, format: sharegpt}}}}\nresults: {{outputs: true}}\n")
    out = Path(folder) / "out"
    result = subprocess.run([program, "run", scenario, "--backend=cpu", "--quiet", "--out", out],
                            capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"gguf_parity: {result.stderr.decode(errors='replace')}")
    lines = [json.loads(line) for line in (out / "outputs.jsonl").read_text().splitlines()]
    return {line["request"]: line["token_ids"] for line in lines}


def theirs(model, prompt):
    """transformers' greedy tokens, and the smallest gap between the two likeliest of a step."""
    import torch
    with torch.no_grad():
        out = model(input_ids=torch.tensor([prompt]), use_cache=True)
        tokens, gap = [], float("inf")
        while True:
            best = torch.topk(out.logits[0, -1], 2)
            gap = min(gap, float(best.values[0] - best.values[1]))
            tokens.append(int(best.indices[0]))
            if len(tokens) == NUM_TOKENS:
                return tokens, gap
            out = model(input_ids=torch.tensor([[tokens[-1]]]), use_cache=True,
                        past_key_values=out.past_key_values)


def check(program, count, seed, paths):
    """Compares every file; returns the number of prompts with other tokens."""
    os.environ.setdefault("HF_HUB_OFFLINE", "1")
    wrong = 0
    for path in paths:
        model, fields = load_model(path)
        lines_program = program.parent / "metronome_tokenizer_lines"
        vocab_size = len(fields["tokenizer.ggml.tokens"])
        prompts = make_prompts(lines_program, path, vocab_size, count, seed)
        with tempfile.TemporaryDirectory() as folder:
            found = ours(program, path.resolve(), prompts, folder)
        bad = 0
        for i, prompt in enumerate(prompts):
            expected, gap = theirs(model, prompt)
            if found.get(i) == expected:
                continue
            bad += 1
            same = next((k for k, (a, b) in enumerate(zip(found.get(i, []), expected)) if a != b), 0)
            print(f"  prompt {i} of {len(prompt)} tokens: differs from token {same} on; the "
                  f"smallest gap of two logits is {gap:.2g}", flush=True)
        total = sum(map(len, prompts))
        print(f"{path.name}: seed {seed}, {count} prompts of {total} tokens, {NUM_TOKENS} greedy "
              f"tokens each, {bad} differ", flush=True)
        wrong += bad
    return wrong
