// SPDX-License-Identifier: Apache-2.0
// Configuration and tensors of GGUF files of each family: known answers from llama.cpp's scripts
// (conversion/*.py) and its loaders (src/models/*.cpp).
#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/weights/gguf_weights.h"
#include "models/weights/model_weights.h"
#include "models/weights/quantised_blocks.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/weights/gguf_models.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

// A file of a family with an embedding table, and so with tied embeddings.
GgufBytes file_of(const std::string& family) {
  GgufBytes bytes = keys_of(family);
  with_table(bytes).u32("tokenizer.ggml.eos_token_id", 2);
  return bytes;
}

ModelConfig folder_of(const std::string& architecture, const std::string& keys = "") {
  return folder_config(R"("architectures": [")" + architecture +
                       R"("], "tie_word_embeddings": true, "eos_token_id": 2,
                       "rope_theta": 50000.0)" +
                       keys);
}

TEST_CASE("configurations of families in GGUF files are those of their folders", "[core][gguf]") {
  CHECK(config_of(file_of("qwen2")) == folder_of("Qwen2ForCausalLM"));
  CHECK(config_of(file_of("olmo2")) == folder_of("Olmo2ForCausalLM"));

  GgufBytes phi = file_of("phi3");
  phi.u32("phi3.rope.dimension_count", 2).u32("phi3.attention.sliding_window", 9);
  phi.u32("phi3.rope.scaling.original_context_length", 32);
  CHECK(config_of(phi) == folder_of("Phi3ForCausalLM", R"(, "partial_rotary_factor": 0.5,
                                                         "sliding_window": 9)"));

  GgufBytes granite = file_of("granite");
  granite.f32("granite.attention.scale", 0.015625f).f32("granite.embedding_scale", 12);
  granite.f32("granite.residual_scale", 0.22f).f32("granite.logit_scale", 8);
  CHECK(config_of(granite) == folder_of("GraniteForCausalLM", R"(, "attention_multiplier": 0.015625,
                  "embedding_multiplier": 12.0, "residual_multiplier": 0.22,
                  "logits_scaling": 8.0)"));

  GgufBytes gemma = file_of("gemma2");
  const std::string keys = R"(, "query_pre_attn_scalar": 4)";
  CHECK(config_of(gemma) == folder_of("Gemma2ForCausalLM", keys));
  CHECK(config_of(gemma).attention_softcap == 50);
  CHECK(config_of(gemma).logit_softcap == 30);
  CHECK(config_of(gemma).sliding_window == 4096);
  CHECK(config_of(gemma).global_layer_interval == 2);
  gemma.u32("gemma2.attention.sliding_window", 16).f32("gemma2.attn_logit_softcapping", 7);
  gemma.f32("gemma2.final_logit_softcapping", 8);
  CHECK(config_of(gemma) == folder_of("Gemma2ForCausalLM", keys + R"(, "sliding_window": 16,
                  "attn_logit_softcapping": 7.0, "final_logit_softcapping": 8.0)"));
}

TEST_CASE("a Gemma whose layers are all global has no window", "[core][gguf]") {
  GgufBytes bytes = file_of("gemma3");
  bytes.u32("gemma3.attention.sliding_window", 16);
  bytes.array("gemma3.attention.sliding_window_pattern", gguf_type::kBool, 2, std::string(2, '\0'));
  CHECK(config_of(bytes) ==
        folder_of("Gemma3ForCausalLM", R"(, "query_pre_attn_scalar": 4, "sliding_window": 16,
                  "layer_types": ["full_attention", "full_attention"])"));
  CHECK(config_of(bytes).sliding_window == 0);
}

TEST_CASE("the largest Gemma 2 scales its queries by another number", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("general.architecture", "gemma2").u32("gemma2.block_count", 46);
  bytes.u32("gemma2.embedding_length", 4608).u32("gemma2.feed_forward_length", 36864);
  bytes.u32("gemma2.context_length", 8192).u32("gemma2.attention.head_count", 32);
  bytes.u32("gemma2.attention.head_count_kv", 16).u32("gemma2.attention.key_length", 128);
  bytes.f32("gemma2.attention.layer_norm_rms_epsilon", 1e-6f).u32("gemma2.vocab_size", 256000);
  CHECK(config_of(bytes).query_pre_attn_scalar == 144);
}

TEST_CASE("every fourth layer of SmolLM 3 is not rotated", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("general.architecture", "smollm3").u32("smollm3.block_count", 9);
  bytes.u32("smollm3.embedding_length", 8).u32("smollm3.feed_forward_length", 5);
  bytes.u32("smollm3.context_length", 64).u32("smollm3.attention.head_count", 2);
  bytes.f32("smollm3.attention.layer_norm_rms_epsilon", 1e-6f).u32("smollm3.vocab_size", 7);
  CHECK(config_of(bytes).unrotated_layers == std::vector<std::int64_t>{3, 7});
  // A hostile number of layers makes no list.
  GgufBytes many;
  many.text("general.architecture", "smollm3");
  many.add("smollm3.block_count", gguf_type::kUint64, low_bytes(std::uint64_t{1} << 40, 8));
  many.u32("smollm3.embedding_length", 8).u32("smollm3.feed_forward_length", 5);
  many.u32("smollm3.context_length", 64).u32("smollm3.attention.head_count", 2);
  many.f32("smollm3.attention.layer_norm_rms_epsilon", 1e-6f).u32("smollm3.vocab_size", 7);
  CHECK(error_of([&] { config_of(many); }).starts_with("m.gguf: n_layers: is 1099511627776; "));
}

TEST_CASE("GPT-2 in a GGUF file", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("general.architecture", "gpt2").u32("gpt2.block_count", 2);
  bytes.u32("gpt2.embedding_length", 6).u32("gpt2.feed_forward_length", 24);
  bytes.u32("gpt2.context_length", 32).u32("gpt2.attention.head_count", 2);
  bytes.f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  with_table(bytes).u32("tokenizer.ggml.eos_token_id", 2);
  CHECK(config_of(bytes) == parse_hugging_face_config(
                                R"({"architectures": ["GPT2LMHeadModel"], "n_embd": 6,
                                    "n_layer": 2, "n_head": 2, "n_positions": 32,
                                    "vocab_size": 7, "eos_token_id": 2,
                                    "torch_dtype": "float32"})",
                                "config.json", "m"));
}

TEST_CASE("mixtures of experts in GGUF files", "[core][gguf]") {
  GgufBytes bytes = file_of("llama");
  bytes.u32("llama.expert_count", 8).u32("llama.expert_used_count", 2);
  CHECK(config_of(bytes) == folder_of("MixtralForCausalLM", R"(, "num_local_experts": 8,
                                      "num_experts_per_tok": 2, "sliding_window": null)"));
  GgufBytes qwen = file_of("qwen3moe");
  qwen.u32("qwen3moe.expert_count", 8).u32("qwen3moe.expert_used_count", 2);
  GgufBytes silent = qwen;
  CHECK(config_of(silent).expert_ffn_dim == 2);  // half of 5
  qwen.u32("qwen3moe.expert_feed_forward_length", 3);
  CHECK(config_of(qwen) ==
        folder_of("Qwen3MoeForCausalLM", R"(, "num_experts": 8, "num_experts_per_tok": 2,
                  "moe_intermediate_size": 3, "norm_topk_prob": true)"));
  GgufBytes plain = qwen;
  plain.truth("qwen3moe.expert_weights_norm", false);
  CHECK_FALSE(config_of(plain).has_normalised_expert_weights);
  GgufBytes scaled = qwen;
  scaled.f32("qwen3moe.expert_weights_scale", 2.5f);
  CHECK(config_of(scaled).unsupported ==
        "qwen3moe.expert_weights_scale: is not supported; allowed: 1");
  qwen.u32("qwen3moe.expert_gating_func", 2);
  CHECK(config_of(qwen).unsupported ==
        "qwen3moe.expert_gating_func: is not supported; allowed: 1, the softmax of the router's "
        "outputs");
}

TEST_CASE("YaRN in a GGUF file", "[core][gguf]") {
  GgufBytes bytes = file_of("qwen2");
  bytes.text("qwen2.rope.scaling.type", "yarn").f32("qwen2.rope.scaling.factor", 4);
  bytes.u32("qwen2.rope.scaling.original_context_length", 16);
  const std::string folder = R"(, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
                                  "original_max_position_embeddings": 16)";
  CHECK(config_of(bytes) == folder_of("Qwen2ForCausalLM", folder + "}"));
  CHECK(config_of(bytes).rope_scaling.attention_factor == 0.1 * std::log(4.0) + 1);
  GgufBytes other = bytes;
  other.f32("qwen2.rope.scaling.yarn_attn_factor", 1.5f);
  other.f32("qwen2.rope.scaling.yarn_beta_fast", 24).f32("qwen2.rope.scaling.yarn_beta_slow", 2);
  CHECK(config_of(other) ==
        folder_of("Qwen2ForCausalLM",
                  folder + R"(, "attention_factor": 1.5, "beta_fast": 24, "beta_slow": 2})"));
  // llama.cpp multiplies this one by what it computes.
  bytes.f32("qwen2.rope.scaling.attn_factor", 2);
  CHECK(config_of(bytes).rope_scaling.attention_factor == 2 * (0.1 * std::log(4.0) + 1));
}

TEST_CASE("LongRoPE in a GGUF file", "[core][gguf]") {
  GgufBytes bytes = file_of("phi3");
  bytes.u32("phi3.rope.scaling.original_context_length", 16);
  bytes.f32("phi3.rope.scaling.attn_factor", 1.25f);
  bytes.floats32("rope_factors_short.weight", {2}, {1, 1.1f});
  GgufBytes half = bytes;
  bytes.floats32("rope_factors_long.weight", {2}, {2, 4.3f});
  CHECK(config_of(bytes) ==
        folder_of("Phi3ForCausalLM", R"(, "original_max_position_embeddings": 16,
                  "sliding_window": null, "rope_scaling": {"type": "longrope",
                  "attention_factor": 1.25, "short_factor": [1.0, 1.1],
                  "long_factor": [2.0, 4.3]})"));
  CHECK(config_of(half).unsupported ==
        "rope_factors_long.weight: is missing; allowed: a divisor for each rotated pair");
  half.floats32("rope_factors_long.weight", {3}, {1, 2, 3});
  CHECK(error_of([&] { config_of(half); }) ==
        "m.gguf: rope_factors_long.weight: has another type or shape; allowed: F32, one for each "
        "of 2 pairs");
}

// Tensors of a small model, each of numbers of its own.
class FamilyFile {
 public:
  explicit FamilyFile(const GgufBytes& keys) : bytes_(keys) {}

  FamilyFile& tensor(const std::string& name, const std::vector<std::uint64_t>& shape) {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : shape) count *= dim;
    std::vector<float>& values = values_[name];
    for (std::uint64_t i = 0; i < count; ++i) values.push_back(next_++);
    bytes_.floats32(name, shape, values);
    return *this;
  }
  // A layer's tensors: "attn_q.weight".
  FamilyFile& layer(const std::vector<std::pair<std::string, std::vector<std::uint64_t>>>& all) {
    for (const auto& [name, shape] : all) tensor("blk.0." + name, shape);
    return *this;
  }

  // Numbers of a stored tensor from the given one on.
  std::vector<float> part(const std::string& name, std::size_t first, std::size_t count) const {
    const std::vector<float>& values = values_.at(name);
    REQUIRE(first + count <= values.size());
    const auto begin = values.begin() + static_cast<std::ptrdiff_t>(first);
    return {begin, begin + static_cast<std::ptrdiff_t>(count)};
  }

  void open() {
    const std::string path = folder_.write("m.gguf", bytes_.bytes());
    model_ = find_model(path, {});
    REQUIRE(model_.unsupported.empty());
    source_ = open_gguf_weights(path, model_);
    CHECK(source_->unused_tensors().empty());
  }
  // The numbers of a tensor of weight_specs(), and so of a folder.
  std::vector<float> read(const std::string& name) const {
    for (const WeightSpec& spec : weight_specs(model_)) {
      if (spec.name != name && spec.name != "model.layers.0." + name) continue;
      CHECK(source_->type(spec) == TensorType::Float32);
      std::vector<float> values(static_cast<std::size_t>(spec.rows * spec.cols));
      source_->read(spec, 0, spec.rows, values.data());
      return values;
    }
    FAIL("no tensor " << name);
    return {};
  }

 private:
  ScratchFolder folder_;
  GgufBytes bytes_;
  std::map<std::string, std::vector<float>> values_;
  float next_ = 0;
  ModelConfig model_;
  std::unique_ptr<WeightSource> source_;
};

// One layer, heads of 4 over one of keys, rows of 2, and an MLP of 3.
GgufBytes small_keys(const std::string& family) {
  GgufBytes bytes;
  bytes.text("general.architecture", family).u32(family + ".block_count", 1);
  bytes.u32(family + ".embedding_length", 2).u32(family + ".feed_forward_length", 3);
  bytes.u32(family + ".context_length", 8).u32(family + ".attention.head_count", 2);
  bytes.u32(family + ".attention.head_count_kv", 1).u32(family + ".attention.key_length", 4);
  bytes.f32(family + ".attention.layer_norm_rms_epsilon", 1e-5f);
  return bytes;
}

FamilyFile& add_ends(FamilyFile& file) {
  return file.tensor("token_embd.weight", {5, 2}).tensor("output_norm.weight", {2});
}

FamilyFile& add_qkv(FamilyFile& file) {
  return file.layer({{"attn_q.weight", {8, 2}},
                     {"attn_k.weight", {4, 2}},
                     {"attn_v.weight", {4, 2}},
                     {"attn_output.weight", {2, 8}}});
}

FamilyFile& add_mlp(FamilyFile& file) {
  return file.layer(
      {{"ffn_gate.weight", {3, 2}}, {"ffn_up.weight", {3, 2}}, {"ffn_down.weight", {2, 3}}});
}

TEST_CASE("biases of Q, K and V in GGUF files", "[core][gguf]") {
  for (const bool is_permuted : {false, true}) {
    FamilyFile file(small_keys(is_permuted ? "granite" : "qwen2"));
    add_mlp(add_qkv(add_ends(file))).layer({{"attn_norm.weight", {2}}, {"ffn_norm.weight", {2}}});
    file.layer({{"attn_q.bias", {8}}, {"attn_k.bias", {4}}, {"attn_v.bias", {4}}});
    file.open();
    const auto in_order = [&](const std::string& name, std::size_t count) {
      std::vector<float> stored = file.part("blk.0." + name, 0, count);
      if (!is_permuted) return stored;
      std::vector<float> back = stored;  // rows 0, 2, 1, 3 of each head
      for (std::size_t i = 0; i < count; i += 4) std::swap(back[i + 1], back[i + 2]);
      return back;
    };
    CHECK(file.read("self_attn.q_proj.bias") == in_order("attn_q.bias", 8));
    CHECK(file.read("self_attn.k_proj.bias") == in_order("attn_k.bias", 4));
    CHECK(file.read("self_attn.v_proj.bias") == file.part("blk.0.attn_v.bias", 0, 4));
    CHECK(file.read("self_attn.v_proj.weight") == file.part("blk.0.attn_v.weight", 0, 8));
  }
}

TEST_CASE("Phi-3's fused tensors in a GGUF file", "[core][gguf]") {
  FamilyFile file(small_keys("phi3"));
  add_ends(file).layer({{"attn_norm.weight", {2}},
                        {"attn_qkv.weight", {16, 2}},
                        {"attn_output.weight", {2, 8}},
                        {"ffn_norm.weight", {2}},
                        {"ffn_up.weight", {6, 2}},
                        {"ffn_down.weight", {2, 3}}});
  file.open();
  CHECK(file.read("self_attn.q_proj.weight") == file.part("blk.0.attn_qkv.weight", 0, 16));
  CHECK(file.read("self_attn.k_proj.weight") == file.part("blk.0.attn_qkv.weight", 16, 8));
  CHECK(file.read("self_attn.v_proj.weight") == file.part("blk.0.attn_qkv.weight", 24, 8));
  CHECK(file.read("mlp.gate_proj.weight") == file.part("blk.0.ffn_up.weight", 0, 6));
  CHECK(file.read("mlp.up_proj.weight") == file.part("blk.0.ffn_up.weight", 6, 6));
  CHECK(file.read("post_attention_layernorm.weight") == file.part("blk.0.ffn_norm.weight", 0, 2));
}

TEST_CASE("norms of OLMo 2 and Gemma 2 in GGUF files", "[core][gguf]") {
  FamilyFile olmo(small_keys("olmo2"));
  add_mlp(add_qkv(add_ends(olmo)))
      .layer({{"attn_q_norm.weight", {8}},
              {"attn_k_norm.weight", {4}},
              {"post_attention_norm.weight", {2}},
              {"post_ffw_norm.weight", {2}}});
  olmo.open();
  CHECK(olmo.read("self_attn.q_norm.weight") == olmo.part("blk.0.attn_q_norm.weight", 0, 8));
  CHECK(olmo.read("post_attention_layernorm.weight") ==
        olmo.part("blk.0.post_attention_norm.weight", 0, 2));
  CHECK(olmo.read("post_feedforward_layernorm.weight") ==
        olmo.part("blk.0.post_ffw_norm.weight", 0, 2));

  FamilyFile gemma(small_keys("gemma2"));
  add_mlp(add_qkv(add_ends(gemma)))
      .layer({{"attn_norm.weight", {2}},
              {"post_attention_norm.weight", {2}},
              {"ffn_norm.weight", {2}},
              {"post_ffw_norm.weight", {2}}});
  gemma.open();
  const auto less_one = [&](const std::string& name) {
    std::vector<float> values = gemma.part(name, 0, 2);
    for (float& value : values) value -= 1;
    return values;
  };
  CHECK(gemma.read("input_layernorm.weight") == less_one("blk.0.attn_norm.weight"));
  CHECK(gemma.read("post_attention_layernorm.weight") ==
        less_one("blk.0.post_attention_norm.weight"));
  CHECK(gemma.read("pre_feedforward_layernorm.weight") == less_one("blk.0.ffn_norm.weight"));
  CHECK(gemma.read("post_feedforward_layernorm.weight") == less_one("blk.0.post_ffw_norm.weight"));
  CHECK(gemma.read("model.norm.weight") == less_one("output_norm.weight"));
}

TEST_CASE("GPT-2's tensors in a GGUF file", "[core][gguf]") {
  GgufBytes keys;
  keys.text("general.architecture", "gpt2").u32("gpt2.block_count", 1);
  keys.u32("gpt2.embedding_length", 2).u32("gpt2.feed_forward_length", 3);
  keys.u32("gpt2.context_length", 8).u32("gpt2.attention.head_count", 1);
  keys.f32("gpt2.attention.layer_norm_epsilon", 1e-5f);
  FamilyFile file(keys);
  add_ends(file).tensor("output_norm.bias", {2}).tensor("position_embd.weight", {8, 2});
  file.layer({{"attn_norm.weight", {2}},
              {"attn_norm.bias", {2}},
              {"attn_qkv.weight", {6, 2}},
              {"attn_qkv.bias", {6}},
              {"attn_output.weight", {2, 2}},
              {"attn_output.bias", {2}},
              {"ffn_norm.weight", {2}},
              {"ffn_norm.bias", {2}},
              {"ffn_up.weight", {3, 2}},
              {"ffn_up.bias", {3}},
              {"ffn_down.weight", {2, 3}},
              {"ffn_down.bias", {2}}});
  file.open();
  CHECK(file.read("model.embed_positions.weight") == file.part("position_embd.weight", 0, 16));
  CHECK(file.read("model.norm.bias") == file.part("output_norm.bias", 0, 2));
  CHECK(file.read("self_attn.k_proj.weight") == file.part("blk.0.attn_qkv.weight", 4, 4));
  CHECK(file.read("self_attn.k_proj.bias") == file.part("blk.0.attn_qkv.bias", 2, 2));
  CHECK(file.read("self_attn.o_proj.bias") == file.part("blk.0.attn_output.bias", 0, 2));
  CHECK(file.read("post_attention_layernorm.bias") == file.part("blk.0.ffn_norm.bias", 0, 2));
  CHECK(file.read("mlp.up_proj.weight") == file.part("blk.0.ffn_up.weight", 0, 6));
  CHECK(file.read("mlp.down_proj.bias") == file.part("blk.0.ffn_down.bias", 0, 2));
}

TEST_CASE("experts of GGUF files are slices of one tensor", "[core][gguf]") {
  for (const std::string family : {"llama", "qwen3moe"}) {
    for (const bool is_fused : {false, true}) {
      INFO(family << (is_fused ? " with gate and up in one tensor" : ""));
      GgufBytes keys = small_keys(family);
      keys.u32(family + ".expert_count", 3).u32(family + ".expert_used_count", 2);
      keys.u32(family + ".expert_feed_forward_length", 3);
      FamilyFile file(keys);
      add_qkv(add_ends(file))
          .layer({{"attn_norm.weight", {2}},
                  {"ffn_norm.weight", {2}},
                  {"ffn_gate_inp.weight", {3, 2}},
                  {"ffn_down_exps.weight", {3, 2, 3}}});
      if (family == "qwen3moe") {
        file.layer({{"attn_q_norm.weight", {4}}, {"attn_k_norm.weight", {4}}});
      }
      if (is_fused) {
        file.layer({{"ffn_gate_up_exps.weight", {3, 6, 2}}});
      } else {
        file.layer({{"ffn_gate_exps.weight", {3, 3, 2}}, {"ffn_up_exps.weight", {3, 3, 2}}});
      }
      file.open();
      CHECK(file.read("mlp.gate.weight") == file.part("blk.0.ffn_gate_inp.weight", 0, 6));
      const std::string fused = "blk.0.ffn_gate_up_exps.weight";
      for (std::size_t i = 0; i < 3; ++i) {
        const std::string expert = "mlp.experts." + std::to_string(i);
        CHECK(file.read(expert + ".gate_proj.weight") ==
              (is_fused ? file.part(fused, 12 * i, 6)
                        : file.part("blk.0.ffn_gate_exps.weight", 6 * i, 6)));
        CHECK(file.read(expert + ".up_proj.weight") ==
              (is_fused ? file.part(fused, 12 * i + 6, 6)
                        : file.part("blk.0.ffn_up_exps.weight", 6 * i, 6)));
        CHECK(file.read(expert + ".down_proj.weight") ==
              file.part("blk.0.ffn_down_exps.weight", 6 * i, 6));
      }
    }
  }
}

TEST_CASE("quantised experts keep their blocks", "[core][gguf]") {
  constexpr std::size_t kBlock = 34;  // of Q8_0: a half, then 32 bytes
  GgufBytes bytes;
  bytes.text("general.architecture", "llama").u32("llama.block_count", 1);
  bytes.u32("llama.embedding_length", 32).u32("llama.feed_forward_length", 32);
  bytes.u32("llama.context_length", 8).u32("llama.attention.head_count", 1);
  bytes.u32("llama.attention.key_length", 2).u32("llama.expert_count", 3);
  bytes.u32("llama.expert_used_count", 1);
  bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  bytes.floats32("token_embd.weight", {5, 32}, zeros(160));
  for (const char* norm :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    bytes.floats32(norm, {32}, zeros(32));
  }
  for (const char* matrix : {"attn_q", "attn_k", "attn_v"}) {
    bytes.floats32("blk.0." + std::string(matrix) + ".weight", {2, 32}, zeros(64));
  }
  bytes.floats32("blk.0.attn_output.weight", {32, 2}, zeros(64));
  bytes.floats32("blk.0.ffn_gate_inp.weight", {3, 32}, zeros(96));
  std::string blocks;
  for (std::size_t i = 0; i < 3 * 32 * kBlock; ++i) {
    blocks += static_cast<char>(i % kBlock == 1 ? 0x3c : (i * i + 7 * i / kBlock) % 251);
  }
  for (const char* matrix : {"ffn_gate_exps", "ffn_up_exps", "ffn_down_exps"}) {
    bytes.tensor("blk.0." + std::string(matrix) + ".weight", 8, {32, 32, 3}, blocks);
  }
  const ScratchFolder folder;
  const std::string path = folder.write("m.gguf", bytes.bytes());
  const ModelConfig model = find_model(path, {});
  const auto source = open_gguf_weights(path, model);
  for (std::size_t expert = 0; expert < 3; ++expert) {
    const WeightSpec spec =
        weight_spec(model, 0, "mlp.experts." + std::to_string(expert) + ".up_proj");
    CHECK(source->type(spec) == TensorType::Q8_0);
    std::vector<std::byte> copied(2 * kBlock);
    source->read_blocks(spec, 5, 7, copied.data());
    const auto stored = bytes_of_text(blocks).subspan((32 * expert + 5) * kBlock, 2 * kBlock);
    CHECK(std::equal(copied.begin(), copied.end(), stored.begin()));
    std::vector<float> read(64), expected(64);
    source->read(spec, 5, 7, read.data());
    dequantise(TensorType::Q8_0, stored.data(), 2, expected.data());
    CHECK(read == expected);
  }
}

TEST_CASE("a bias of a GGUF file has its own length and is not quantised", "[core][gguf]") {
  const ScratchFolder folder;
  const auto error = [&](const auto& add_bias) {
    GgufBytes bytes = small_keys("qwen2");
    bytes.floats32("token_embd.weight", {5, 2}, zeros(10));
    bytes.floats32("blk.0.attn_norm.weight", {2}, zeros(2));
    bytes.floats32("blk.0.attn_q.weight", {8, 2}, zeros(16));
    add_bias(bytes);
    const std::string path = folder.write("m.gguf", bytes.bytes());
    const ModelConfig model = find_model(path, {});
    const std::string text = error_of([&] { open_gguf_weights(path, model); });
    return text.substr(std::min(text.size(), path.size()));
  };
  CHECK(error([](GgufBytes&) {}) ==
        ": tensor 'blk.0.attn_q.bias': is missing; allowed: every tensor of qwen2");
  CHECK(error([](GgufBytes& b) { b.floats32("blk.0.attn_q.bias", {4}, zeros(4)); }) ==
        ": tensor 'blk.0.attn_q.bias': has shape [4]; allowed: [8], as the metadata requires");
  CHECK(error([](GgufBytes& b) { b.tensor("blk.0.attn_q.bias", 24, {8}, "12345678"); }) ==
        ": tensor 'blk.0.attn_q.bias': has type I8; allowed: F32, F16, BF16");
}

}  // namespace
}  // namespace metronome::TEST_FILE
