// SPDX-License-Identifier: Apache-2.0
// config.json of mixtures of experts and of latent attention: families of expert_families.h.
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "core/model/model_family.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

using testing::error_of;

ModelConfig parse(const std::string& architecture, const std::string& keys) {
  return parse_hugging_face_config("{\"architectures\": [\"" + architecture + "\"], " + keys + "}",
                                   "config.json", "parsed");
}

struct Counted {
  const char* architecture;
  const char* keys;
  std::int64_t num_params;  // of transformers 5.24's class, with the biases of routers' choices
};

// The rest is what the classes supply; those of dots.llm1 and of Hunyuan-A13B need more.
const Counted kCounted[] = {
    {"Qwen2MoeForCausalLM",
     R"("hidden_size": 2048, "num_hidden_layers": 24, "intermediate_size": 5632)", 14'315'784'192},
    {"OlmoeForCausalLM",
     R"("hidden_size": 2048, "num_hidden_layers": 16, "intermediate_size": 2048)", 13'361'612'800},
    {"Glm4MoeForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 46, "intermediate_size": 10944, "head_dim": 128,
        "attention_bias": true, "use_qk_norm": true)",
     106'852'257'280 + 5'760},
    {"Dots1ForCausalLM",
     R"("hidden_size": 4608, "num_hidden_layers": 62, "intermediate_size": 10944,
        "n_routed_experts": 128, "n_shared_experts": 2, "first_k_dense_replace": 1)",
     161'206'276'032 + 7'808},
    {"GraniteMoeForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048)",
     37'039'116'288},
    {"GraniteMoeSharedForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008,
        "num_attention_heads": 32, "vocab_size": 32000, "max_position_embeddings": 2048,
        "shared_intermediate_size": 1024)",
     37'441'769'472},
    {"PhimoeForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 6400,
        "attention_bias": true, "lm_head_bias": true)",
     41'873'153'344},
    {"Ernie4_5_MoeForCausalLM",
     R"("hidden_size": 2560, "num_hidden_layers": 28, "intermediate_size": 12288)", 21'825'437'888},
    {"HunYuanMoEV1ForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008, "head_dim": 128,
        "num_experts": 64, "moe_topk": [8, 8])",
     285'893'464'064},
    {"SolarOpenForCausalLM", R"("hidden_size": 4096, "num_hidden_layers": 48)",
     102'651'793'408 + 6'144},
    {"MiniMaxM2ForCausalLM",
     R"("hidden_size": 3072, "num_hidden_layers": 62, "intermediate_size": 1536)",
     228'689'748'992 + 15'872},
    {"GptOssForCausalLM",
     R"("hidden_size": 2880, "num_hidden_layers": 36, "intermediate_size": 2880,
        "num_local_experts": 128)",
     116'829'156'672},
    {"DeepseekV2ForCausalLM",
     R"("hidden_size": 4096, "num_hidden_layers": 32, "intermediate_size": 11008)", 38'612'307'968},
    {"DeepseekV3ForCausalLM",
     R"("hidden_size": 7168, "num_hidden_layers": 61, "intermediate_size": 18432)",
     671'026'404'352 + 14'848},
    {"Glm4MoeLiteForCausalLM",
     R"("hidden_size": 2048, "num_hidden_layers": 47, "intermediate_size": 10240,
        "kv_lora_rank": 512, "q_lora_rank": 768, "qk_nope_head_dim": 192, "qk_rope_head_dim": 64,
        "v_head_dim": 256)",
     29'943'390'976 + 2'944},
};

TEST_CASE("mixtures have the parameters of transformers' classes", "[core][model][experts]") {
  for (const Counted& counted : kCounted) {
    INFO(counted.architecture);
    const ModelConfig model = parse(counted.architecture, counted.keys);
    CHECK(model.unsupported.empty());
    CHECK(model.approximation.empty());
    std::int64_t num_elements = 0;
    for_each_weight(model, [&](const WeightSpec& spec) { num_elements += spec.rows * spec.cols; });
    CHECK(num_elements == counted.num_params);
    CHECK(model.n_params() == counted.num_params);
  }
}

constexpr const char* kSmall =
    R"("hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96,
       "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 100,
       "max_position_embeddings": 512, )";

TEST_CASE("parts of mixtures that a file says", "[core][model][experts]") {
  const auto small = [](const char* architecture, const std::string& keys) {
    return parse(architecture, kSmall + keys);
  };
  const ModelConfig ernie =
      small("Ernie4_5_MoeForCausalLM",
            R"("moe_layer_start_index": 1, "moe_layer_end_index": -1, "moe_layer_interval": 2)");
  CHECK(ernie.dense_layers == std::vector<std::int64_t>{0, 2});
  CHECK(ernie.shared_expert_ffn_dim == 2 * 1536);
  CHECK(ernie.has_interleaved_rope);

  const std::string latents = R"("num_key_value_heads": 4, "kv_lora_rank": 16, "q_lora_rank": null,
      "qk_nope_head_dim": 8, "qk_rope_head_dim": 4, "v_head_dim": 8)";
  const std::string shape = R"("hidden_size": 64, "num_hidden_layers": 4, "intermediate_size": 96,
      "num_attention_heads": 4, "vocab_size": 100, "max_position_embeddings": 512, )";
  const ModelConfig lite =
      parse("Glm4MoeLiteForCausalLM",
            shape + latents + R"(, "mlp_layer_types": ["dense", "sparse", "dense", "sparse"])");
  CHECK(lite.dense_layers == std::vector<std::int64_t>{0, 2});
  CHECK(parse("Glm4MoeLiteForCausalLM", shape + latents + R"(, "rope_interleave": false)")
            .has_interleaved_rope == false);
  const auto of_v2 = [&](const std::string& keys) {
    return parse("DeepseekV2ForCausalLM", shape + latents + keys);
  };
  CHECK(of_v2(R"(, "n_group": 8, "topk_group": 3)").n_expert_groups == 1);
  const ModelConfig grouped =
      of_v2(R"(, "n_group": 8, "topk_group": 3, "topk_method": "group_limited_greedy")");
  CHECK(grouped.n_expert_groups == 8);
  CHECK(grouped.n_groups_per_token == 3);
  CHECK_FALSE(grouped.has_normalised_expert_weights);

  const ModelConfig glm = small("Glm4MoeForCausalLM", R"("attention_bias": false)");
  CHECK_FALSE(glm.has_qkv_biases);
  CHECK_FALSE(glm.has_qk_norm);
  CHECK(glm.rotary_dim == 8);
  CHECK_FALSE(small("Glm4MoeForCausalLM", R"("attention_bias": true)").has_attention_output_bias);
  CHECK(small("MiniMaxM2ForCausalLM", R"("head_dim": 24, "rotary_dim": 6)").rotary_dim == 6);
  CHECK(small("SolarOpenForCausalLM", R"("moe_intermediate_size": 40)").ffn_dim == 40);
  CHECK(small("HunYuanMoEV1ForCausalLM", R"("num_experts": 4, "moe_topk": [2, 2, 2, 2])")
            .n_experts_per_token == 2);
  CHECK(small("PhimoeForCausalLM", R"("lm_head_bias": true)").has_head_bias);
  CHECK_FALSE(small("Qwen2MoeForCausalLM", R"("qkv_bias": false)").has_qkv_biases);
  const ModelConfig dots = small("Dots1ForCausalLM", R"("sliding_window": 16, "layer_types":
      ["full_attention", "sliding_attention", "full_attention", "sliding_attention"])");
  CHECK(dots.n_window_layers() == 2);
  CHECK(small("Dots1ForCausalLM", R"("sliding_window": 16)").n_window_layers() == 0);
}

TEST_CASE("what mixtures do not compute", "[core][model][experts]") {
  const auto refusal = [](const char* architecture, const std::string& keys) {
    return parse(architecture, kSmall + keys).unsupported;
  };
  CHECK(refusal("OlmoeForCausalLM", R"("clip_qkv": 8.0)") ==
        "clip_qkv: is only simulated; allowed: null");
  CHECK(refusal("GptOssForCausalLM", R"("swiglu_limit": 6.0)") ==
        "swiglu_limit: is 6.0, which is only simulated; allowed: 7.0");
  CHECK(refusal("PhimoeForCausalLM", R"("num_experts_per_tok": 3)") ==
        "num_experts_per_tok: is 3, but SparseMixer chooses two; allowed: 2");
  CHECK(refusal("Ernie4_5_MoeForCausalLM", R"("use_bias": true)") ==
        "use_bias: true is only simulated; allowed: false");
  CHECK(refusal("Dots1ForCausalLM", R"("n_group": 3, "n_routed_experts": 8)") ==
        "n_group: 3 groups of 8 experts are only simulated; allowed: groups of equally many "
        "experts, at least two");
  CHECK(refusal("Dots1ForCausalLM", R"("n_group": 4, "topk_group": 1, "n_routed_experts": 8)") ==
        "topk_group: have fewer experts than compute a token; allowed: enough for 6 experts");
  CHECK(error_of([] {
          parse("HunYuanMoEV1ForCausalLM",
                std::string(kSmall) + R"("num_experts": 4, "moe_topk": [2, 1])");
        }) ==
        "config.json: moe_topk: is [2,1]; allowed: a number, or a list that has the same "
        "for every layer");
}

}  // namespace
}  // namespace metronome::TEST_FILE
