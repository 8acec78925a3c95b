// SPDX-License-Identifier: Apache-2.0
// GGUF files of architectures that are only simulated: their shapes, and the bytes of their
// tensors.
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "models/weights/gguf_config.h"
#include "models/weights/gguf_formats.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

// Types of tensors by ggml's number, with the weights and the bytes of a block.
struct Stored {
  std::uint32_t id;
  std::uint64_t weights;
  std::uint64_t bytes;
};
constexpr Stored kF32 = {0, 1, 4}, kF16 = {1, 1, 2}, kQ8 = {8, 32, 34}, kQ2K = {10, 256, 84},
                 kMxfp4 = {39, 32, 17};

// A file of tensors without content, and their sums.
struct Model {
  GgufBytes bytes;
  std::string family;
  std::int64_t num_params = 0;
  std::int64_t num_bytes = 0;

  explicit Model(std::string name) : family(std::move(name)) {
    bytes.text("general.architecture", family);
  }
  Model& set(const std::string& key, std::uint32_t value) {
    bytes.u32(family + "." + key, value);
    return *this;
  }
  // Outermost dimension first.
  Model& add(const std::string& name, const Stored& type, const std::vector<std::uint64_t>& shape) {
    const std::uint64_t count =
        std::accumulate(shape.begin(), shape.end(), std::uint64_t{1}, std::multiplies<>());
    const std::uint64_t size = count / type.weights * type.bytes;
    bytes.tensor(name, type.id, {shape.rbegin(), shape.rend()}, std::string(size, '\0'));
    num_params += static_cast<std::int64_t>(count);
    num_bytes += static_cast<std::int64_t>(size);
    return *this;
  }
  ModelConfig config() const {
    const std::string stored = bytes.bytes();
    return read_gguf_config(GgufFile(bytes_of_text(stored), "m.gguf"), "m");
  }
  std::string error() const {
    return error_of([this] { config(); });
  }
};

std::string layer(int number) { return "blk." + std::to_string(number) + "."; }

// 4 heads of 64 for a width of 256.
Model with_sizes(const std::string& family, std::uint32_t num_layers) {
  Model model(family);
  model.set("block_count", num_layers).set("embedding_length", 256).set("context_length", 1024);
  model.set("attention.head_count", 4).set("attention.head_count_kv", 2);
  model.set("attention.key_length", 64).set("feed_forward_length", 512);
  return model;
}

void add_tables(Model& model, const Stored& type) {
  model.add("token_embd.weight", type, {64, 256}).add("output.weight", type, {64, 256});
  model.add("output_norm.weight", kF32, {256});
}

void add_attention(Model& model, int number, const Stored& type) {
  const std::string in = layer(number);
  model.add(in + "attn_norm.weight", kF32, {256}).add(in + "ffn_norm.weight", kF32, {256});
  model.add(in + "attn_q.weight", type, {256, 256}).add(in + "attn_k.weight", type, {128, 256});
  model.add(in + "attn_v.weight", type, {128, 256})
      .add(in + "attn_output.weight", type, {256, 256});
}

void add_mlp(Model& model, int number, const Stored& type, std::uint64_t width = 512) {
  const std::string in = layer(number);
  model.add(in + "ffn_gate.weight", type, {width, 256})
      .add(in + "ffn_up.weight", type, {width, 256});
  model.add(in + "ffn_down.weight", type, {256, width});
}

void add_experts(Model& model, int number, const Stored& type) {
  const std::string in = layer(number);
  model.add(in + "ffn_gate_inp.weight", kF32, {8, 256});
  model.add(in + "ffn_gate_exps.weight", type, {8, 96, 256});
  model.add(in + "ffn_up_exps.weight", type, {8, 96, 256});
  model.add(in + "ffn_down_exps.weight", type, {8, 256, 96});
}

TEST_CASE("an unknown architecture of a GGUF file is simulated by its shape", "[core][gguf]") {
  Model file = with_sizes("newest", 2);
  add_tables(file, kQ8);
  for (const int i : {0, 1}) {
    add_attention(file, i, kQ2K);
    add_mlp(file, i, kQ8);
  }
  const ModelConfig model = file.config();
  CHECK(model.architecture == "newest");
  CHECK(model.n_layers == 2);
  CHECK(model.n_kv_heads == 2);
  CHECK(model.head_dim == 64);
  CHECK(model.ffn_dim == 512);
  CHECK(model.n_experts == 0);
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
  CHECK(model.bytes_per_linear_weight() > 0.32);  // Q2_K has 84 bytes for 256
  CHECK(model.bytes_per_linear_weight() < 0.33);
  CHECK(model.bytes_per_mlp_weight() == 34.0 / 32);
  CHECK(model.approximation ==
        "newest is an unknown architecture: it is simulated as a dense model with attention of "
        "grouped queries, by the keys and tensors of its file; its other parts cost nothing");
  CHECK(model.unsupported.starts_with(
      "general.architecture: 'newest' is only simulated; allowed: llama, "));
}

TEST_CASE("gpt-oss in a GGUF file", "[core][gguf]") {
  Model file = with_sizes("gpt-oss", 4);
  file.set("expert_count", 8).set("expert_used_count", 3).set("attention.sliding_window", 128);
  add_tables(file, kQ8);
  for (int i = 0; i < 4; ++i) {
    add_attention(file, i, kQ8);
    add_experts(file, i, kMxfp4);
    const std::string in = layer(i);
    file.add(in + "attn_q.bias", kF32, {256}).add(in + "attn_k.bias", kF32, {128});
    file.add(in + "attn_v.bias", kF32, {128}).add(in + "attn_output.bias", kF32, {256});
    file.add(in + "attn_sinks.weight", kF32, {4}).add(in + "ffn_gate_inp.bias", kF32, {8});
    file.add(in + "ffn_gate_exps.bias", kF32, {8, 96}).add(in + "ffn_up_exps.bias", kF32, {8, 96});
    file.add(in + "ffn_down_exps.bias", kF32, {8, 256});
  }
  const ModelConfig model = file.config();
  CHECK(model.architecture == "GptOssForCausalLM");
  CHECK(model.approximation.empty());
  CHECK(model.n_experts == 8);
  CHECK(model.n_experts_per_token == 3);
  CHECK(model.expert_ffn_dim == 96);
  CHECK(model.global_layer_interval == 2);
  CHECK(model.sliding_window == 128);
  CHECK(model.has_attention_sinks);
  CHECK(model.has_expert_biases);
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
  CHECK(model.expert_format == WeightFormat::Mxfp4);
  CHECK(model.bytes_per_expert_weight() == 17.0 / 32);
}

TEST_CASE("dense layers, shared experts and further tokens in a GGUF file", "[core][gguf]") {
  Model file = with_sizes("newest", 4);
  file.set("nextn_predict_layers", 1).set("expert_used_count", 2).set("expert_group_count", 4);
  file.set("expert_group_used_count", 2);
  add_tables(file, kF16);
  for (int i = 0; i < 3; ++i) {
    add_attention(file, i, kF16);
    if (i == 0) {
      add_mlp(file, i, kF16, 1024);
      continue;
    }
    add_experts(file, i, kQ8);
    const std::string in = layer(i);
    file.add(in + "ffn_gate_shexp.weight", kQ8, {64, 256});
    file.add(in + "ffn_up_shexp.weight", kQ8, {64, 256});
    file.add(in + "ffn_down_shexp.weight", kQ8, {256, 64});
    file.add(in + "exp_probs_b.bias", kF32, {8});
  }
  Model predicting = file;
  add_attention(predicting, 3, kF16);
  add_experts(predicting, 3, kQ8);
  predicting.add(layer(3) + "nextn.eh_proj.weight", kQ8, {256, 512});
  const ModelConfig model = predicting.config();
  CHECK(model.n_layers == 3);
  CHECK(model.n_dense_layers == 1);
  CHECK(model.ffn_dim == 1024);
  CHECK(model.shared_expert_ffn_dim == 64);
  CHECK(model.has_sigmoid_router);
  CHECK(model.n_expert_groups == 4);
  CHECK(model.n_groups_per_token == 2);
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
  CHECK(model.linear_format == WeightFormat::Plain);
}

TEST_CASE("latent attention in a GGUF file", "[core][gguf]") {
  Model file("deepseek2");
  file.set("block_count", 1).set("embedding_length", 256).set("context_length", 1024);
  file.set("attention.head_count", 4).set("attention.head_count_kv", 1);
  file.set("attention.key_length", 96).set("attention.value_length", 64);
  file.set("attention.key_length_mla", 64).set("attention.value_length_mla", 32);
  file.set("attention.kv_lora_rank", 64).set("attention.q_lora_rank", 128);
  file.set("rope.dimension_count", 32).set("feed_forward_length", 512);
  add_tables(file, kQ8);
  add_mlp(file, 0, kQ8);
  const std::string in = layer(0);
  file.add(in + "attn_norm.weight", kF32, {256}).add(in + "ffn_norm.weight", kF32, {256});
  file.add(in + "attn_q_a_norm.weight", kF32, {128}).add(in + "attn_kv_a_norm.weight", kF32, {64});
  file.add(in + "attn_q_a.weight", kQ8, {128, 256}).add(in + "attn_q_b.weight", kQ8, {256, 128});
  file.add(in + "attn_kv_a_mqa.weight", kQ8, {96, 256});
  file.add(in + "attn_k_b.weight", kQ8, {4, 64, 32}).add(in + "attn_v_b.weight", kQ8, {4, 32, 64});
  file.add(in + "attn_output.weight", kQ8, {256, 128});
  const ModelConfig model = file.config();
  CHECK(model.architecture == "DeepseekV3ForCausalLM");
  CHECK(model.latent_attention.kv_rank == 64);
  CHECK(model.latent_attention.q_rank == 128);
  CHECK(model.latent_attention.nope_dim == 32);
  CHECK(model.latent_attention.rope_dim == 32);
  CHECK(model.latent_attention.value_dim == 32);
  CHECK(model.kv_bytes_per_token() == (64 + 32) * 2);
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
}

TEST_CASE("layers with a state in a GGUF file", "[core][gguf]") {
  Model file = with_sizes("qwen35", 4);
  file.set("ssm.conv_kernel", 4).set("ssm.inner_size", 128).set("ssm.state_size", 32);
  file.set("ssm.time_step_rank", 4).set("ssm.group_count", 2);
  add_tables(file, kQ8);
  for (int i = 0; i < 4; ++i) {
    const std::string in = layer(i);
    add_mlp(file, i, kQ8);
    file.add(in + "attn_norm.weight", kF32, {256});
    file.add(in + "post_attention_norm.weight", kF32, {256});
    if (i == 3) {
      file.add(in + "attn_q.weight", kQ8, {512, 256}).add(in + "attn_k.weight", kQ8, {128, 256});
      file.add(in + "attn_v.weight", kQ8, {128, 256});
      file.add(in + "attn_output.weight", kQ8, {256, 256});
      file.add(in + "attn_q_norm.weight", kF32, {64}).add(in + "attn_k_norm.weight", kF32, {64});
      continue;
    }
    file.add(in + "attn_qkv.weight", kQ8, {256, 256}).add(in + "attn_gate.weight", kQ8, {128, 256});
    file.add(in + "ssm_conv1d.weight", kF32, {256, 4}).add(in + "ssm_dt.bias", kF32, {4});
    file.add(in + "ssm_a", kF32, {4}).add(in + "ssm_norm.weight", kF32, {32});
    file.add(in + "ssm_alpha.weight", kQ8, {4, 256}).add(in + "ssm_beta.weight", kQ8, {4, 256});
    file.add(in + "ssm_out.weight", kQ8, {256, 128});
  }
  const ModelConfig model = file.config();
  CHECK(model.architecture == "Qwen3_5ForCausalLM");
  CHECK(model.linear_attention.layers == std::vector<std::int64_t>{0, 1, 2});
  CHECK(model.has_gated_attention);
  CHECK(model.has_qk_norm);
  CHECK(!model.has_post_norms);
  CHECK(model.state_bytes() == 3 * 4 * (4 * 32 * 32 + 3 * 256));
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
}

TEST_CASE("windows of GGUF files by a list, a number and a default", "[core][gguf]") {
  const auto windows_of = [](const std::string& family, const auto& change) {
    Model file = with_sizes(family, 4);
    file.set("attention.sliding_window", 64);
    add_tables(file, kF32);
    for (int i = 0; i < 4; ++i) {
      add_attention(file, i, kF32);
      add_mlp(file, i, kF32);
    }
    change(file);
    const ModelConfig model = file.config();
    std::vector<std::int64_t> layers;
    for (std::int64_t i = 0; i < 4; ++i) {
      if (model.is_window_layer(i)) layers.push_back(i);
    }
    return layers;
  };
  using Layers = std::vector<std::int64_t>;
  const auto nothing = [](Model&) {};
  CHECK(windows_of("newest", nothing).empty());
  CHECK(windows_of("cohere2", nothing) == Layers{0, 1, 2});
  CHECK(windows_of("smallthinker", nothing) == Layers{1, 2, 3});
  const auto by_number = [](std::uint32_t number) {
    return [number](Model& file) { file.set("attention.sliding_window_pattern", number); };
  };
  CHECK(windows_of("newest", by_number(2)) == Layers{0, 2});
  CHECK(windows_of("newest", by_number(0)) == Layers{0, 1, 2, 3});
  CHECK(windows_of("cohere2", by_number(1)).empty());
  CHECK(windows_of("newest", [](Model& file) {
          file.bytes.array("newest.attention.sliding_window_pattern", gguf_type::kBool, 4,
                           std::string("\x00\x01\x01\x00", 4));
        }) == Layers{1, 2});
}

TEST_CASE("what no shape describes in a GGUF file is named", "[core][gguf]") {
  Model convolution = with_sizes("lfm2", 1);
  add_tables(convolution, kF32);
  convolution.add(layer(0) + "shortconv.in_proj.weight", kF32, {768, 256});
  CHECK(convolution.error() ==
        "m.gguf: general.architecture: 'lfm2': layer 0 has no attention; allowed: layers of "
        "attention or of Gated DeltaNet, each with an MLP or experts");
  Model mamba = with_sizes("jamba", 1);
  add_tables(mamba, kF32);
  mamba.add(layer(0) + "ssm_conv1d.weight", kF32, {256, 4});
  CHECK(mamba.error().starts_with(
      "m.gguf: general.architecture: 'jamba': layer 0 has a state of another kind; allowed: "));
  Model wider = with_sizes("newest", 1);
  add_tables(wider, kF32);
  add_attention(wider, 0, kF32);
  add_mlp(wider, 0, kF32);
  wider.add("per_layer_token_embd.weight", kF32, {64, 1024});
  CHECK(wider.error() ==
        "m.gguf: general.architecture: 'newest' has parts of another shape: attention, MLPs and "
        "experts would have 0.5 M parameters, and the file's tensors have 0.6 M; allowed: a model "
        "of which they are 99 %");
  Model heads("gemma4");
  heads.set("block_count", 1).set("embedding_length", 256).set("context_length", 1024);
  heads.set("attention.head_count", 4);
  heads.bytes.i32s("gemma4.attention.head_count_kv", {0, 2, 4});
  add_tables(heads, kF32);
  CHECK(heads.error() ==
        "m.gguf: gemma4.attention.head_count_kv: differs from layer to layer; allowed: one number "
        "for all that have one");
  Model encoder = with_sizes("bert", 1);
  add_tables(encoder, kF32);
  encoder.bytes.truth("bert.attention.causal", false);
  CHECK(encoder.error().starts_with("m.gguf: general.architecture: 'bert' is not supported"));
  Model layers = with_sizes("newest", 5000);
  add_tables(layers, kF32);
  CHECK(layers.error() ==
        "m.gguf: newest.block_count: is 5000 with 0 layers that predict further tokens; allowed: "
        "1 to 4096 others");
}

TEST_CASE("a name of a GGUF tensor has a layer, a part and an ending", "[core][gguf]") {
  const GgufName whole = split_gguf_name("blk.12.attn_q.weight");
  CHECK(whole.layer == 12);
  CHECK(whole.part == "attn_q");
  CHECK(whole.ending == "weight");
  const GgufName plain = split_gguf_name("blk.0.ssm_a");
  CHECK(plain.layer == 0);
  CHECK(plain.part == "ssm_a");
  CHECK(plain.ending.empty());
  for (const char* name : {"output.weight", "blk.x.weight", "blk.", "blk.99999999999999999999.a"}) {
    CHECK(split_gguf_name(name).layer == -1);
  }
}

TEST_CASE("the weights of a computed family have the bytes of its tensors", "[core][gguf]") {
  Model file = with_sizes("llama", 2);
  file.bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  add_tables(file, kQ8);
  for (const int i : {0, 1}) {
    add_attention(file, i, kQ2K);
    add_mlp(file, i, i == 0 ? kQ2K : kQ8);
  }
  const ModelConfig model = file.config();
  CHECK(model.unsupported.empty());
  CHECK(model.n_params() == file.num_params);
  CHECK(model.weight_bytes() == file.num_bytes);
  CHECK(model.bytes_per_weight == 2);
}

}  // namespace
}  // namespace metronome::TEST_FILE
