// SPDX-License-Identifier: Apache-2.0
// A config.json of an architecture that no family is: simulated by the shapes that it names.
#include <cmath>
#include <fstream>
#include <string>

#include "core/base/json.h"
#include "core/model/layer_kind.h"
#include "core/model/model_catalogue.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/expected.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

using testing::Answers;
using testing::contains;
using testing::error_of;

ModelConfig parse(const std::string& keys) {
  return parse_hugging_face_config(
      "{\"architectures\": [\"OtherForCausalLM\"], \"hidden_size\": 2048, \"num_hidden_layers\": "
      "8, "
      "\"num_attention_heads\": 16, \"vocab_size\": 32000, \"max_position_embeddings\": 8192, " +
          keys + "}",
      "config.json", "parsed");
}

constexpr const char* kDense = R"("intermediate_size": 8192, "num_key_value_heads": 4)";
constexpr const char* kExperts =
    R"("num_key_value_heads": 4, "n_routed_experts": 64, "num_experts_per_tok": 6,
       "moe_intermediate_size": 1024, "n_shared_experts": 2, "first_k_dense_replace": 1,
       "intermediate_size": 8192)";
constexpr const char* kLatent =
    R"("num_key_value_heads": 16, "intermediate_size": 8192, "kv_lora_rank": 256,
       "q_lora_rank": null, "qk_nope_head_dim": 64, "qk_rope_head_dim": 32, "v_head_dim": 64)";
constexpr const char* kStates =
    R"("num_key_value_heads": 4, "intermediate_size": 8192, "linear_num_value_heads": 16,
       "linear_num_key_heads": 16, "linear_key_head_dim": 128, "linear_value_head_dim": 128)";
constexpr const char* kWindows =
    R"("num_key_value_heads": 4, "intermediate_size": 8192, "sliding_window": 512,
       "layer_types": ["sliding_attention", "full_attention", "sliding_attention",
       "full_attention", "sliding_attention", "full_attention", "sliding_attention",
       "full_attention"])";

TEST_CASE("an unknown architecture has the shapes that its file names", "[core][model]") {
  const ModelConfig dense = parse(kDense);
  CHECK(dense.n_kv_heads == 4);
  CHECK(dense.head_dim == 128);
  CHECK(dense.ffn_dim == 8192);
  CHECK(dense.n_experts == 0);
  CHECK(dense.architecture == "OtherForCausalLM");
  CHECK(layer_kinds(dense).size() == 1);

  const ModelConfig experts = parse(kExperts);
  CHECK(experts.n_experts == 64);
  CHECK(experts.n_experts_per_token == 6);
  CHECK(experts.expert_ffn_dim == 1024);
  CHECK(experts.shared_expert_ffn_dim == 2048);
  CHECK(experts.n_moe_layers() == 7);
  CHECK(layer_kinds(experts).front().name() == "attention, MLP of 8192");

  const ModelConfig latent = parse(kLatent);
  CHECK(latent.latent_attention.kv_rank == 256);
  CHECK(latent.kv_bytes_per_token() == 8 * (256 + 32) * 2);
  CHECK(latent.n_experts == 0);

  const ModelConfig states = parse(kStates);
  CHECK(states.n_linear_layers() == 6);
  CHECK(states.state_bytes() > 0);

  const ModelConfig windows = parse(kWindows);
  CHECK(windows.n_window_layers() == 4);

  // Keys that only executors read may be in any words.
  CHECK(parse(std::string(kDense) +
              R"(, "use_bidirectional_attention": "vision", "rope_scaling": {"type": "new"})") ==
        dense);

  // Of 8 blocks, four have a state, two attend and two are MLPs.
  const ModelConfig blocks = parse(
      R"("num_key_value_heads": 4, "intermediate_size": 8192, "mamba_num_heads": 32,
         "hybrid_override_pattern": "MM*-MM*-")");
  CHECK(blocks.n_linear_layers() == 4);
  CHECK(blocks.n_attention_layers() == 2);
  CHECK(blocks.n_whole_layers() == 4);
  CHECK(blocks.kv_bytes_per_token() == 2 * 2 * 4 * 128 * 2);

  // Without the width of an MLP all layers have experts.
  CHECK(parse(R"("num_local_experts": 8, "moe_intermediate_size": 512, "top_k_experts": 2)")
            .expert_ffn_dim == 512);
}

// Sources: the number of parameters that each model's authors or its page publish; step3 and
// llama-4-scout with their encoders, others as their engines load them, without MTP layers. Shapes
// are written from memory of the models' files.
TEST_CASE("published models have as many parameters as published", "[core][model]") {
  std::ifstream file(testing::source_dir() + "/tests/fixtures/published_shapes.jsonl");
  std::string line;
  int num_models = 0;
  while (std::getline(file, line)) {
    const Json row = Json::parse(line);
    const ModelConfig model = parse_hugging_face_config(row["config"].dump(), "config.json", "m");
    CAPTURE(row["model"].get<std::string>(), model.approximation);
    ++num_models;
    CHECK(static_cast<double>(model.n_params()) ==
          Approx(row["published"].get<double>()).epsilon(0.0105));
  }
  CHECK(num_models > 40);
}

// Source: classes of transformers 5.24 with these configurations, on the meta device. A line of
// model_shapes.jsonl has the parameters, those that a token is computed with, and the elements of
// keys and values of a token in all layers.
TEST_CASE("families have the parameters and the KV of their classes", "[core][model]") {
  std::ifstream file(testing::source_dir() + "/tests/fixtures/model_shapes.jsonl");
  std::string line;
  int num_families = 0;
  while (std::getline(file, line)) {
    const Json row = Json::parse(line);
    const ModelConfig model = parse_hugging_face_config(row["config"].dump(), "config.json", "m");
    CAPTURE(model.architecture, model.approximation);
    const auto share = [](std::int64_t ours, std::int64_t theirs) {
      return std::abs(static_cast<double>(ours) / static_cast<double>(theirs) - 1);
    };
    ++num_families;
    // Its class has weights of experts that return their input; the published ones have none.
    if (model.architecture == "LongcatFlashForCausalLM") continue;
    CHECK(share(model.n_params(), row["total"].get<std::int64_t>()) < 0.01);
    if (!row["active"].is_null()) {  // a class with experts of images does not say it
      CHECK(share(model.n_active_params(), row["active"].get<std::int64_t>()) < 0.01);
    }
    std::int64_t kv_elements = 0;
    for (const LayerKind& kind : layer_kinds(model)) {
      // transformers keeps a key beside the same value.
      const bool has_one = kind.attention.keys_are_values;
      kv_elements += (has_one ? 2 : 1) * kind.count() * kind.attention.cached_elements();
    }
    CHECK(kv_elements == row["kv_elements"].get<std::int64_t>());
  }
  CHECK(num_families > 80);
}

TEST_CASE("a simulation says what it takes an unknown architecture for", "[core][model]") {
  Answers answers("catalogue/unknown_architectures.txt");
  for (const char* keys : {kDense, kExperts, kLatent, kStates, kWindows}) {
    const ModelConfig model = parse(keys);
    answers.add(keys, model.approximation);
    CHECK(contains(model.unsupported, "architectures: \"OtherForCausalLM\" is only simulated"));
  }
  answers.add("no width", parse("\"num_key_value_heads\": 4").approximation);
  answers.add("an encoder and a decoder",
              error_of([] { parse("\"is_encoder_decoder\": true"); }).substr(0, 100));
  answers.add("too many experts",
              error_of([] { parse("\"num_experts\": 5000, \"moe_intermediate_size\": 8"); }));
  answers.add("a number that is too large",
              error_of([] { parse("\"intermediate_size\": 9000000"); }));
}

}  // namespace
}  // namespace metronome::TEST_FILE
