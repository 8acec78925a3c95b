# SPDX-License-Identifier: Apache-2.0
"""Random tiny models of every type of tensor, and the values that come out."""

import json
import random
import struct
import subprocess
import tempfile
from pathlib import Path

import gguf
import numpy

from gguf_checks import metadata

# Offsets of the float16 scales of a block. The package reads no Q1_0 and no Q2_0.
SCALES_AT = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0], "Q4_K": [0, 2],
             "Q5_K": [0, 2], "Q6_K": [208], "Q2_K": [80, 82], "Q3_K": [108], "IQ1_S": [0],
             "IQ2_XXS": [0], "IQ2_XS": [0], "IQ2_S": [0], "IQ3_XXS": [0], "IQ3_S": [0],
             "IQ4_NL": [0], "IQ4_XS": [0], "TQ1_0": [52], "TQ2_0": [64]}
TYPES = ["F32", "F16", "BF16", *SCALES_AT, "IQ1_M", "MXFP4", "NVFP4"]
ARCHITECTURES = ["llama", "qwen3", "gemma3"]


def random_blocks(numbers, kind, rows, columns):
    """A stored matrix of random bytes with scales that are finite."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    count = rows * columns // block
    if kind == gguf.GGMLQuantizationType.F32:
        return numbers.standard_normal((rows, columns)).astype(numpy.float32)
    if kind == gguf.GGMLQuantizationType.F16:
        return numbers.standard_normal((rows, columns)).astype(numpy.float16)
    data = numbers.integers(0, 256, (count, size), dtype=numpy.uint8)
    if kind == gguf.GGMLQuantizationType.BF16:
        floats = numbers.standard_normal((count, 1)).astype(numpy.float32).view(numpy.uint8)
        data = floats[:, 2:4]
    for place in SCALES_AT.get(kind.name, []):
        halves = numbers.standard_normal((count, 1)).astype(numpy.float16)
        data[:, place:place + 2] = halves.view(numpy.uint8)
    if kind == gguf.GGMLQuantizationType.IQ1_M:
        data[:, 55] &= 0xBF  # the exponent's highest bit
    if kind == gguf.GGMLQuantizationType.MXFP4:
        data[:, 0] = numbers.integers(100, 140, count)
    return numpy.ascontiguousarray(data).reshape(rows, columns // block * size)


def specs_of(architecture, shape):
    """Name, rows and columns of every tensor; norms have no rows."""
    hidden, heads, kv_heads, dim, ffn, vocab, layers, tied = shape
    specs = [("token_embd", vocab, hidden), ("output_norm", 0, hidden)]
    if not tied:
        specs.append(("output", vocab, hidden))
    for layer in range(layers):
        def add(name, rows, columns, layer=layer):
            specs.append((f"blk.{layer}.{name}", rows, columns))
        add("attn_norm", 0, hidden)
        add("attn_q", heads * dim, hidden)
        add("attn_k", kv_heads * dim, hidden)
        add("attn_v", kv_heads * dim, hidden)
        add("attn_output", hidden, heads * dim)
        if architecture != "llama":
            add("attn_q_norm", 0, dim)
            add("attn_k_norm", 0, dim)
        add("ffn_norm", 0, hidden)
        add("ffn_gate", ffn, hidden)
        add("ffn_up", ffn, hidden)
        add("ffn_down", hidden, ffn)
        if architecture == "gemma3":
            add("post_attention_norm", 0, hidden)
            add("post_ffw_norm", 0, hidden)
    return specs


def write_model(path, architecture, kind, seed):
    """A random model whose matrices are of one type, in one file or in parts; the first one's path."""
    draw = random.Random(seed)
    numbers = numpy.random.default_rng(seed)
    block = max(gguf.GGML_QUANT_SIZES[kind][0], 2)
    kv_heads = draw.choice([1, 2])
    heads = kv_heads * draw.choice([1, 2, 3])
    dim = block * draw.choice([1, 2]) if block < 256 else block
    shape = (block * draw.choice([1, 2, 3]), heads, kv_heads, dim, block * draw.choice([1, 2]),
             draw.choice([5, 33]), draw.choice([1, 2]), draw.random() < 0.5)
    # A part but the first has no metadata, and would lack its alignment.
    alignment = draw.choice([64, 128]) if draw.random() < 0.3 else None
    limit = draw.choice([0, 1, 4]) if alignment is None else 0
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=limit)
    writer.add_block_count(shape[6])
    writer.add_context_length(128)
    writer.add_embedding_length(shape[0])
    writer.add_feed_forward_length(shape[4])
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_key_length(dim)
    writer.add_value_length(dim)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    if alignment is not None:
        writer.add_custom_alignment(alignment)
    for name, rows, columns in specs_of(architecture, shape):
        if rows == 0:
            data = numbers.standard_normal(columns).astype(numpy.float32)
            if architecture == "gemma3":
                data = data * numpy.float32(0.3) + numpy.float32(1)
            writer.add_tensor(name + ".weight", data)
        else:
            writer.add_tensor(name + ".weight", random_blocks(numbers, kind, rows, columns),
                              raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    count = len(writer.tensors)
    return path if count == 1 else path.with_name(f"{path.stem}-00001-of-{count:05}.gguf")


def read_ours(program, path, folder):
    """Metronome's configuration, and its weights by name."""
    out = Path(folder) / "weights"
    result = subprocess.run([program, path, out], capture_output=True)
    if result.returncode != 0:
        raise SystemExit(f"gguf_parity: {result.stderr.decode(errors='replace')}")
    lines = [json.loads(line) for line in result.stdout.splitlines()]
    data = out.read_bytes()
    weights, at = {}, 0
    for line in lines[1:]:
        count = line["rows"] * line["cols"]
        weights[line["name"]] = numpy.frombuffer(data, numpy.float32, count, at)
        at += 4 * count
    if at != len(data):
        raise SystemExit(f"gguf_parity: {out}: another size than its tensors")
    return lines[0], weights


def differing(program, path, folder):
    """The names of the tensors whose bits differ."""
    _, ours = read_ours(program, path, folder)
    theirs = metadata.folder_weights(*metadata.read_file(path))
    names = sorted(set(ours) ^ set(theirs))
    for name in set(ours) & set(theirs):
        if ours[name].tobytes() != theirs[name].tobytes():
            names.append(name)
    return names


def check(program, count, seed, paths):
    """Compares random files, or those given; returns the number of wrong files."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        for path in paths:
            names = differing(program, path, folder)
            wrong += bool(names)
            print(f"{Path(path).name}: {len(names)} tensors differ" + "".join(
                f"\n  {name}" for name in names[:5]), flush=True)
        for kind in [] if paths else TYPES:
            bad = 0
            for i in range(count):
                path = Path(folder) / "model.gguf"
                architecture = ARCHITECTURES[i % len(ARCHITECTURES)]
                case = f"{seed} {kind} {i}"
                number = struct.unpack("<Q", random.Random(case).randbytes(8))[0]
                path = write_model(path, architecture, gguf.GGMLQuantizationType[kind], number)
                names = differing(program, path, folder)
                if names:
                    bad += 1
                    print(f"  seed {seed}, {kind}, case {i}, {architecture}: {names[:5]}")
            print(f"{kind}: seed {seed}, {count} random files, {bad} differ", flush=True)
            wrong += bad
    return wrong
