# SPDX-License-Identifier: Apache-2.0
"""Writes GGUF files of Hugging Face folders, as llama.cpp's conversion scripts do.

Source: llama.cpp, conversion/*.py. The names of tensors are those of the `gguf` package. Matrices
keep the folder's type; norms, biases and routers become float32, as in the scripts.
"""

import json
import math
import struct

import gguf
import numpy

ARCHITECTURES = {
    "LlamaForCausalLM": "LLAMA", "MixtralForCausalLM": "LLAMA", "Qwen2ForCausalLM": "QWEN2",
    "Qwen3ForCausalLM": "QWEN3", "Qwen3MoeForCausalLM": "QWEN3MOE", "Gemma2ForCausalLM": "GEMMA2",
    "Gemma3ForCausalLM": "GEMMA3", "Phi3ForCausalLM": "PHI3", "SmolLM3ForCausalLM": "SMOLLM3",
    "Olmo2ForCausalLM": "OLMO2", "GraniteForCausalLM": "GRANITE", "GPT2LMHeadModel": "GPT2"}
# LlamaModel of conversion/llama.py, and its subclasses.
PERMUTED = ("LLAMA", "SMOLLM3", "GRANITE")
TYPES = {"F32": numpy.float32, "F16": numpy.float16, "BF16": numpy.uint16, "I32": numpy.int32}


def read_safetensors(path):
    """The tensors of a file by name; of bfloat16 the bits."""
    data = path.read_bytes()
    size = struct.unpack_from("<Q", data)[0]
    tensors = {}
    for name, entry in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            begin, end = (8 + size + offset for offset in entry["data_offsets"])
            tensors[name] = numpy.frombuffer(data[begin:end], TYPES[entry["dtype"]]).reshape(
                entry["shape"])
    return tensors


def as_float32(values):
    if values.dtype != numpy.uint16:
        return values.astype(numpy.float32)
    return (values.astype(numpy.uint32) << 16).view(numpy.float32)


def permuted(values, heads):
    """The rows of each head in the order of llama.cpp's RoPE."""
    return numpy.ascontiguousarray(
        values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
        .swapaxes(1, 2).reshape(values.shape))


def merged_experts(tensors):
    """One tensor for a matrix of all experts of a layer, with the name that `gguf` knows."""
    merged, experts = {}, {}
    names = {"w1": "gate_proj", "w2": "down_proj", "w3": "up_proj"}
    for name, values in tensors.items():
        if ".experts." not in name:
            merged[name.replace("block_sparse_moe.gate.", "mlp.gate.")] = values
            continue
        layer, rest = name.split(".experts.")
        number, matrix, _ = rest.split(".")
        layer = layer.replace("block_sparse_moe", "mlp")
        whole = f"{layer}.experts.{names.get(matrix, matrix)}.weight"
        experts.setdefault(whole, {})[int(number)] = values
    for name, parts in experts.items():
        merged[name] = numpy.stack([parts[i] for i in range(len(parts))])
    return merged


def expert_name(name):
    """`gguf` has no row for Mixtral's merged experts by this name in Llama's table."""
    _, _, layer, *_, matrix, _ = name.split(".")
    return f"blk.{layer}.ffn_{matrix.removesuffix('_proj')}_exps.weight"


def add_tensors(writer, tensors, config, architecture):
    layers = config.get("num_hidden_layers", config.get("n_layer"))
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture], layers)
    heads = config.get("num_attention_heads", config.get("n_head"))
    for name, values in merged_experts(tensors).items():
        if architecture == "GPT2" and name.endswith(
                (".c_attn.weight", ".c_proj.weight", ".c_fc.weight")):
            values = numpy.ascontiguousarray(values.T)
        if architecture in PERMUTED and "q_proj." in name:
            values = permuted(values, heads)
        if architecture in PERMUTED and "k_proj." in name:
            values = permuted(values, config["num_key_value_heads"])
        if values.ndim == 1 or ".mlp.gate." in name:
            values = as_float32(values)
        if architecture in ("GEMMA2", "GEMMA3") and name.endswith("norm.weight"):
            values = values + numpy.float32(1)
        if ".experts." in name:
            found = expert_name(name)
        elif ".mlp.gate." in name:
            found = f"blk.{name.split('.')[2]}.ffn_gate_inp.weight"
        else:
            found = names.get_name(name, try_suffixes=(".weight", ".bias"))
        if found is None:
            raise SystemExit(f"gguf_parity: {name}: llama.cpp has no name for it")
        if values.dtype == numpy.uint16:
            writer.add_tensor(found, values.view(numpy.uint8),
                              raw_dtype=gguf.GGMLQuantizationType.BF16)
        else:
            writer.add_tensor(found, values)


def add_rope(writer, config, rope):
    """The keys that conversion/base.py's set_gguf_parameters writes, and Llama 3's divisors."""
    kind = rope.get("rope_type", "default")
    if kind in ("linear", "yarn"):
        writer.add_rope_scaling_type(gguf.RopeScalingType(kind))
        writer.add_rope_scaling_factor(rope["factor"])
    if kind == "yarn":
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    if kind == "llama3":
        dim = config.get("head_dim", config["hidden_size"] // config["num_attention_heads"])
        positions = rope["original_max_position_embeddings"]
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        divisors = []
        for i in range(0, dim, 2):
            length = 2 * math.pi * rope["rope_theta"] ** (i / dim)
            smooth = (positions / length - low) / (high - low)
            between = 1 / ((1 - smooth) / rope["factor"] + smooth)
            divisors.append(1 if length < positions / high else
                            rope["factor"] if length > positions / low else between)
        writer.add_tensor("rope_freqs.weight", numpy.array(divisors, numpy.float32))
    writer.add_rope_freq_base(rope["rope_theta"])


def add_phi3_rope(writer, config, rope):
    """conversion/phi.py."""
    positions = config["max_position_embeddings"]
    original = rope.get("original_max_position_embeddings", positions)
    heads = config["num_attention_heads"]
    writer.add_rope_scaling_orig_ctx_len(original)
    writer.add_rope_dimension_count(
        int(rope.get("partial_rotary_factor", 1.0) * config["hidden_size"]) // heads)
    writer.add_rope_freq_base(rope["rope_theta"])
    writer.add_sliding_window(config.get("sliding_window") or 0)
    if rope.get("long_factor"):
        scale = positions / original
        writer.add_rope_scaling_attn_factors(
            math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0)
        for length in ("long", "short"):
            writer.add_tensor(f"rope_factors_{length}.weight",
                              numpy.array(rope[f"{length}_factor"], numpy.float32))


def add_keys(writer, config, architecture):
    """The keys of every family but GPT-2."""
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    if architecture == "PHI3":
        return add_phi3_rope(writer, config, rope)
    if config.get("head_dim") and architecture != "GRANITE":
        writer.add_key_length(config["head_dim"])
        writer.add_value_length(config["head_dim"])
    if architecture in ("GEMMA2", "GEMMA3"):
        writer.add_sliding_window(config["sliding_window"])
    if architecture == "GEMMA2":  # its script writes nothing of RoPE
        writer.add_attn_logit_softcapping(config["attn_logit_softcapping"])
        return writer.add_final_logit_softcapping(config["final_logit_softcapping"])
    if architecture == "GEMMA3":
        full = [kind == "full_attention" for kind in config["layer_types"]]
        writer.add_sliding_window_pattern([not is_full for is_full in full])
        writer.add_rope_freq_base_swa(rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    if architecture in PERMUTED:
        writer.add_vocab_size(config["vocab_size"])
        writer.add_rope_dimension_count(
            config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"])
    if architecture == "GRANITE":
        writer.add_attention_scale(config["attention_multiplier"])
        writer.add_embedding_scale(config["embedding_multiplier"])
        writer.add_residual_scale(config["residual_multiplier"])
        writer.add_logit_scale(config["logits_scaling"])
    if "num_experts_per_tok" in config:
        writer.add_expert_count(config.get("num_experts", config.get("num_local_experts")))
        writer.add_expert_used_count(config["num_experts_per_tok"])
        if "moe_intermediate_size" in config:
            writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    add_rope(writer, config, rope)


def add_gpt2_keys(writer, config):
    """conversion/gpt2.py."""
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])


def convert(folder, path):
    """Writes the file of a folder; returns the name of its family."""
    config = json.loads((folder / "config.json").read_text())
    architecture = ARCHITECTURES[config["architectures"][0]]
    writer = gguf.GGUFWriter(path, gguf.MODEL_ARCH_NAMES[gguf.MODEL_ARCH[architecture]])
    if architecture == "GPT2":
        add_gpt2_keys(writer, config)
    else:
        add_keys(writer, config, architecture)
    writer.add_eos_token_id(config["eos_token_id"])
    tensors = {}
    for part in sorted(folder.glob("model*.safetensors")):
        tensors.update(read_safetensors(part))
    add_tensors(writer, tensors, config, architecture)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return writer.arch
