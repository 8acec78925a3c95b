# SPDX-License-Identifier: Apache-2.0
"""Which part of a model each weight belongs to, and how many a token uses."""

import collections
import re

# By the class of the innermost module that says so: the first that matches, in this order.
CLASSES = (
    ("norm", r"norm"),
    ("shared_experts", r"shared(expert|mlp)"),
    ("router", r"router|topkgate|moegate(?!d)"),
    ("experts", r"experts?$|parallelexperts"),
    ("indexer", r"indexer|compressor"),
    ("state", r"mamba|ssm|gateddelta|deltanet|deltaattention|textlinearattention|lightningattention|"
              r"shortconv|rglru|recurrentblock|rwkv|lstm|mlstm|kimidelta|convolution"),
    ("attention", r"attention|attn"),
    ("mlp", r"mlp|feedforward|ffn|intermediate|glu"),
    ("embeddings", r"embedding"),
)
# By the name of a component, from the innermost one outwards, where no class says so.
NAMES = (
    ("norm", r"norm|^ln_|_ln$|layernorm"),
    ("shared_experts", r"^shared_(experts?|mlp)"),
    ("router", r"^(gate|router|e_score_correction_bias|expert_bias)$"),
    ("experts", r"^experts?$|^(input|output)_linear$"),
    ("state", r"^(mamba|linear_attn|conv|mixer|temporal_block)$"),
    ("attention", r"attn|attention|^sinks$"),
    ("mlp", r"^mlp$|^ffn$|feed_forward|^ff$|^fc[12]$|^intermediate$|^output$"),
    ("embeddings", r"embed|^wte$|^wpe$"),
)
TOWER = re.compile(
    r"vision|visual|audio|image|img|video|projector|connector|aligner|qformer|query_tokens|"
    r"vqmodel|multi_modal|mm_|speech|sound|perceiver|resampler|merger|generation_|abstractor")
SECTIONS = ("vision_config", "audio_config", "text_config", "thinker_config")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_k", "moe_top_k",
         "top_k_experts", "num_selected_experts", "experts_per_token", "top_k")
NUM_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")


def names_of(model, module):
    """The names of a module's weights, among those of the model."""
    if module is None:
        return set()
    ids = {id(weight) for weight in module.parameters()}
    return {name for name, weight in model.named_parameters(remove_duplicate=False)
            if id(weight) in ids}


def module_or_none(get):
    try:
        return get()
    except (AttributeError, NotImplementedError, TypeError):
        return None


def decoder_of(model):
    """The module that has the layers of the text model, and its name; None where it is all."""
    if not any(getattr(model.config, section, None) is not None for section in SECTIONS):
        return None, ""
    decoder = module_or_none(model.get_decoder)
    name = next((name for name, module in model.named_modules() if module is decoder), "")
    if not name or any(TOWER.search(inner.lower().split(".")[0])
                       for inner, _ in decoder.named_children()):
        return None, ""
    return decoder, name


def part_by_class(modules, path):
    """The part that the classes on the way to a weight name; the innermost says most."""
    for depth in range(len(path), 0, -1):
        kind = type(modules[".".join(path[:depth])]).__name__.lower()
        for part, pattern in CLASSES:
            if re.search(pattern, kind):
                return part, depth
    return "", 0


def part_of(modules, name, num_dims):
    path = name.split(".")
    by_class, depth = part_by_class(modules, path[:-1])
    lower = [component.lower() for component in path]
    # A router and shared experts are plain layers in the class of a block of experts.
    for component in reversed(lower[depth - 1 if depth else 0:]):
        for part, pattern in NAMES[:3]:
            if re.search(pattern, component) and (part != "router" or by_class != "attention"):
                return part
    if any(re.search(r"^shared_(experts?|mlp)|^experts?_shared", part) for part in lower):
        return "shared_experts"
    if any(re.search(r"^experts$", part) for part in lower) or (
            by_class in ("mlp", "") and num_dims == 3 and "moe" in ".".join(lower)):
        return "experts"
    if by_class:
        return by_class
    for component in reversed(lower):
        for part, pattern in NAMES[3:]:
            if re.search(pattern, component):
                return part
    return "other"


def first_integer(config, keys):
    """Of the first key that has one, in the configuration or in its part about experts. None where
    a token of text and one of an image have experts of their own."""
    if isinstance(getattr(config, "moe_intermediate_size", None), list):
        return None
    configs = (config, getattr(config, "ffn_config", None))
    return next((getattr(one, key) for one in configs for key in keys
                 if type(getattr(one, key, None)) is int), None)


def count(model):
    """Weights by part, each once; those of towers apart from the text model's."""
    decoder, prefix = decoder_of(model)
    tables = names_of(model, module_or_none(model.get_input_embeddings))
    heads = names_of(model, module_or_none(model.get_output_embeddings))
    modules = dict(model.named_modules())
    parts = collections.Counter()
    for name, weight in model.named_parameters():
        if name in tables:
            part = "embeddings"
        elif name in heads or name.split(".")[-2] in ("lm_head", "output_head"):
            part = "head"
        elif "embed_tokens_extend" in name or (
                not name.startswith(prefix + ".") if decoder is not None
                else TOWER.search(name.lower())):
            part = "towers"
        else:
            part = part_of(modules, name, weight.dim())
        parts[part] += weight.numel()
    config = model.config.get_text_config(decoder=True)
    top_k, num_experts = first_integer(config, TOP_K), first_integer(config, NUM_EXPERTS)
    total = sum(parts.values())
    text = total - parts["towers"]
    row = {"total": total, "text": text, "parts": dict(parts),
           "has_tied_embeddings": bool(tables & heads)}
    if not parts["experts"]:
        row["active"] = text
    elif top_k and num_experts:
        idle = parts["experts"] - round(parts["experts"] * top_k / num_experts)
        row.update(active=text - idle, top_k=top_k, num_experts=num_experts)
    return row


def shapes(model):
    """[name, shape, count] of all weights, with N for the numbers of layers and experts."""
    counts = collections.Counter()
    for name, weight in model.named_parameters():
        counts[re.sub(r"\.\d+(?=\.|$)", ".N", name), tuple(weight.shape)] += 1
    return [[name, list(shape), number] for (name, shape), number in counts.items()]
