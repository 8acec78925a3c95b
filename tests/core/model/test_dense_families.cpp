// SPDX-License-Identifier: Apache-2.0
// Families of core/model/dense_families.h, read from config.json as transformers' classes write it.
#include <cmath>
#include <sstream>
#include <string>

#include "core/base/files.h"
#include "core/base/json.h"
#include "core/model/model_catalogue.h"
#include "core/model/model_family.h"
#include "core/model/rope.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

// A small file of an architecture. `more` are further keys.
ModelConfig parsed(const std::string& architecture, const std::string& more = R"("x": 0)") {
  return parse_hugging_face_config(
      R"({"architectures": [")" + architecture +
          R"("], "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 4,)"
          R"("num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,)"
          R"("max_position_embeddings": 4096, )" +
          more + "}",
      "config.json", "parsed");
}

}  // namespace

TEST_CASE("models have the parameters of transformers' classes", "[core][model]") {
  // tools/hf_parity counts
  std::istringstream lines(
      read_file(testing::source_dir() + "/tests/fixtures/dense_families.jsonl").value());
  std::string line;
  int num_lines = 0;
  while (std::getline(lines, line)) {
    const Json entry = Json::parse(line);
    const Json& config = *entry.find("config");
    const std::string name = (*config.find("architectures"))[0].get<std::string>();
    INFO(name << " of line " << ++num_lines);
    const ModelConfig model = parse_hugging_face_config(config.dump(), "config.json", name);
    CHECK(model.unsupported.empty());
    CHECK(model.approximation.empty());
    const auto expected = static_cast<double>(entry.find("params")->get<std::int64_t>());
    CHECK(static_cast<double>(model.n_params() - model.tower_params) ==
          Approx(expected).epsilon(0.01));
  }
  CHECK(num_lines > 25);
}

TEST_CASE("each family's switches are read from keys of its own", "[core][model]") {
  const ModelConfig seed = parsed("SeedOssForCausalLM", R"("attention_out_bias": true)");
  CHECK(seed.has_qkv_biases);
  CHECK(seed.has_attention_output_bias);
  CHECK_FALSE(parsed("SeedOssForCausalLM", R"("attention_bias": false)").has_qkv_biases);
  CHECK_FALSE(parsed("GlmForCausalLM").has_attention_output_bias);
  CHECK(parsed("Qwen2ForCausalLM", R"("attention_bias": false)").has_qkv_biases);
  CHECK(parsed("InternLM3ForCausalLM", R"("qkv_bias": true)").has_qkv_biases);
  CHECK(parsed("Starcoder2ForCausalLM").has_mlp_biases);
  CHECK_FALSE(parsed("Starcoder2ForCausalLM", R"("use_bias": false)").has_mlp_biases);

  const ModelConfig stable = parsed("StableLmForCausalLM", R"("use_parallel_residual": true)");
  CHECK(stable.has_parallel_mlp);
  CHECK(stable.n_layer_norms() == 1);
  CHECK(parsed("StableLmForCausalLM").n_layer_norms() == 2);
  CHECK(parsed("StableLmForCausalLM", R"("qk_layernorm": true)")
            .unsupported.starts_with("qk_layernorm: "));
  CHECK(parsed("GPTNeoXForCausalLM").n_layer_norms() == 2);
  CHECK_FALSE(parsed("GPTNeoXForCausalLM", R"("use_parallel_residual": false)").has_parallel_mlp);
  CHECK(parsed("PhiForCausalLM", R"("qk_layernorm": true)").has_qk_norm);

  CHECK(parsed("NemotronForCausalLM", R"("norm_eps": 0.25)").norm_eps == 0.25);
  CHECK(parsed("CohereForCausalLM", R"("logit_scale": 0.25)").logit_divisor == 4);
  CHECK(parsed("OlmoForCausalLM", R"("clip_qkv": 8)").qkv_clip == 8);
  CHECK(parsed("OlmoForCausalLM", R"("rms_norm_eps": 0.25)").norm_eps == 1e-5);
  CHECK(parsed("ArceeForCausalLM").activation == Activation::SquaredRelu);
  CHECK(parsed("ApertusForCausalLM", R"("hidden_act": "xielu")").activation == Activation::Xielu);
  CHECK(parsed("LlamaForCausalLM", R"("hidden_act": "xielu")").unsupported.starts_with("hidden_a"));
}

TEST_CASE("the layers without a window may be without RoPE", "[core][model]") {
  const std::string list =
      R"("sliding_window": 16, "layer_types": ["full_attention", "sliding_attention",
          "sliding_attention", "full_attention"])";
  using Layers = std::vector<std::int64_t>;
  for (const char* family : {"Exaone4ForCausalLM", "Cohere2ForCausalLM"}) {
    CHECK(parsed(family).unrotated_layers == Layers{3});
    const ModelConfig listed = parsed(family, list);
    CHECK(listed.unrotated_layers == Layers{0, 3});
    CHECK(listed.n_window_layers() == 2);
  }
  const ModelConfig whole =
      parsed("Exaone4ForCausalLM", R"("sliding_window": null, "sliding_window_pattern": "LLLG")");
  CHECK(whole.n_window_layers() == 0);
  CHECK(whole.unrotated_layers.empty());
  CHECK(parsed("Olmo3ForCausalLM", list).unrotated_layers.empty());
  CHECK(parsed("MinistralForCausalLM").n_window_layers() == 4);
}

TEST_CASE("RoPE of Hunyuan, Ministral 3 and GPT-NeoX", "[core][rope]") {
  const ModelConfig hunyuan = parsed(
      "HunYuanDenseV1ForCausalLM",
      R"("rope_scaling": {"type": "dynamic", "alpha": 1000.0, "factor": 1.0}, "head_dim": 128)");
  CHECK(hunyuan.rope_theta == Approx(10000 * std::pow(1000.0, 128.0 / 126)));
  CHECK(hunyuan.unsupported.empty());

  const ModelConfig ministral =
      parsed("Ministral3ForCausalLM",
             R"("rope_parameters": {"rope_type": "yarn", "factor": 4, "rope_theta": 1e6,
          "original_max_position_embeddings": 1024, "llama_4_scaling_beta": 0.1,
          "mscale": 1.0, "mscale_all_dim": 1.0})");
  CHECK(ministral.rope_scaling.attention_factor == 1);
  CHECK(query_scale_at(ministral, 1023) == 1);
  CHECK(query_scale_at(ministral, 2048) == Approx(1 + 0.1 * std::log(3.0)));
  CHECK(query_scale_at(parsed("LlamaForCausalLM"), 2048) == 1);

  const ModelConfig old =
      parsed("GPTNeoXForCausalLM", R"("rotary_pct": 0.5, "rotary_emb_base": 500)");
  CHECK(old.rotary_dim == 8);
  CHECK(old.rope_theta == 500);
  CHECK(parsed("GPTNeoXForCausalLM").rotary_dim == 4);
}

TEST_CASE("Mistral 3 is read as the language model that it holds", "[core][model]") {
  const auto mistral = [](const std::string& type, const std::string& more) {
    return parse_hugging_face_config(
        R"({"architectures": ["Mistral3ForConditionalGeneration"], "text_config": {)"
        R"("model_type": ")" +
            type +
            R"(", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
               "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 100,
               "max_position_embeddings": 4096)" +
            more + "}}",
        "config.json", "parsed");
  };
  const ModelConfig small = mistral("mistral", "");
  CHECK(small.head_dim == 16);
  CHECK(small.sliding_window == 4096);
  CHECK(small.norm_eps == 1e-6);
  const ModelConfig third = mistral("ministral3", R"(, "tie_word_embeddings": true)");
  CHECK(third.head_dim == 128);
  CHECK(third.sliding_window == 0);
  CHECK(third.norm_eps == 1e-5);
  CHECK(third.has_tied_embeddings);
  CHECK(third.architecture == "Mistral3ForConditionalGeneration");
}

TEST_CASE("a trait of a model that another lacks has a name", "[core][model]") {
  ModelTraits traits;
  CHECK(first_unlike(traits, {}).empty());
  traits.has_gated_mlp = false;
  CHECK(first_unlike(traits, {}) == "has_gated_mlp: false");
  CHECK(first_unlike({}, traits) == "has_gated_mlp");
  traits.has_layer_norms = true;
  CHECK(first_unlike(traits, {}) == "has_layer_norms");
  CHECK(first_unlike({.activation = Activation::Gelu}, {}) == "activation");
}

}  // namespace metronome::TEST_FILE
