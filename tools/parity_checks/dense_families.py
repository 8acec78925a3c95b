# SPDX-License-Identifier: Apache-2.0
"""Small models of the families of core/model/dense_families.cpp, for hf_parity."""

import json

# The class and the model_type of families that transformers has no code of.
STAND_INS = {"MiMoForCausalLM": ("Qwen2ForCausalLM", "mimo")}

KINDS = ["sliding_attention", "full_attention"]
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}


def shape(layers, hidden, heads, kv_heads, head_dim, ffn, **more):
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "head_dim": head_dim, "intermediate_size": ffn,
            "vocab_size": 66, "max_position_embeddings": 1024, "bos_token_id": 0,
            "eos_token_id": 1, "pad_token_id": None, "rope_parameters": PLAIN, **more}


def partial(share, theta=10000.0):
    return {"rope_type": "default", "rope_theta": theta, "partial_rotary_factor": share}


MINISTRAL3_ROPE = {
    "rope_type": "yarn", "rope_theta": 2000.0, "factor": 4.0, "beta_fast": 32.0, "beta_slow": 1.0,
    "mscale": 1.0, "mscale_all_dim": 1.0, "original_max_position_embeddings": 16,
    "llama_4_scaling_beta": 0.3}

# name: (architecture, stored dtype, prompt tokens, keys of the configuration)
FIXTURES = {
    "gemma": ("GemmaForCausalLM", "bfloat16", 28, shape(2, 24, 4, 1, 10, 40)),
    "seed-oss": ("SeedOssForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 8, 36, attention_bias=True, attention_out_bias=True,
        tie_word_embeddings=False)),
    "ministral": ("MinistralForCausalLM", "bfloat16", 30, shape(
        3, 24, 4, 2, 8, 36, sliding_window=9, tie_word_embeddings=True,
        layer_types=["full_attention", "sliding_attention", "sliding_attention"])),
    "ministral3": ("Ministral3ForCausalLM", "bfloat16", 40, shape(
        2, 24, 4, 2, 10, 36, tie_word_embeddings=False, rope_parameters=MINISTRAL3_ROPE)),
    "mistral3-multimodal": ("Mistral3ForConditionalGeneration", "bfloat16", 24, {
        "text_config": {"model_type": "ministral3", **shape(
            2, 24, 2, 1, 12, 36, tie_word_embeddings=False, rope_parameters=MINISTRAL3_ROPE)},
        "vision_config": {"model_type": "pixtral", "hidden_size": 8, "intermediate_size": 8,
                          "num_hidden_layers": 1, "num_attention_heads": 1, "head_dim": 8,
                          "image_size": 8, "patch_size": 4},
        "image_token_index": 65, "tie_word_embeddings": False}),
    "arcee": ("ArceeForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 8, 60, mlp_bias=True, tie_word_embeddings=True)),
    "glm": ("GlmForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 12, 36, rope_parameters=partial(0.5, 2000.0))),
    "glm4": ("Glm4ForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 1, 8, 36, attention_bias=True, rope_parameters=partial(0.75))),
    "olmo3": ("Olmo3ForCausalLM", "bfloat16", 36, shape(
        4, 24, 4, 2, 6, 32, sliding_window=7, rope_parameters={
            "full_attention": {"rope_type": "yarn", "rope_theta": 5000.0, "factor": 4.0,
                               "original_max_position_embeddings": 24},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1000.0}})),
    "exaone4": ("Exaone4ForCausalLM", "bfloat16", 36, shape(
        4, 24, 4, 2, 8, 32, sliding_window=10, sliding_window_pattern=2)),
    "hunyuan-dense": ("HunYuanDenseV1ForCausalLM", "bfloat16", 30, shape(
        2, 24, 4, 2, 8, 36, tie_word_embeddings=True, rope_parameters={
            "rope_type": "dynamic", "rope_theta": 100.0, "alpha": 50.0, "factor": 1.0})),
    "ernie4.5": ("Ernie4_5ForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 10, 36, use_bias=True)),
    "mimo": ("MiMoForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 36, tie_word_embeddings=False)),
    "starcoder2": ("Starcoder2ForCausalLM", "bfloat16", 32, shape(
        2, 24, 4, 2, 6, 48, sliding_window=12, norm_epsilon=1e-4)),
    "cohere": ("CohereForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 8, 36, use_qk_norm=True, logit_scale=0.3)),
    "cohere2": ("Cohere2ForCausalLM", "bfloat16", 36, shape(
        4, 24, 4, 2, 6, 32, sliding_window=8, logit_scale=0.25, tie_word_embeddings=False,
        layer_types=["sliding_attention", "full_attention", "full_attention",
                     "sliding_attention"])),
    "nemotron": ("NemotronForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 8, 60, norm_eps=1e-4, rope_parameters=partial(0.5))),
    "apertus": ("ApertusForCausalLM", "float32", 28, shape(
        2, 24, 4, 2, 8, 40, tie_word_embeddings=True, attention_bias=True)),
    "gpt-neox": ("GPTNeoXForCausalLM", "bfloat16", 28, shape(
        2, 24, 3, 3, 8, 48, hidden_act="gelu", rope_parameters=partial(0.25, 300.0))),
    "phi": ("PhiForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 48, qk_layernorm=True, rope_parameters=partial(0.7))),
    "stablelm-parallel": ("StableLmForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 36, use_qkv_bias=True, use_parallel_residual=True,
        rope_parameters=partial(0.7))),
    "olmo": ("OlmoForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 36, clip_qkv=0.8)),
    "helium": ("HeliumForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 36, attention_bias=True)),
    "jais2": ("Jais2ForCausalLM", "bfloat16", 28, shape(
        2, 24, 4, 2, 6, 48, layer_norm_eps=1e-4)),
}

# Keys beside a class's defaults, whose parameters are counted too.
COUNTED = [
    ("CohereForCausalLM", {"use_qk_norm": True}),
    ("PhiForCausalLM", {"qk_layernorm": True}),
    ("StableLmForCausalLM", {"use_parallel_residual": True, "use_qkv_bias": True}),
    ("SeedOssForCausalLM", {"attention_out_bias": True, "mlp_bias": True}),
    ("NemotronForCausalLM", {"attention_bias": True, "mlp_bias": True}),
    ("Ernie4_5ForCausalLM", {"use_bias": True}),
    ("GPTNeoXForCausalLM", {"attention_bias": False}),
    ("Cohere2ForCausalLM", {"attention_bias": True, "num_key_value_heads": 8}),
]
# Types whose class's own defaults make no model.
NEEDED = {"MinistralForCausalLM": {"head_dim": 128}, "HunYuanDenseV1ForCausalLM": {"head_dim": 128},
          "NemotronForCausalLM": {"num_key_value_heads": 8}}

ARCHITECTURES = list(dict.fromkeys(
    fixture[0] for fixture in FIXTURES.values() if "text_config" not in fixture[3]))

# These have heads of hidden_size / num_attention_heads elements.
FIXED_HEADS = {"HeliumForCausalLM", "Olmo3ForCausalLM", "MiMoForCausalLM", "Starcoder2ForCausalLM", "Cohere2ForCausalLM",
               "GPTNeoXForCausalLM", "PhiForCausalLM", "StableLmForCausalLM", "OlmoForCausalLM"}
PARTIAL = {"GlmForCausalLM", "Glm4ForCausalLM", "NemotronForCausalLM", "GPTNeoXForCausalLM",
           "PhiForCausalLM", "StableLmForCausalLM"}
EPS_KEYS = {"Starcoder2ForCausalLM": "norm_epsilon", "NemotronForCausalLM": "norm_eps",
            **dict.fromkeys(("CohereForCausalLM", "Cohere2ForCausalLM", "GPTNeoXForCausalLM",
                             "Jais2ForCausalLM", "PhiForCausalLM", "StableLmForCausalLM"),
                            "layer_norm_eps")}
# Switches of a family; each is drawn.
SWITCHES = {
    "SeedOssForCausalLM": ["attention_bias", "attention_out_bias", "mlp_bias"],
    "ArceeForCausalLM": ["attention_bias", "mlp_bias"],
    "GlmForCausalLM": ["attention_bias"],
    "Glm4ForCausalLM": ["attention_bias"],
    "HeliumForCausalLM": ["attention_bias", "mlp_bias"],
    "Jais2ForCausalLM": ["attention_bias", "mlp_bias"],
    "Olmo3ForCausalLM": ["attention_bias"],
    "HunYuanDenseV1ForCausalLM": ["attention_bias"],
    "Ernie4_5ForCausalLM": ["use_bias"],
    "Starcoder2ForCausalLM": ["use_bias"],
    "CohereForCausalLM": ["attention_bias", "use_qk_norm"],
    "Cohere2ForCausalLM": ["attention_bias"],
    "NemotronForCausalLM": ["attention_bias", "mlp_bias"],
    "ApertusForCausalLM": ["attention_bias"],
    "GPTNeoXForCausalLM": ["attention_bias", "use_parallel_residual"],
    "PhiForCausalLM": ["qk_layernorm"],
    "StableLmForCausalLM": ["use_qkv_bias", "use_parallel_residual"],
    "OlmoForCausalLM": ["attention_bias"],
}
ACTIVATIONS = ["silu", "gelu", "gelu_pytorch_tanh"]
# Beside a gate, squares would amplify roundings beyond the tolerance.
UNGATED = {"ArceeForCausalLM", "NemotronForCausalLM", "Jais2ForCausalLM", "GPTNeoXForCausalLM",
           "PhiForCausalLM", "Starcoder2ForCausalLM"}


def rename(folder, architecture):
    """Makes the stand-in's configuration one of the family."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config.update(architectures=[architecture], model_type=STAND_INS[architecture][1])
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def counts(torch, transformers):
    """Lines of JSON: configurations, and the parameters that the class has with them."""
    wrapped = "Mistral3ForConditionalGeneration"
    for architecture, more in [*((name, {}) for name in [*ARCHITECTURES, wrapped]), *COUNTED]:
        if architecture in STAND_INS:
            continue
        model_class = getattr(transformers, architecture)
        config = model_class.config_class(**NEEDED.get(architecture, {}), **more)
        config.architectures = [architecture]
        with torch.device("meta"):
            model = model_class(config)
        # A vision tower is not counted.
        params = sum(weight.numel() for name, weight in model.named_parameters()
                     if "vision_tower" not in name and "multi_modal_projector" not in name)
        yield json.dumps({"params": params, "config": json.loads(config.to_json_string())},
                         sort_keys=True)


def rotated_share(numbers, head_dim):
    """A share of a head that is an even number of elements."""
    rotated = 2 * numbers.randint(1, head_dim // 2)
    return (rotated + 0.5) / head_dim if rotated < head_dim else 1.0


def add_windows(numbers, architecture, keys):
    window = numbers.randint(1, 60)
    layers = keys["num_hidden_layers"]
    if architecture in ("MinistralForCausalLM", "Olmo3ForCausalLM", "Cohere2ForCausalLM",
                        "Exaone4ForCausalLM"):
        keys.update(sliding_window=window,
                    layer_types=[numbers.choice(KINDS) for _ in range(layers)])
    if architecture in ("Starcoder2ForCausalLM", "Ministral3ForCausalLM"):
        keys.update(sliding_window=numbers.choice([None, window]))
    if architecture == "MiMoForCausalLM" and numbers.random() < 0.5:
        keys.update(use_sliding_window=True, sliding_window=window,
                    layer_types=[numbers.choice(KINDS) for _ in range(layers)])


def add_rope(numbers, architecture, keys, rope, theta):
    keys["rope_parameters"] = rope
    if architecture in PARTIAL:
        keys["rope_parameters"] = {**rope, "partial_rotary_factor": rotated_share(
            numbers, keys["head_dim"])}
    elif architecture == "Olmo3ForCausalLM":
        keys["rope_parameters"] = {
            "full_attention": rope,
            "sliding_attention": {"rope_type": "default", "rope_theta": theta}}
    elif architecture == "Ministral3ForCausalLM":
        keys["rope_parameters"] = {
            **rope, "llama_4_scaling_beta": numbers.uniform(0.05, 0.2),
            "original_max_position_embeddings": rope.get("original_max_position_embeddings",
                                                         numbers.randint(10, 100))}
    elif architecture == "HunYuanDenseV1ForCausalLM" and numbers.random() < 0.5:
        keys["rope_parameters"] = {"rope_type": "dynamic", "rope_theta": theta, "factor": 1.0,
                                   "alpha": numbers.uniform(1.5, 1000)}


def add_keys(numbers, architecture, keys, rope, theta):
    """The keys that only some of the families have; keys["head_dim"] is already as it may be."""
    if architecture == "GPTNeoXForCausalLM":
        keys["num_key_value_heads"] = keys["num_attention_heads"]
        keys["head_dim"] = keys["hidden_size"] // keys["num_attention_heads"]
    eps = keys.pop("rms_norm_eps")
    keys[EPS_KEYS.get(architecture, "rms_norm_eps")] = eps
    add_rope(numbers, architecture, keys, rope, theta)
    add_windows(numbers, architecture, keys)
    for switch in SWITCHES.get(architecture, []):
        keys[switch] = numbers.random() < 0.5
    if architecture not in ("GemmaForCausalLM", "ApertusForCausalLM"):
        squares = ["relu2"] if architecture in UNGATED else []
        keys["hidden_act"] = numbers.choice(ACTIVATIONS + squares)
    if architecture in ("CohereForCausalLM", "Cohere2ForCausalLM"):
        keys["logit_scale"] = numbers.uniform(0.05, 2)
    if architecture == "OlmoForCausalLM":
        keys["clip_qkv"] = numbers.choice([None, numbers.uniform(0.3, 3)])
