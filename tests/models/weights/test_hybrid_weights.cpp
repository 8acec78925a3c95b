// SPDX-License-Identifier: Apache-2.0
// Qwen3-Next and Qwen3.5: where their files keep the parts of fused tensors.
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "models/weights/model_weights.h"
#include "models/weights/stored_tensor.h"
#include "tests/catch.h"

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

}  // namespace metronome::TEST_FILE
