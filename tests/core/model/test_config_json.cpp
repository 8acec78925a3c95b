// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json about positions and windows, read as transformers and vLLM read them.
#include <cmath>
#include <string>

#include "core/model/model_catalogue.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

// A model of two layers and 40,960 positions. `more` are further keys.
ModelConfig parsed(const std::string& architecture, const std::string& more) {
  return parse_hugging_face_config(
      R"({"architectures": [")" + architecture +
          R"("], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,)"
          R"("num_attention_heads": 4, "num_key_value_heads": 4, "head_dim": 16,)"
          R"("vocab_size": 100, "rms_norm_eps": 1e-6, "torch_dtype": "bfloat16",)"
          R"("hidden_act": "silu", "hidden_activation": "gelu_pytorch_tanh",)"
          R"("query_pre_attn_scalar": 16, "num_experts": 4, "num_experts_per_tok": 2,)"
          R"("moe_intermediate_size": 32, "norm_topk_prob": true,)"
          R"("max_position_embeddings": 40960, )" +
          more + "}",
      "config.json", "parsed");
}

ModelConfig qwen(const std::string& more) { return parsed("Qwen3ForCausalLM", more); }

// Of a file with these keys and no other num_hidden_layers.
std::string refusal_of(const std::string& keys) {
  return testing::error_of([&] {
    static_cast<void>(parse_hugging_face_config(
        R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,)"
        R"("num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100, )" +
            keys + "}",
        "config.json", "parsed"));
  });
}

}  // namespace

TEST_CASE("YaRN and linear RoPE stretch the longest context", "[core][rope]") {
  const ModelConfig yarn = qwen(
      R"("rope_scaling": {"rope_type": "yarn", "factor": 4.0,
          "original_max_position_embeddings": 32768})");
  CHECK(yarn.rope_scaling.kind == RopeScaling::Kind::Yarn);
  CHECK(yarn.rope_scaling.original_max_positions == 32768);
  CHECK(yarn.rope_scaling.truncates);
  CHECK(std::abs(yarn.rope_scaling.attention_factor - 1.1386294361) < 1e-9);  // 0.1 ln(4) + 1
  CHECK(yarn.max_context() == 131072);  // vLLM's lengths, whatever max_position_embeddings says
  CHECK(yarn.default_max_model_len() == 131072);
  const ModelConfig shorter = qwen(
      R"("rope_scaling": {"rope_type": "yarn", "factor": 2,
          "original_max_position_embeddings": 64})");
  CHECK(shorter.default_max_model_len() == 128);
  CHECK(shorter.max_context() == 40960);
  const std::string linear = R"("rope_scaling": {"type": "linear", "factor": 2.5})";
  CHECK(qwen(linear).max_context() == 102400);
  const ModelConfig gemma = parsed("Gemma3ForCausalLM", linear);
  CHECK(gemma.rope_scaling.kind == RopeScaling::Kind::Linear);
  CHECK(gemma.max_context() == 40960);  // its file says the stretched length
}

TEST_CASE("a number out of its range, a null and a key twice are told apart", "[core][model]") {
  CHECK(refusal_of(R"("num_hidden_layers": -4)")
            .starts_with("config.json: num_hidden_layers: -4 is out of range; allowed: 1 to "));
  CHECK(refusal_of(R"("num_hidden_layers": 4.5)")
            .starts_with("config.json: num_hidden_layers: must be an integer, got 4.5; allowed: "));
  CHECK(refusal_of(R"("num_hidden_layers": 99999999999999)")
            .starts_with("config.json: num_hidden_layers: 99999999999999 is out of range; "));
  CHECK(refusal_of(R"("num_hidden_layers": null)") ==
        "config.json: num_hidden_layers: is null; allowed: 1 to 4096");
  CHECK(refusal_of(R"("tie_word_embeddings": false)") ==
        "config.json: num_hidden_layers: is missing; allowed: 1 to 4096");
  CHECK(refusal_of(R"("num_hidden_layers": 2, "hidden_size": 32)") ==
        "config.json: hidden_size: appears twice; allowed: every key once");
}

TEST_CASE("which of two keys counts for RoPE", "[core][rope]") {
  const ModelConfig beside = qwen(
      R"("original_max_position_embeddings": 16384, "rope_scaling": {"rope_type": "yarn",
          "factor": 4.0, "truncate": null, "original_max_position_embeddings": 32768})");
  CHECK(beside.rope_scaling.original_max_positions == 16384);
  CHECK_FALSE(beside.rope_scaling.truncates);
  const ModelConfig empty =
      qwen(R"("rope_scaling": {}, "rope_parameters": {"rope_type": "linear", "factor": 2})");
  CHECK(empty.rope_scaling.kind == RopeScaling::Kind::Linear);
}

TEST_CASE("which families read a list of windows, and when", "[core][model]") {
  const std::string list =
      R"("layer_types": ["sliding_attention", "full_attention"], "sliding_window": 64,)"
      R"("use_sliding_window": )";
  CHECK(qwen(list + "true").n_window_layers() == 1);
  CHECK(qwen(list + "false").n_window_layers() == 0);
  CHECK(parsed("SmolLM3ForCausalLM", list + "false").n_window_layers() == 1);
  CHECK(parsed("Qwen3MoeForCausalLM", list + "true").n_window_layers() == 2);
}

}  // namespace metronome::TEST_FILE
