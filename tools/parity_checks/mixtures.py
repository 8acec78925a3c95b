# SPDX-License-Identifier: Apache-2.0
"""Configurations of mixtures of experts and of latent attention, for hf_parity."""

import json
import struct

# A class of transformers, and the name that published files have for it.
PUBLISHED = {"Kimi_K25ForConditionalGeneration": "KimiK25ForConditionalGeneration"}


def shape(layers, hidden, heads, kv_heads, ffn, vocab, **more):
    """Without a head_dim, which is hidden / heads."""
    return {"num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": ffn, "vocab_size": vocab,
            "max_position_embeddings": 1024, "bos_token_id": 0, "eos_token_id": 1,
            "pad_token_id": None, "tie_word_embeddings": False, **more}


def routed(experts, per_token, width, shared, groups=1, of_groups=1, scale=1.0, **more):
    return {"n_routed_experts": experts, "num_experts_per_tok": per_token,
            "moe_intermediate_size": width, "n_shared_experts": shared, "n_group": groups,
            "topk_group": of_groups, "routed_scaling_factor": scale, **more}


def latent(kv_rank, q_rank, nope, rope, value):
    return {"kv_lora_rank": kv_rank, "q_lora_rank": q_rank, "qk_nope_head_dim": nope,
            "qk_rope_head_dim": rope, "v_head_dim": value}


def plain_rope(theta, **more):
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


def yarn(theta, factor, positions, **more):
    return {"rope_parameters": {
        "rope_type": "yarn", "rope_theta": theta, "factor": factor,
        "original_max_position_embeddings": positions, **more}}


# name: (architecture, stored dtype, prompt tokens, keys of the configuration)
FIXTURES = {
    "qwen2-moe-windows": ("Qwen2MoeForCausalLM", "bfloat16", 50, shape(
        3, 32, 4, 2, 40, 120, num_experts=5, num_experts_per_tok=2, moe_intermediate_size=16,
        shared_expert_intermediate_size=24, mlp_only_layers=[1], use_sliding_window=True,
        sliding_window=16, **plain_rope(10000.0))),
    "olmoe": ("OlmoeForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 24, 120, num_experts=5, num_experts_per_tok=3, **plain_rope(10000.0))),
    "glm4-moe-groups": ("Glm4MoeForCausalLM", "bfloat16", 50, shape(
        3, 32, 4, 2, 40, 120, head_dim=12, attention_bias=True, use_qk_norm=True,
        first_k_dense_replace=1, **routed(8, 3, 16, 1, 4, 2, 1.7),
        **plain_rope(5000.0, partial_rotary_factor=0.5))),
    "glm4-moe-plain": ("Glm4MoeForCausalLM", "float32", 40, shape(
        2, 24, 3, 1, 40, 110, head_dim=8, first_k_dense_replace=0,
        **routed(4, 2, 12, 2, norm_topk_prob=False), **plain_rope(1000.0))),
    "dots1": ("Dots1ForCausalLM", "bfloat16", 50, shape(
        3, 32, 4, 4, 40, 120, head_dim=10, first_k_dense_replace=1, sliding_window=16,
        max_window_layers=2, **routed(6, 2, 16, 2, scale=2.5), norm_topk_prob=True,
        **plain_rope(10000.0))),
    "granite-moe": ("GraniteMoeForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 20, 120, num_local_experts=5, num_experts_per_tok=2, attention_bias=True,
        embedding_multiplier=3.0, residual_multiplier=0.4, attention_multiplier=0.3,
        logits_scaling=0.5, **plain_rope(10000.0))),
    "granite-moe-shared": ("GraniteMoeSharedForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 20, 120, num_local_experts=4, num_experts_per_tok=2,
        shared_intermediate_size=28, attention_multiplier=0.4, embedding_multiplier=2.0,
        **plain_rope(10000.0))),
    "phimoe": ("PhimoeForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 20, 120, num_local_experts=6, num_experts_per_tok=2, attention_bias=True,
        lm_head_bias=True, sliding_window=24, **plain_rope(10000.0))),
    "ernie4.5-moe": ("Ernie4_5_MoeForCausalLM", "bfloat16", 50, shape(
        4, 32, 4, 2, 40, 120, moe_num_experts=6, moe_k=3, moe_intermediate_size=16,
        moe_num_shared_experts=2, moe_layer_start_index=1, moe_layer_end_index=2,
        **plain_rope(2000.0)) | {"tie_word_embeddings": True}),
    "hunyuan-moe": ("HunYuanMoEV1ForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 20, 120, head_dim=12, num_experts=4, moe_topk=2, **plain_rope(10000.0))),
    "solar-open": ("SolarOpenForCausalLM", "bfloat16", 50, {
        key: value for key, value in shape(
            2, 32, 4, 2, 0, 120, head_dim=12, attention_bias=True,
            **routed(6, 2, 16, 1, 3, 2, 1.3), **yarn(1000.0, 4.0, 40)).items()
        if key != "intermediate_size"}),
    "minimax-m2": ("MiniMaxM2ForCausalLM", "bfloat16", 50, shape(
        2, 32, 4, 2, 20, 120, head_dim=12, rotary_dim=6, num_local_experts=5,
        num_experts_per_tok=2, rope_theta=3000.0)),
    "gpt-oss": ("GptOssForCausalLM", "bfloat16", 60, shape(
        3, 32, 4, 2, 20, 120, head_dim=10, sliding_window=16, num_local_experts=5,
        num_experts_per_tok=2, **yarn(2000.0, 4.0, 32, truncate=False))),
    "deepseek-v2-greedy": ("DeepseekV2ForCausalLM", "bfloat16", 50, shape(
        3, 32, 4, 4, 40, 120, first_k_dense_replace=1, topk_method="greedy",
        **routed(6, 2, 16, 2, scale=1.5), **latent(16, None, 12, 8, 10),
        **yarn(1000.0, 4.0, 40, mscale=0.707, mscale_all_dim=0.707))),
    "deepseek-v2-groups": ("DeepseekV2ForCausalLM", "bfloat16", 40, shape(
        2, 32, 2, 2, 40, 120, topk_method="group_limited_greedy",
        **routed(8, 3, 12, 1, 4, 2, 3.0), **latent(12, 20, 8, 6, 14), **plain_rope(10000.0))),
    "deepseek-v3": ("DeepseekV3ForCausalLM", "bfloat16", 60, shape(
        3, 40, 4, 4, 48, 120, first_k_dense_replace=1, **routed(8, 3, 16, 1, 4, 2, 2.5),
        **latent(24, 20, 10, 12, 8),
        **yarn(1000.0, 8.0, 32, mscale=1.0, mscale_all_dim=1.0))),
    "deepseek-v3-dense-tied": ("DeepseekV3ForCausalLM", "bfloat16", 40, shape(
        2, 32, 4, 4, 40, 110, first_k_dense_replace=2, rope_interleave=False,
        **routed(8, 3, 16, 1), **latent(80, None, 6, 4, 70), **plain_rope(5000.0)) | {
            "tie_word_embeddings": True}),
    "glm4-moe-lite": ("Glm4MoeLiteForCausalLM", "bfloat16", 50, shape(
        3, 32, 4, 4, 40, 120, mlp_layer_types=["dense", "sparse", "sparse"],
        rms_norm_eps=1e-3, **routed(6, 2, 16, 1, scale=1.8), **latent(16, 24, 12, 8, 20),
        **plain_rope(20000.0))),
    # The language model of a multimodal file.
    "kimi-k2.5-multimodal": ("Kimi_K25ForConditionalGeneration", "bfloat16", 40, {
        "text_config": {"model_type": "deepseek_v3", **shape(
            2, 32, 4, 4, 40, 120, first_k_dense_replace=1, **routed(4, 2, 12, 1),
            **latent(16, 12, 8, 6, 10), **plain_rope(10000.0))},
        "vision_config": {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 1,
                          "num_attention_heads": 2, "patch_size": 4, "pos_emb_height": 4,
                          "pos_emb_width": 4, "pos_emb_time": 1},
        "projection_hidden_size": 16, "image_token_id": 123, "video_token_id": 122,
        "vision_start_token_id": 121, "vision_end_token_id": 120, "tie_word_embeddings": False}),
    "flex-olmo": ("FlexOlmoForCausalLM", "bfloat16", 40, shape(
        2, 32, 4, 2, 24, 110, num_experts=4, num_experts_per_tok=2, **plain_rope(10000.0))),
    "youtu": ("YoutuForCausalLM", "bfloat16", 40, shape(
        2, 32, 4, 4, 40, 110, **latent(16, 12, 8, 6, 10), **plain_rope(10000.0))),
}



def name_as_published(folder, architecture):
    """Names a stored model and its layers as published files do: transformers 5.24 writes the layers
    of Kimi's language model as blocks."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    config["architectures"] = [PUBLISHED[architecture]]
    path.write_text(json.dumps(config, indent=2) + "\n")
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = content[8:8 + size].replace(b"language_model.model.blocks.",
                                         b"language_model.model.layers.")
    path.write_bytes(content[:8] + header + content[8 + size:])


WITH_LOCAL_EXPERTS = ["GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM", "PhimoeForCausalLM",
                      "MiniMaxM2ForCausalLM", "GptOssForCausalLM"]
WITH_ROUTED_EXPERTS = ["Glm4MoeForCausalLM", "Dots1ForCausalLM", "SolarOpenForCausalLM",
                       "DeepseekV2ForCausalLM", "DeepseekV3ForCausalLM", "Glm4MoeLiteForCausalLM"]
WITH_LATENTS = WITH_ROUTED_EXPERTS[3:]
ARCHITECTURES = ["Qwen2MoeForCausalLM", "OlmoeForCausalLM", "FlexOlmoForCausalLM",
                 "YoutuForCausalLM", "Ernie4_5_MoeForCausalLM", "HunYuanMoEV1ForCausalLM",
                 *WITH_LOCAL_EXPERTS, *WITH_ROUTED_EXPERTS]
# Families whose heads are as wide as hidden_size says.
WITHOUT_HEAD_DIM = ["Qwen2MoeForCausalLM", "OlmoeForCausalLM", "FlexOlmoForCausalLM",
                    "Ernie4_5_MoeForCausalLM", "GraniteMoeForCausalLM",
                    "GraniteMoeSharedForCausalLM", "PhimoeForCausalLM"]


def random_routing(numbers):
    """Groups of at least two experts, of which enough are chosen."""
    groups = numbers.choice([1, 1, 2, 3, 4])
    size = numbers.randint(2, 4)
    of_groups = numbers.randint(1, groups)
    return routed(groups * size, numbers.randint(1, min(4, of_groups * size)),
                  numbers.randint(8, 40), numbers.randint(1, 2), groups, of_groups,
                  numbers.uniform(0.5, 3), norm_topk_prob=numbers.random() < 0.5)


def add_latent_keys(numbers, keys, rope):
    del keys["head_dim"]
    keys["num_key_value_heads"] = keys["num_attention_heads"]
    # transformers' DeepSeek-V2 needs even sizes.
    keys.update(latent(2 * numbers.randint(2, 45), numbers.choice([None, numbers.randint(4, 60)]),
                       2 * numbers.randint(1, 20), 2 * numbers.randint(1, 20),
                       numbers.randint(2, 90)))
    if rope["rope_type"] == "yarn" and numbers.random() < 0.5:
        rope["mscale"] = rope["mscale_all_dim"] = numbers.uniform(0.3, 1.2)


def add_routed_keys(numbers, architecture, keys, rope):
    keys.update(random_routing(numbers))
    layers = keys["num_hidden_layers"]
    if architecture == "Glm4MoeLiteForCausalLM":
        keys["mlp_layer_types"] = [numbers.choice(["dense", "sparse"]) for _ in range(layers)]
    elif architecture != "SolarOpenForCausalLM":
        keys["first_k_dense_replace"] = numbers.randint(0, max(1, layers - 1))
    if architecture in WITH_LATENTS:
        add_latent_keys(numbers, keys, rope)
        if architecture != "DeepseekV2ForCausalLM":
            keys["rope_interleave"] = numbers.random() < 0.7
    if architecture == "DeepseekV2ForCausalLM":
        keys.update(topk_method=numbers.choice(["greedy", "group_limited_greedy"]),
                    norm_topk_prob=False)
    elif architecture == "Dots1ForCausalLM":
        keys.update(attention_bias=numbers.random() < 0.3, sliding_window=numbers.randint(1, 60),
                    max_window_layers=numbers.randint(0, layers))
    elif architecture == "Glm4MoeForCausalLM":
        keys.update(attention_bias=numbers.random() < 0.5, use_qk_norm=numbers.random() < 0.5)
        rope["partial_rotary_factor"] = random_share(numbers, keys)
    elif architecture == "SolarOpenForCausalLM":
        del keys["intermediate_size"]
        keys.update(attention_bias=numbers.random() < 0.5)


def random_share(numbers, keys):
    rotated = 2 * numbers.randint(1, keys["head_dim"] // 2)
    return (rotated + 0.5) / keys["head_dim"] if rotated < keys["head_dim"] else 1.0


def add_local_keys(numbers, architecture, keys, rope):
    experts = numbers.randint(2, 8)
    keys.update(num_local_experts=experts, num_experts_per_tok=numbers.randint(1, experts))
    if architecture == "PhimoeForCausalLM":
        theta = rope["rope_theta"]
        rope.clear()
        rope.update(rope_type="default", rope_theta=theta)
        keys.update(num_experts_per_tok=2, attention_bias=numbers.random() < 0.5,
                    lm_head_bias=numbers.random() < 0.5,
                    sliding_window=numbers.choice([None, numbers.randint(1, 60)]))
    elif architecture == "MiniMaxM2ForCausalLM":
        keys["rotary_dim"] = 2 * numbers.randint(1, keys["head_dim"] // 2)
    elif architecture == "GptOssForCausalLM":
        keys.update(sliding_window=numbers.randint(1, 60), layer_types=[
            numbers.choice(["sliding_attention", "full_attention"])
            for _ in range(keys["num_hidden_layers"])])
    else:
        keys.update(attention_bias=numbers.random() < 0.3,
                    embedding_multiplier=numbers.uniform(0.5, 12),
                    residual_multiplier=numbers.uniform(0.2, 1),
                    attention_multiplier=numbers.uniform(0.05, 0.5),
                    logits_scaling=numbers.uniform(0.5, 8))
    if architecture == "GraniteMoeSharedForCausalLM":
        keys["shared_intermediate_size"] = numbers.choice([0, numbers.randint(8, 60)])


def add_keys(numbers, architecture, keys, rope):
    """The keys that only these families have. `rope` is what rope_parameters will be."""
    layers = keys["num_hidden_layers"]
    if architecture in WITH_ROUTED_EXPERTS:
        return add_routed_keys(numbers, architecture, keys, rope)
    if architecture in WITH_LOCAL_EXPERTS:
        return add_local_keys(numbers, architecture, keys, rope)
    if architecture == "YoutuForCausalLM":
        keys["rope_interleave"] = numbers.random() < 0.7
        return add_latent_keys(numbers, keys, rope)
    experts = numbers.randint(2, 8)
    per_token = numbers.randint(1, experts)
    if architecture == "Ernie4_5_MoeForCausalLM":
        first = numbers.randint(0, layers - 1)
        keys.update(moe_num_experts=experts, moe_k=per_token,
                    moe_intermediate_size=numbers.randint(8, 60),
                    moe_num_shared_experts=numbers.randint(0, 2),
                    moe_layer_interval=numbers.randint(1, 2), moe_layer_start_index=first,
                    moe_layer_end_index=numbers.randint(first, layers - 1))
    elif architecture == "HunYuanMoEV1ForCausalLM":
        keys.update(num_experts=experts, moe_topk=per_token, attention_bias=numbers.random() < 0.3)
    else:
        keys.update(num_experts=experts, num_experts_per_tok=per_token,
                    norm_topk_prob=numbers.random() < 0.5)
    if architecture in ("OlmoeForCausalLM", "FlexOlmoForCausalLM"):
        keys["attention_bias"] = numbers.random() < 0.3
    elif architecture == "Qwen2MoeForCausalLM":
        keys.update(moe_intermediate_size=numbers.randint(8, 60),
                    shared_expert_intermediate_size=numbers.randint(8, 60),
                    decoder_sparse_step=numbers.randint(1, 2), qkv_bias=numbers.random() < 0.7)
        if numbers.random() < 0.5:
            keys.update(use_sliding_window=True, sliding_window=numbers.randint(1, 60),
                        layer_types=[numbers.choice(["sliding_attention", "full_attention"])
                                     for _ in range(layers)])
    return None
