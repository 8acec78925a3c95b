# SPDX-License-Identifier: Apache-2.0
"""What transformers itself keeps of a request: keys and values of tokens, and states.

A forward pass without bytes says it. It runs on PyTorch's meta device with all of the model, and
with a few tokens, fewer than any window.
"""

import collections
import contextlib
import math
import re

NUM_TOKENS = 3
CACHES = ("past_key_values", "cache", "cache_params", "state")
TOKEN_TENSORS = {"keys": "keys", "values": "values", "indexer_keys": "index",
                 "idx_keys": "index", "prefill_keys": "keys", "prefill_values": "values"}
RATIOS = ("index_kpool", "indexer_compress_ratio")
# Of a token or of a few: no state of a request.
PASSING = ("indexer_position_ids", "buffer_kv", "buffer_gate")


@contextlib.contextmanager
def answers_of_zero():
    """Within it a question about a value (item(), if) of a tensor without bytes gets zero."""
    import torch
    from torch import library as operators
    library = operators.Library("aten", "IMPL")

    def zero(tensor):
        return False if tensor.dtype == torch.bool else tensor.dtype.is_floating_point * 0.0
    library.impl("_local_scalar_dense", zero, "Meta")
    try:
        yield
    finally:
        library._destroy()


def skip_experts(model):
    """Experts give back what they get: which one a token goes to depends on values."""
    for module in model.modules():
        kind = type(module).__name__.lower()
        if kind.endswith("experts") and not kind.startswith("shared"):
            module.forward = lambda hidden, *_, **__: hidden


def run(model, **inputs):
    import torch
    import torch.fx.experimental._config
    torch.distributions.Distribution.set_default_validate_args(False)
    torch.fx.experimental._config.meta_nonzero_assume_all_nonzero = True
    with torch.no_grad(), torch.device("meta"), answers_of_zero():
        output = model(use_cache=True, **inputs)
    return next((getattr(output, name) for name in CACHES
                 if getattr(output, name, None) is not None), None)


def cache_of(model, decoder):
    """The cache after a few tokens. Raises what the first way to run the model raised."""
    import torch
    skip_experts(model)
    ids = torch.zeros((1, NUM_TOKENS), dtype=torch.long, device="meta")
    try:
        cache = run(model, input_ids=ids)
    except Exception as error:
        if decoder is None:
            raise
        try:
            cache = run(decoder, input_ids=ids)
        except Exception:
            raise error from None
    return getattr(cache, "self_attention_cache", cache)


def tensors_in(value):
    import torch
    if torch.is_tensor(value):
        return [value]
    values = value.values() if isinstance(value, dict) else value
    return [tensor for one in values for tensor in tensors_in(one)] if isinstance(
        value, (list, tuple, dict)) else []


def describe_layer(layer):
    """Elements a token, the window and the states of one layer of a cache."""
    row = {"kind": type(layer).__name__}
    for name, value in vars(layer).items():
        tensors = [tensor for tensor in tensors_in(value) if tensor.numel() > 1]
        if name in TOKEN_TENSORS and tensors:
            # A model may put tokens of its own before those of the request.
            row[TOKEN_TENSORS[name]] = tensors[0].numel() // tensors[0].shape[-2]
        elif name == "sliding_window" and isinstance(value, int):
            row["window"] = value
        elif tensors and name not in PASSING:
            row.setdefault("states", []).extend(
                {"name": name, "shape": list(tensor.shape[1:]),
                 "bytes": tensor.numel() * tensor.element_size()} for tensor in tensors)
    return row


def is_convolution(state):
    return state["name"] in ("conv_states", "conv1d_state")


def elements_of_states(layers):
    """Elements of a request's states: recurrent ones, and inputs of convolutions. transformers
    keeps the last `width` inputs of most, engines one less: the newest comes with its token."""
    recurrent = convolution = whole = 0
    for layer in layers:
        for state in layer.get("states", []):
            elements = math.prod(state["shape"])
            if not is_convolution(state):
                recurrent += elements
                continue
            whole += elements
            keeps_newest = state["name"] == "conv_states"
            convolution += elements - (elements // state["shape"][-1] if keeps_newest else 0)
    return {"recurrent_elements": recurrent, "convolution_elements": convolution,
            "whole_convolution_elements": whole}


def group(layers):
    """Equal layers once, with their number."""
    counts = collections.Counter()
    first = {}
    for layer in layers:
        first.setdefault(repr(layer), layer)
        counts[repr(layer)] += 1
    return [{"count": counts[text], **layer} for text, layer in first.items()]


def states_of(name, holder):
    """A layer of states that are kept in a list or in a module instead of a cache's layer."""
    tensors = tensors_in(holder)
    return [{"kind": name, "states": [{"name": name, "shape": list(tensor.shape[1:]), "bytes":
                                       tensor.numel() * tensor.element_size()}]}
            for tensor in tensors]


def layers_by_widths(model):
    """Layers as the outputs of their projections of keys and values say, where nothing ran."""
    layers = []
    for module in model.modules():
        rows = {name: child.weight.shape[0] for name, child in module.named_children()
                if getattr(child, "weight", None) is not None and child.weight.dim() == 2}
        if "k_proj" in rows and "v_proj" in rows:
            layers.append({"kind": "widths", "keys": rows["k_proj"], "values": rows["v_proj"]})
        elif "kv_proj" in rows:
            layers.append({"kind": "widths", "keys": rows["kv_proj"] // 2,
                           "values": rows["kv_proj"] // 2})
        elif "kv_a_proj_with_mqa" in rows:
            layers.append({"kind": "widths", "keys": rows["kv_a_proj_with_mqa"], "values": 0})
        elif type(module).__name__ == "Attention" and "c_attn" in dict(module.named_children()):
            width = module.c_attn.weight.shape[1] // 3
            layers.append({"kind": "widths", "keys": width, "values": width})
    return layers


def layers_of(model, decoder):
    """The layers of a cache, and why they come from the weights alone if they do."""
    try:
        cache, reason = cache_of(model, decoder), ""
    except Exception as error:  # any of some hundred models' own
        cache, reason = None, f"{type(error).__name__}: {error}"
    layers = [describe_layer(layer) for layer in getattr(cache, "layers", None) or []]
    layers += states_of("linear_cache", getattr(cache, "linear_cache", []))
    layers += states_of("rnn_state", getattr(cache, "rnn_state", {}))
    layers += states_of("state", cache if isinstance(cache, list) else [])
    for module in model.modules():
        for name in ("recurrent_states", "conv1d_state"):
            layers += states_of(name, [getattr(module, name, None)])
    if not any("keys" in layer for layer in layers):
        layers += layers_by_widths(decoder or model)
    if not any(len(layer) > 1 for layer in layers):
        raise ValueError(reason or f"a cache of class {type(cache).__name__} has no layers")
    return layers, reason


def has_compressed_keys(model, layers):
    """Whether one entry stands for several tokens: a few tokens do not show what many take."""
    config = model.config.get_text_config(decoder=True)
    return any((getattr(config, key, None) or 1) > 1 for key in RATIOS) or any(
        layer["kind"].endswith(("HCACache", "CSACache")) for layer in layers)


def describe(model, decoder):
    """The row's part about a request: layers of the cache by kind, and sums."""
    layers, reason = layers_of(model, decoder)
    return {"cache": group(layers), **({"cache_is_of_weights": reason} if reason else {}),
            "kv_elements": sum(layer.get("keys", 0) + layer.get("values", 0) for layer in layers),
            "index_elements": sum(layer.get("index", 0) for layer in layers),
            "index_layers": sum("index" in layer for layer in layers),
            "state_bytes": sum(state["bytes"] for layer in layers
                               for state in layer.get("states", [])),
            **elements_of_states(layers),
            "has_compressed_keys": has_compressed_keys(model, layers)}


def layers_by_kind(config):
    """Layers by what their configuration calls them."""
    kinds = getattr(config, "layer_types", None) or getattr(config, "layers_block_type", None)
    row = {"layers": getattr(config, "num_hidden_layers", None)}
    if kinds:
        row["layer_kinds"] = dict(collections.Counter(re.sub(r"\s", "", kind) for kind in kinds))
    return row
