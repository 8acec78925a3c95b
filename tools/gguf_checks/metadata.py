# SPDX-License-Identifier: Apache-2.0
"""Reads GGUF files with the `gguf` package, and undoes what llama.cpp's conversion does."""

import gguf
import numpy


def read_file(path):
    """The metadata and the tensors (by name) of a file, or of a model by its first part."""
    reader = gguf.GGUFReader(path)
    fields = {key: field.contents() for key, field in reader.fields.items()}
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    count = int(fields.get("split.count", 1))
    for part in range(2, count + 1):
        name = path.name.replace(f"-00001-of-{count:05}", f"-{part:05}-of-{count:05}")
        tensors.update((one.name, one) for one in gguf.GGUFReader(path.with_name(name)).tensors)
    return fields, tensors


def dequantised(tensor):
    """A tensor's values in float32, in its shape with the outermost dimension first."""
    values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
    return numpy.ascontiguousarray(values, dtype=numpy.float32).reshape(
        [int(n) for n in reversed(tensor.shape)])


def unpermuted(weight, heads):
    """The rows of Q or K in Hugging Face's order."""
    rows, columns = weight.shape
    dim = rows // heads
    return weight.reshape(heads, dim // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


PARTS = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
         "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
         "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
         "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
         "post_ffw_norm": "post_feedforward_layernorm"}
OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight",
         "output.weight": "lm_head.weight"}


def folder_name(name, architecture):
    """Hugging Face's name of a tensor; None for one that its folder does not have."""
    if not name.startswith("blk."):
        return OUTER.get(name)
    _, layer, part, ending = name.split(".")
    if part == "ffn_norm":
        part = ("pre_feedforward_layernorm" if architecture == "gemma3" else
                "post_attention_layernorm")
    elif part == "post_attention_norm":
        part = "post_attention_layernorm"
    else:
        part = PARTS[part]
    return f"model.layers.{layer}.{part}.{ending}"


def folder_weights(fields, tensors):
    """The weights of the Hugging Face folder that the file was made of, in float32."""
    architecture = fields["general.architecture"]
    heads = fields[f"{architecture}.attention.head_count"]
    kv_heads = fields.get(f"{architecture}.attention.head_count_kv", heads)
    weights = {}
    for name, tensor in tensors.items():
        found = folder_name(name, architecture)
        if found is None:
            continue
        values = dequantised(tensor)
        if architecture == "llama" and name.endswith(("attn_q.weight", "attn_k.weight")):
            values = unpermuted(values, heads if "attn_q" in name else kv_heads)
        if architecture == "gemma3" and name.endswith("norm.weight"):
            values = values - numpy.float32(1)
        weights[found] = numpy.ascontiguousarray(values)
    return weights
