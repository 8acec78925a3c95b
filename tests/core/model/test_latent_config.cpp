// SPDX-License-Identifier: Apache-2.0
// config.json of DeepSeek-V3 and gpt-oss.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/model/model_catalogue.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"

namespace metronome::TEST_FILE {
namespace {

using testing::change_text;
using testing::error_of;
using testing::replaced;

// As published, but for keys that say nothing here.
const char* const kDeepSeekJson = R"({
  "architectures": [
    "DeepseekV3ForCausalLM"
  ],
  "attention_bias": false,
  "eos_token_id": 1,
  "first_k_dense_replace": 3,
  "hidden_act": "silu",
  "hidden_size": 7168,
  "intermediate_size": 18432,
  "kv_lora_rank": 512,
  "max_position_embeddings": 163840,
  "model_type": "deepseek_v3",
  "moe_intermediate_size": 2048,
  "moe_layer_freq": 1,
  "n_group": 8,
  "n_routed_experts": 256,
  "n_shared_experts": 1,
  "norm_topk_prob": true,
  "num_attention_heads": 128,
  "num_experts_per_tok": 8,
  "num_hidden_layers": 61,
  "num_key_value_heads": 128,
  "num_nextn_predict_layers": 1,
  "q_lora_rank": 1536,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "quantization_config": {
    "activation_scheme": "dynamic",
    "fmt": "e4m3",
    "quant_method": "fp8",
    "weight_block_size": [
      128,
      128
    ]
  },
  "rms_norm_eps": 1e-06,
  "rope_scaling": {
    "beta_fast": 32,
    "beta_slow": 1,
    "factor": 40,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "original_max_position_embeddings": 4096,
    "type": "yarn"
  },
  "rope_theta": 10000,
  "routed_scaling_factor": 2.5,
  "scoring_func": "sigmoid",
  "tie_word_embeddings": false,
  "topk_group": 4,
  "topk_method": "noaux_tc",
  "torch_dtype": "bfloat16",
  "v_head_dim": 128,
  "vocab_size": 129280
})";

const char* const kGptOssJson = R"({
  "architectures": [
    "GptOssForCausalLM"
  ],
  "attention_bias": true,
  "eos_token_id": 200002,
  "experts_per_token": 4,
  "head_dim": 64,
  "hidden_act": "silu",
  "hidden_size": 2880,
  "initial_context_length": 4096,
  "intermediate_size": 2880,
  "max_position_embeddings": 131072,
  "model_type": "gpt_oss",
  "num_attention_heads": 64,
  "num_experts_per_tok": 4,
  "num_hidden_layers": 24,
  "num_key_value_heads": 8,
  "num_local_experts": 32,
  "quantization_config": {
    "modules_to_not_convert": [
      "model.layers.*.self_attn",
      "model.layers.*.mlp.router",
      "model.embed_tokens",
      "lm_head"
    ],
    "quant_method": "mxfp4"
  },
  "rms_norm_eps": 1e-05,
  "rope_scaling": {
    "beta_fast": 32.0,
    "beta_slow": 1.0,
    "factor": 32.0,
    "original_max_position_embeddings": 4096,
    "rope_type": "yarn",
    "truncate": false
  },
  "rope_theta": 150000,
  "sliding_window": 128,
  "swiglu_limit": 7.0,
  "tie_word_embeddings": false,
  "vocab_size": 201088
})";

ModelConfig parse_text(const std::string& json) {
  return parse_hugging_face_config(json, "config.json", "parsed");
}

// The keys that count, of MiniMaxAI/MiniMax-M2.5.
constexpr const char* kMiniMaxJson = R"({"architectures": ["MiniMaxM2ForCausalLM"],
  "model_type": "minimax_m2", "num_hidden_layers": 62, "hidden_size": 3072,
  "num_attention_heads": 48, "num_key_value_heads": 8, "head_dim": 128, "intermediate_size": 1536,
  "vocab_size": 200064, "num_experts_per_tok": 8, "num_local_experts": 256,
  "max_position_embeddings": 196608, "rope_theta": 5000000, "rotary_dim": 64, "hidden_act": "silu",
  "rms_norm_eps": 1e-06, "tie_word_embeddings": false, "eos_token_id": 200020,
  "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128],
    "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]}})";

// The config of moonshotai/Kimi-K2.5: a DeepSeek-V3 whose experts are stored in four bits.
constexpr const char* kKimiJson = R"({"architectures": ["KimiK25ForConditionalGeneration"],
  "model_type": "kimi_k25", "eos_token_id": 163585, "vision_config": {},
  "text_config": {"model_type": "kimi_k2", "hidden_size": 7168, "num_hidden_layers": 61,
    "intermediate_size": 18432, "moe_intermediate_size": 2048, "num_attention_heads": 64,
    "num_key_value_heads": 64, "vocab_size": 163840, "max_position_embeddings": 262144,
    "n_routed_experts": 384, "n_shared_experts": 1, "num_experts_per_tok": 8, "n_group": 1,
    "topk_group": 1, "first_k_dense_replace": 1, "moe_layer_freq": 1, "norm_topk_prob": true,
    "scoring_func": "sigmoid", "topk_method": "noaux_tc", "routed_scaling_factor": 2.827,
    "kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "v_head_dim": 128, "rms_norm_eps": 1e-05, "rope_theta": 50000.0, "hidden_act": "silu",
    "rope_scaling": {"type": "yarn", "factor": 64.0, "original_max_position_embeddings": 4096,
      "beta_fast": 32.0, "beta_slow": 1.0, "mscale": 1.0, "mscale_all_dim": 1.0},
    "tie_word_embeddings": false, "dtype": "bfloat16",
    "quantization_config": {"quant_method": "compressed-tensors", "format": "pack-quantized",
      "config_groups": {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 4,
        "type": "int", "group_size": 32, "strategy": "group", "symmetric": true}}},
      "ignore": ["lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                 "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"]}}})";

// The model, with the refusal of the catalogue's entry: both refuse formats, in their own words.
ModelConfig with_refusal(ModelConfig model, const char* name) {
  CHECK_FALSE(model.unsupported.empty());
  model.unsupported = find_model(name, {}).unsupported;
  return model;
}

TEST_CASE("config.json of MiniMax-M2.5 and Kimi-K2.5", "[sim][catalogue][latent]") {
  ModelConfig minimax = parse_text(kMiniMaxJson);
  minimax.name = "minimax-m2.5";
  CHECK(with_refusal(minimax, "minimax-m2.5") == find_model("minimax-m2.5", {}));
  const ModelConfig kimi = parse_text(kKimiJson);
  CHECK(kimi.linear_format == WeightFormat::Plain);
  CHECK(kimi.expert_format == WeightFormat::Int4);
  // 60 layers of 384 experts with three matrices of 7168 x 2048, in groups of 32.
  CHECK(kimi.n_moe_layers() == 60);
  CHECK(kimi.n_experts * kimi.n_expert_params() == 384LL * 3 * 7168 * 2048);
  CHECK(kimi.bytes_per_expert_weight() == 0.5 + 2.0 / 32);
  CHECK(kimi.n_params() == 1'026'408'232'448);  // as Kimi-K2's checkpoint, without the tower
  CHECK(kimi.kv_bytes_per_token() == 61 * (512 + 64) * 2);
  CHECK(kimi.max_position_embeddings == 262144);
}

TEST_CASE("config.json of DeepSeek-V3 and gpt-oss", "[sim][catalogue][latent]") {
  const std::pair<const char*, const char*> files[] = {{kDeepSeekJson, "deepseek-v3"},
                                                       {kGptOssJson, "gpt-oss-20b"}};
  for (const auto& [json, name] : files) {
    INFO(name);
    ModelConfig model = parse_text(json);
    model.name = name;
    CHECK(with_refusal(model, name) == find_model(name, {}));
  }
  const std::string plain = replaced(kDeepSeekJson, "quantization_config", "quantisation");
  CHECK(parse_text(plain).unsupported.empty());
}

TEST_CASE("defaults and parts of latent attention in config.json", "[sim][catalogue][latent]") {
  const auto changed = [](const char* before, const char* after) {
    return parse_text(replaced(kDeepSeekJson, before, after));
  };
  CHECK(changed(R"("q_lora_rank": 1536,)", "").latent_attention.q_rank == 1536);
  CHECK(changed(R"("q_lora_rank": 1536,)", R"("q_lora_rank": null,)").latent_attention.q_rank == 0);
  CHECK(changed(R"("n_shared_experts": 1,)", R"("n_shared_experts": 2,)").shared_expert_ffn_dim ==
        4096);
  CHECK(changed(R"("first_k_dense_replace": 3,)", R"("first_k_dense_replace": 99,)").n_experts ==
        0);
  CHECK(!changed(R"("norm_topk_prob": true,)", R"("norm_topk_prob": false,)")
             .has_normalised_expert_weights);
  CHECK(changed(R"("mscale_all_dim": 1.0,)", "").attention_multiplier == 0);
}

TEST_CASE("malformed config.json of DeepSeek-V3 and gpt-oss", "[sim][catalogue][latent]") {
  testing::Answers answers("catalogue/latent.txt");
  const std::vector<std::pair<std::string, std::string>> changes = {
      {R"("kv_lora_rank": 512)", R"("kv_lora_rank": 0)"},
      {R"("kv_lora_rank": 512)", R"("kv_lora_rank": 100000)"},
      {R"("v_head_dim": 128)", R"("v_head_dim": 0)"},
      {R"("num_key_value_heads": 128)", R"("num_key_value_heads": 64)"},
      {R"("attention_bias": false)", R"("attention_bias": true)"},
      {R"("moe_layer_freq": 1)", R"("moe_layer_freq": 2)"},
      {R"("n_shared_experts": 1)", R"("n_shared_experts": 5000)"},
      {R"("n_group": 8)", R"("n_group": 0)"},
      {R"("topk_group": 4)", R"("topk_group": 9)"},
      {R"("num_experts_per_tok": 8)", R"("num_experts_per_tok": 300)"}};
  for (const auto& change : changes) {
    answers.add(change_text(change.first, change.second), error_of([&] {
                  parse_text(replaced(kDeepSeekJson, change.first, change.second));
                }));
  }
  answers.add("gpt-oss without experts", error_of([&] {
                parse_text(replaced(kGptOssJson, R"("num_local_experts": 32)",
                                    R"("num_local_experts": 0)"));
              }));
}

}  // namespace
}  // namespace metronome::TEST_FILE
