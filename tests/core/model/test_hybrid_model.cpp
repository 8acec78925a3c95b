// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next and Qwen3.5: what their config.json says, by hand from transformers' configuration
// classes.
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

constexpr const char* kShape =
    R"("hidden_size": 24, "num_hidden_layers": 8, "num_attention_heads": 4,
       "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 50, "max_position_embeddings": 128)";

ModelConfig parsed(const std::string& architecture, const std::string& keys) {
  return parse_hugging_face_config(
      "{\"architectures\": [\"" + architecture + "\"], " + kShape + keys + "}", "config.json",
      "hybrid");
}

std::string error_of(const std::string& architecture, const std::string& keys) {
  return testing::error_of([&] { parsed(architecture, keys); });
}

}  // namespace

TEST_CASE("what config.json says of linear attention", "[core][model][states]") {
  const ModelConfig next = parsed("Qwen3NextForCausalLM", R"(, "intermediate_size": 7)");
  CHECK(next.linear_attention.layers == std::vector<std::int64_t>{0, 1, 2, 4, 5, 6});
  CHECK(next.linear_attention.n_key_heads == 16);
  CHECK(next.linear_attention.n_value_heads == 32);
  CHECK(next.linear_attention.key_head_dim == 128);
  CHECK(next.linear_attention.value_head_dim == 128);
  CHECK(next.linear_attention.conv_width == 4);
  CHECK(next.rotary_dim == 4);  // a quarter, where the file is silent
  CHECK(next.n_experts == 512);
  CHECK(next.n_experts_per_token == 10);
  CHECK(next.shared_expert_ffn_dim == 512);
  CHECK(next.has_normalised_expert_weights);
  CHECK(next.has_gated_attention);
  CHECK(next.has_shared_expert_gate);
  CHECK(next.unsupported.empty());

  const ModelConfig dense = parsed("Qwen3_5ForCausalLM",
                                   R"(, "intermediate_size": 7, "full_attention_interval": 2,
      "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.5,
                          "mrope_section": [2, 1, 1], "mrope_interleaved": true})");
  CHECK(dense.linear_attention.layers == std::vector<std::int64_t>{0, 2, 4, 6});
  CHECK(dense.rotary_dim == 8);
  CHECK(dense.rope_theta == 1e7);
  CHECK(dense.n_experts == 0);
  CHECK(dense.unsupported.empty());

  // Its mixtures have no MLPs without experts, and normalise whatever the file says.
  const ModelConfig mixture =
      parsed("Qwen3_5MoeForCausalLM", R"(, "norm_topk_prob": false, "num_experts": 4,
      "num_experts_per_tok": 2, "layer_types": ["full_attention", "linear_attention",
      "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
      "full_attention"])");
  CHECK(mixture.linear_attention.layers == std::vector<std::int64_t>{1});
  CHECK(mixture.n_moe_layers() == 8);
  CHECK(mixture.has_normalised_expert_weights);
  CHECK(mixture.expert_ffn_dim == 512);

  const ModelConfig mixed =
      parsed("Qwen3_5MoeForCausalLM", R"(, "num_experts": 4, "num_experts_per_tok": 2,
      "sliding_window": 100, "layer_types": ["linear_attention", "sliding_attention",
      "full_attention", "linear_attention", "sliding_attention", "full_attention",
      "linear_attention", "full_attention"])");
  CHECK(mixed.linear_attention.layers == std::vector<std::int64_t>{0, 3, 6});
  CHECK(mixed.window_layers == std::vector<std::int64_t>{1, 4});
  CHECK(mixed.n_window_layers() == 2);
  CHECK(mixed.n_global_layers() == 3);
  CHECK(mixed.unsupported ==
        "sliding_window: is only simulated beside linear attention; allowed: 0");

  const ModelConfig without =
      parsed("Qwen3NextForCausalLM", R"(, "intermediate_size": 7, "full_attention_interval": 1)");
  CHECK(without.linear_attention.is_empty());
}

TEST_CASE("mistakes in the keys of linear attention", "[core][model][states]") {
  const std::string ffn = R"(, "intermediate_size": 7)";
  const std::string windows = ffn + R"(, "layer_types": ["linear_attention", "sliding_attention",
      "full_attention", "full_attention", "full_attention", "full_attention", "full_attention",
      "full_attention"])";
  CHECK(error_of("Qwen3_5ForCausalLM", windows) ==
        "config.json: sliding_window: is missing; allowed: 0 to 1073741824");
  CHECK(error_of("Qwen3_5ForCausalLM", windows + R"(, "sliding_window": 0)") ==
        "config.json: sliding_window: is 0, but layer_types has sliding_attention; allowed: at "
        "least 1");
  CHECK(error_of("Qwen3NextForCausalLM", "") ==
        "config.json: intermediate_size: is missing; allowed: 1 to 1048576");
  CHECK(error_of("Qwen3_5ForCausalLM", ffn + R"(, "full_attention_interval": 0)") ==
        "config.json: full_attention_interval: is 0; allowed: at least 1");
  CHECK(error_of("Qwen3_5ForCausalLM", ffn + R"(, "layer_types": ["linear_attention"])") ==
        "config.json: layer_types: is not a list with one entry per layer; allowed: 8 times "
        "linear_attention, sliding_attention or full_attention");
  CHECK(error_of("Qwen3_5ForCausalLM", ffn + R"(, "linear_num_key_heads": 5)") ==
        "config.json: linear_num_value_heads: is 32; allowed: a multiple of "
        "linear_num_key_heads, 5");
  CHECK(parsed("Qwen3_5ForCausalLM", ffn + R"(, "attn_output_gate": false)").unsupported ==
        "attn_output_gate: false is not supported; allowed: true");
  CHECK(parsed("Qwen3_5ForCausalLM", ffn + R"(, "partial_rotary_factor": 0.2)").unsupported ==
        "partial_rotary_factor: rotates 3 of 16 elements of a head, but RoPE rotates pairs; "
        "allowed: an even number");
}

}  // namespace metronome::TEST_FILE
