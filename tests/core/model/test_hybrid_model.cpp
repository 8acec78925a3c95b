// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next and Qwen3.5: what their config.json says, by hand from transformers' configuration
// classes, and where their files keep the parts of fused tensors.
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "core/model/model_weights.h"
#include "core/model/stored_tensor.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome {
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

// Qwen3-Next with two value heads for each of two key heads.
ModelConfig small_hybrid(const std::string& architecture) {
  return parsed(architecture,
                R"(, "intermediate_size": 7, "num_experts": 3, "num_experts_per_tok": 2,
                   "moe_intermediate_size": 5, "shared_expert_intermediate_size": 6,
                   "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                   "linear_key_head_dim": 3, "linear_value_head_dim": 2)");
}

// The stored rows of a tensor's rows.
std::vector<std::int64_t> rows_of(const ModelConfig& model, std::int64_t layer,
                                  const std::string& name) {
  const WeightSpec spec = weight_spec(model, layer, name);
  const StoredTensor stored = stored_tensors(model, spec).front();
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < spec.rows; ++row) rows.push_back(stored.stored_row(row));
  return rows;
}

using Rows = std::vector<std::int64_t>;

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

TEST_CASE("a model with states has a tensor for each of its parameters", "[core][model][states]") {
  for (const char* architecture : {"Qwen3NextForCausalLM", "Qwen3_5MoeForCausalLM"}) {
    const ModelConfig model = small_hybrid(architecture);
    std::int64_t num_elements = 0;
    for (const WeightSpec& spec : weight_specs(model)) num_elements += spec.rows * spec.cols;
    INFO(architecture);
    CHECK(num_elements == model.n_params());
  }
}

TEST_CASE("where the parts of fused tensors are", "[core][model][states]") {
  // A key head of Qwen3-Next: 3 rows of its query, 3 of its key, 4 of values, 4 of gates.
  const ModelConfig next = small_hybrid("Qwen3NextForCausalLM");
  CHECK(rows_of(next, 0, "linear_attn.in_proj_q") == Rows{0, 1, 2, 14, 15, 16});
  CHECK(rows_of(next, 0, "linear_attn.in_proj_k") == Rows{3, 4, 5, 17, 18, 19});
  CHECK(rows_of(next, 0, "linear_attn.in_proj_v") == Rows{6, 7, 8, 9, 20, 21, 22, 23});
  CHECK(rows_of(next, 0, "linear_attn.in_proj_z") == Rows{10, 11, 12, 13, 24, 25, 26, 27});
  CHECK(rows_of(next, 0, "linear_attn.in_proj_b") == Rows{0, 1, 4, 5});
  CHECK(rows_of(next, 0, "linear_attn.in_proj_a") == Rows{2, 3, 6, 7});
  const Rows query = rows_of(next, 3, "self_attn.q_proj");
  CHECK(query.at(15) == 15);
  CHECK(query.at(16) == 32);
  CHECK(rows_of(next, 3, "self_attn.gate_proj").at(16) == 48);

  const ModelConfig other = small_hybrid("Qwen3_5MoeForCausalLM");
  CHECK(rows_of(other, 0, "linear_attn.in_proj_k") == Rows{6, 7, 8, 9, 10, 11});
  CHECK(rows_of(other, 0, "linear_attn.in_proj_v").front() == 12);
  CHECK(rows_of(other, 0, "linear_attn.in_proj_z").front() == 0);

  // Experts one by one, or all in one tensor.
  const std::vector<StoredTensor> up =
      stored_tensors(other, weight_spec(other, 1, "mlp.experts.2.up_proj"));
  REQUIRE(up.size() == 2);
  CHECK(up[0].names.front() == "model.layers.1.mlp.experts.2.up_proj.weight");
  CHECK(up[1].names ==
        std::vector<std::string>{"model.layers.1.mlp.experts.gate_up_proj",
                                 "language_model.model.layers.1.mlp.experts.gate_up_proj",
                                 "model.language_model.layers.1.mlp.experts.gate_up_proj"});
  CHECK(up[1].shape == std::vector<std::int64_t>{3, 10, 24});
  CHECK(up[1].stored_row(0) == 25);
  const std::vector<StoredTensor> down =
      stored_tensors(other, weight_spec(other, 1, "mlp.experts.1.down_proj"));
  CHECK(down[1].names.front() == "model.layers.1.mlp.experts.down_proj");
  CHECK(down[1].shape == std::vector<std::int64_t>{3, 24, 5});
  CHECK(down[1].stored_row(0) == 24);
}

}  // namespace metronome
