// SPDX-License-Identifier: Apache-2.0
// Configuration and weights of GGUF files, beside those of the folders that they are made of.
#include <cmath>
#include <cstring>
#include <numbers>
#include <string>
#include <vector>

#include "core/model/model_catalogue.h"
#include "models/weights/gguf_config.h"
#include "models/weights/gguf_weights.h"
#include "models/weights/quantised_blocks.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"
#include "tests/models/weights/gguf_models.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

std::string config_error(const GgufBytes& bytes) {
  return error_of([&] { config_of(bytes); });
}

TEST_CASE("a GGUF file's configuration is that of its folder", "[core][gguf]") {
  GgufBytes llama = keys_of("llama");
  with_table(llama).floats32("output.weight", {7, 6}, zeros(42));
  llama.u32("tokenizer.ggml.eos_token_id", 2).u32("llama.vocab_size", 7);
  llama.u32("llama.rope.dimension_count", 4);
  CHECK(config_of(llama) ==
        folder_config(R"("architectures": ["LlamaForCausalLM"], "rope_theta": 50000.0,
                         "eos_token_id": 2)"));

  GgufBytes linear = keys_of("qwen3");
  with_table(linear).text("qwen3.rope.scaling.type", "linear").f32("qwen3.rope.scaling.factor", 4);
  CHECK(config_of(linear) ==
        folder_config(R"("architectures": ["Qwen3ForCausalLM"], "tie_word_embeddings": true,
                         "rope_theta": 50000.0, "rope_scaling": {"type": "linear", "factor": 4})"));

  GgufBytes gemma = keys_of("gemma3");
  with_table(gemma).u32("gemma3.attention.sliding_window", 16);
  gemma.u32("tokenizer.ggml.eos_token_id", 1);
  const std::string folder = R"("architectures": ["Gemma3ForCausalLM"], "sliding_window": 16,
                               "query_pre_attn_scalar": 4, "rope_theta": 50000.0, )";
  CHECK(config_of(gemma) == folder_config(folder + R"("sliding_window_pattern": 6)"));
  GgufBytes other = gemma;
  other.f32("gemma3.rope.freq_base_swa", 500).u32("gemma3.attention.sliding_window_pattern", 2);
  CHECK(config_of(other) ==
        folder_config(folder + R"("sliding_window_pattern": 2, "rope_local_base_freq": 500.0)"));
  other = gemma;
  other.array("gemma3.attention.sliding_window_pattern", gguf_type::kBool, 2,
              std::string("\x01\x00", 2));
  CHECK(config_of(other).global_layer_interval == 2);
}

TEST_CASE("missing keys of a GGUF file get llama.cpp's defaults", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("general.architecture", "llama").u32("llama.block_count", 1);
  bytes.u32("llama.embedding_length", 8).u32("llama.context_length", 32);
  bytes.i32s("llama.feed_forward_length", {5, 5}).u32("llama.attention.head_count", 2);
  bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f);
  bytes.texts("tokenizer.ggml.tokens", {"a", "b", "c"});
  const ModelConfig model = config_of(bytes);
  CHECK(model.n_kv_heads == 2);
  CHECK(model.head_dim == 4);
  CHECK(model.ffn_dim == 5);
  CHECK(model.rope_theta == 1e4);
  CHECK(model.norm_eps == 1e-6);
  CHECK(model.vocab_size == 3);
  CHECK(model.has_tied_embeddings);
  CHECK(model.bytes_per_weight == 2);
  CHECK(model.unsupported.empty());
}

TEST_CASE("what a GGUF file lacks is one line", "[core][gguf]") {
  CHECK(config_error(GgufBytes().u32("a", 1))
            .starts_with("m.gguf: general.architecture: is missing; allowed: llama, "));
  CHECK(config_error(GgufBytes().text("general.architecture", "qwen33"))
            .starts_with("m.gguf: general.architecture: 'qwen33' is not supported, did you mean "
                         "'qwen3'?; allowed: "
                         "llama, qwen2, qwen3, "));
  CHECK(config_error(GgufBytes().text("general.architecture", "llama")) ==
        "m.gguf: llama.block_count: is missing; allowed: an integer");
  CHECK(config_error(
            GgufBytes().text("general.architecture", "llama").text("llama.block_count", "2")) ==
        "m.gguf: llama.block_count: is a STRING; allowed: an integer");
  GgufBytes bytes = keys_of("llama");
  CHECK(config_error(bytes) == "m.gguf: llama.vocab_size: is missing; allowed: an integer");
  GgufBytes odd;
  odd.text("general.architecture", "llama").u32("llama.block_count", 1);
  odd.u32("llama.embedding_length", 9).u32("llama.context_length", 32);
  odd.i32s("llama.feed_forward_length", {5, 6}).u32("llama.attention.head_count", 2);
  CHECK(config_error(odd) ==
        "m.gguf: llama.feed_forward_length: differs from layer to layer; allowed: one number for "
        "all");
  GgufBytes large = keys_of("llama");
  with_table(large).add("llama.attention.value_length", gguf_type::kInt64, low_bytes(~0ULL, 8));
  CHECK(config_error(large) == "m.gguf: llama.attention.value_length: is -1; allowed: 0 to 2^40");
  GgufBytes shape;
  shape.text("general.architecture", "llama").u32("llama.block_count", 1);
  shape.u32("llama.embedding_length", 1 << 30).u32("llama.context_length", 32);
  shape.u32("llama.feed_forward_length", 5).u32("llama.attention.head_count", 2);
  shape.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f).u32("llama.vocab_size", 3);
  CHECK(config_error(shape) == "m.gguf: hidden_dim: is 1073741824; allowed: 1 to 1048576");
  for (const float base : {-1.0f, 0.0f, 0.5f}) {
    GgufBytes turns;
    turns.text("general.architecture", "llama").u32("llama.block_count", 1);
    turns.u32("llama.embedding_length", 8).u32("llama.context_length", 32);
    turns.u32("llama.feed_forward_length", 5).u32("llama.attention.head_count", 2);
    turns.f32("llama.attention.layer_norm_rms_epsilon", 1e-6f).u32("llama.vocab_size", 3);
    turns.f32("llama.rope.freq_base", base).floats32("rope_freqs.weight", {2}, {1, 8});
    CHECK(config_error(turns).starts_with("m.gguf: rope_theta: is "));
  }
}

TEST_CASE("what no executor computes of a GGUF file is named", "[core][gguf]") {
  const auto unsupported = [](const auto& change, const std::string& family = "llama") {
    GgufBytes bytes = keys_of(family);
    change(with_table(bytes));
    return config_of(bytes).unsupported;
  };
  CHECK(unsupported([](GgufBytes& b) { b.u32("llama.rope.dimension_count", 2); }) ==
        "llama.rope.dimension_count: rotation of such a part of each head is not supported; "
        "allowed: 4");
  CHECK(unsupported([](GgufBytes& b) { b.u32("phi3.rope.dimension_count", 3); }, "phi3") ==
        "phi3.rope.dimension_count: rotation of such a part of each head is not supported; "
        "allowed: 4, even numbers below");
  CHECK(unsupported([](GgufBytes& b) { b.text("llama.rope.scaling.type", "dynamic"); }) ==
        "llama.rope.scaling.type: 'dynamic' is not supported; allowed: none, linear, yarn, "
        "longrope");
  CHECK(unsupported([](GgufBytes& b) { b.text("llama.rope.scaling.type", "longrope"); }) ==
        "rope_factors_short.weight: is missing; allowed: a divisor for each rotated pair");
  CHECK(unsupported([](GgufBytes& b) {
          b.text("llama.rope.scaling.type", "yarn").f32("llama.rope.scaling.yarn_ext_factor", 0.5);
        }) == "llama.rope.scaling.yarn_ext_factor: is not supported; allowed: 1");
  CHECK(unsupported([](GgufBytes& b) { b.u32("qwen2.attention.sliding_window", 8); }, "qwen2") ==
        "qwen2.attention.sliding_window: a window is not supported in this family; allowed: 0");
  CHECK(unsupported(
            [](GgufBytes& b) {
              b.u32("smollm3.expert_count", 4).u32("smollm3.expert_used_count", 2);
            },
            "smollm3") ==
        "smollm3.expert_count: experts are not supported in this family; allowed: 0");
  CHECK(unsupported([](GgufBytes& b) { b.truth("llama.attention.causal", false); }) ==
        "llama.attention.causal: attention to later tokens is not supported; allowed: true");
  CHECK(unsupported([](GgufBytes& b) { b.truth("llama.attention.causal", true); }).empty());
  CHECK(unsupported([](GgufBytes& b) { b.truth("granite.rope.scaling.finetuned", false); },
                    "granite") ==
        "granite.rope.scaling.finetuned: a model without RoPE is not supported; allowed: true");
  CHECK(
      unsupported([](GgufBytes& b) { b.floats32("blk.0.attn_q.bias", {16}, zeros(16)); }).empty());
  CHECK(unsupported([](GgufBytes& b) { b.floats32("blk.0.attn_norm.bias", {6}, zeros(6)); }) ==
        "tensor 'blk.0.attn_norm.bias': such a bias is not supported; allowed: biases of "
        "attention and MLP");
  CHECK(unsupported([](GgufBytes& b) {
          b.floats32("rope_freqs.weight", {2}, {2, 3});
        }).starts_with("rope_freqs.weight: holds other divisors than those of Llama 3"));
  CHECK(unsupported([](GgufBytes& b) { b.floats32("rope_freqs.weight", {2}, {1, 1}); }).empty());
}

TEST_CASE("Llama 3's scaling is found in its divisors", "[core][gguf]") {
  struct Case {
    double factor;
    std::int64_t positions;
    double theta;
  };
  for (const Case& known : {Case{8, 8192, 500000}, Case{32, 8192, 500000}, Case{4, 32, 100}}) {
    // As conversion/llama.py of llama.cpp writes them, in its own order of operations.
    constexpr int kDim = 128;
    std::vector<float> divisors;
    for (int i = 0; i < kDim; i += 2) {
      const double frequency = 1.0 / std::pow(known.theta, static_cast<double>(i) / kDim);
      const double wavelength = 2 * std::numbers::pi / frequency;
      const auto positions = static_cast<double>(known.positions);
      const double smooth = (positions / wavelength - 1) / (4 - 1);
      double divisor = 1 / ((1 - smooth) / known.factor + smooth);
      if (wavelength < positions / 4) divisor = 1;
      if (wavelength > positions) divisor = known.factor;
      divisors.push_back(static_cast<float>(divisor));
    }
    GgufBytes bytes;
    bytes.text("general.architecture", "llama").u32("llama.block_count", 1);
    bytes.u32("llama.embedding_length", kDim).u32("llama.context_length", 131072);
    bytes.u32("llama.feed_forward_length", 5).u32("llama.attention.head_count", 1);
    bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f).u32("llama.vocab_size", 3);
    bytes.f32("llama.rope.freq_base", static_cast<float>(known.theta));
    bytes.floats32("rope_freqs.weight", {kDim / 2}, divisors);
    const RopeScaling scaling = config_of(bytes).rope_scaling;
    CHECK(scaling.kind == RopeScaling::Kind::Llama3);
    CHECK(scaling.factor == known.factor);
    CHECK(scaling.low_freq_factor == 1);
    CHECK(scaling.high_freq_factor == 4);
    CHECK(scaling.original_max_positions == known.positions);
  }
}

std::vector<std::int32_t> eos_of(GgufBytes& bytes) {
  const std::string stored = bytes.bytes();
  return gguf_eos_token_ids(GgufFile(bytes_of_text(stored), "m.gguf"));
}

TEST_CASE("tokens that end a text, by id and by name", "[core][gguf]") {
  using Ids = std::vector<std::int32_t>;
  const std::vector<std::string> tokens = {"<|im_end|>", "a", "</s>", "<eos>", "<|end|>", "b"};
  GgufBytes bytes;
  bytes.texts("tokenizer.ggml.tokens", tokens).u32("tokenizer.ggml.eos_token_id", 5);
  CHECK(eos_of(bytes) == Ids{5, 0, 3, 4});
  bytes.u32("tokenizer.ggml.eot_token_id", 1).i32s("tokenizer.ggml.token_type", {3, 1, 3, 1, 1, 1});
  CHECK(eos_of(bytes) == Ids{5, 0, 1, 2, 3, 4});
  // <|end|> ends a part of an answer where others end it.
  GgufBytes parts;
  parts.texts("tokenizer.ggml.tokens", {"<|end|>", "<|return|>", "<|call|>"});
  CHECK(eos_of(parts) == Ids{1, 2});
  GgufBytes none;
  none.text("a", "b");
  CHECK(eos_of(none).empty());
  GgufBytes far;
  far.texts("tokenizer.ggml.tokens", tokens).u32("tokenizer.ggml.eos_token_id", 6);
  CHECK(error_of([&] { eos_of(far); }) ==
        "m.gguf: tokenizer.ggml.eos_token_id: is 6; allowed: the id of a token");
}

std::string gguf_name(std::string name, bool is_gemma) {
  const std::pair<const char*, const char*> parts[] = {
      {"model.embed_tokens", "token_embd"},
      {"model.norm", "output_norm"},
      {"lm_head", "output"},
      {"model.layers", "blk"},
      {"input_layernorm", "attn_norm"},
      {"self_attn.q_proj", "attn_q"},
      {"self_attn.k_proj", "attn_k"},
      {"self_attn.v_proj", "attn_v"},
      {"self_attn.o_proj", "attn_output"},
      {"self_attn.q_norm", "attn_q_norm"},
      {"self_attn.k_norm", "attn_k_norm"},
      {"post_attention_layernorm", is_gemma ? "post_attention_norm" : "ffn_norm"},
      {"pre_feedforward_layernorm", "ffn_norm"},
      {"post_feedforward_layernorm", "post_ffw_norm"},
      {"mlp.gate_proj", "ffn_gate"},
      {"mlp.up_proj", "ffn_up"},
      {"mlp.down_proj", "ffn_down"}};
  for (const auto& [folder, gguf] : parts) {
    const std::size_t at = name.find(folder);
    if (at != name.npos) name.replace(at, std::string(folder).size(), gguf);
  }
  return name;
}

// A file of the family with random weights, which are returned by the names of the folder.
std::vector<std::pair<WeightSpec, std::vector<float>>> add_weights(GgufBytes& bytes,
                                                                   const std::string& family,
                                                                   Rng& rng) {
  GgufBytes keys = keys_of(family);
  keys.u32(family + ".vocab_size", 7);
  const ModelConfig model = config_of(keys);
  std::vector<std::pair<WeightSpec, std::vector<float>>> weights;
  for (const WeightSpec& spec : weight_specs(model)) {
    const auto rows = static_cast<std::uint64_t>(spec.rows);
    const auto cols = static_cast<std::uint64_t>(spec.cols);
    std::vector<float> values;
    for (std::uint64_t i = 0; i < rows * cols; ++i) {
      // Values of bfloat16, so that 1 + w is exact in float32.
      values.push_back(static_cast<float>(draw(rng, -200, 200)) / 128.0f);
    }
    std::vector<float> stored = values;
    const bool is_rotated = spec.name.find("q_proj") != std::string::npos ||
                            spec.name.find("k_proj") != std::string::npos;
    if (family == "llama" && is_rotated) stored = permuted(values, 4, cols);
    std::vector<std::uint64_t> shape = {rows, cols};
    if (spec.role == WeightRole::Norm) {
      shape = {cols};
      for (float& value : stored) value += family == "gemma3" ? 1.0f : 0.0f;
    }
    bytes.floats32(gguf_name(spec.name, family == "gemma3"), shape, stored);
    weights.emplace_back(spec, std::move(values));
  }
  return weights;
}

TEST_CASE("a GGUF file's weights are those of its folder", "[core][gguf]") {
  const ScratchFolder folder;
  const std::uint64_t seed = 21;
  CAPTURE(seed);
  Rng rng(seed, "gguf weights");
  for (const std::string family : {"llama", "qwen3", "gemma3"}) {
    GgufBytes bytes = keys_of(family);
    const auto expected = add_weights(bytes, family, rng);
    bytes.floats32("blk.0.attn_gate.weight", {2}, {1, 2});
    bytes.floats32("blk.0.attn_rot_embd.weight", {2}, {1, 2});
    bytes.floats32("rope_factors_short.weight", {2}, {1, 2});
    bytes.floats32("token_embd_norm.weight", {2}, {1, 2});
    const std::string path = folder.write(family + ".gguf", bytes.bytes());
    const ModelConfig model = find_model(path, {});
    CHECK(model.name == family);
    CHECK(find_model_folder(path).empty());
    CHECK(find_gguf_file(path) == path);
    const auto source = open_gguf_weights(path, model);
    for (const auto& [spec, values] : expected) {
      INFO(family << " " << spec.name);
      CHECK(source->type(spec) == TensorType::Float32);
      std::vector<float> read(values.size());
      source->read(spec, 0, spec.rows, read.data());
      CHECK(read == values);
      // Any rows alone.
      for (std::int64_t row = 0; row < spec.rows; ++row) {
        std::vector<float> one(static_cast<std::size_t>(spec.cols));
        source->read(spec, row, row + 1, one.data());
        CHECK(std::equal(one.begin(), one.end(), values.begin() + row * spec.cols));
      }
    }
    CHECK(source->unused_tensors() ==
          std::vector<std::string>{"blk.0.attn_gate.weight", "token_embd_norm.weight"});
  }
}

TEST_CASE("Q, K and V may be one tensor", "[core][gguf]") {
  GgufBytes bytes;
  bytes.text("general.architecture", "llama").u32("llama.block_count", 1);
  bytes.u32("llama.embedding_length", 2).u32("llama.feed_forward_length", 1);
  bytes.u32("llama.context_length", 64).u32("llama.attention.head_count", 1);
  bytes.u32("llama.attention.key_length", 4).u32("llama.vocab_size", 3);
  bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  std::vector<float> fused;
  for (int i = 0; i < 24; ++i) fused.push_back(static_cast<float>(i));
  bytes.floats32("blk.0.attn_qkv.weight", {12, 2}, fused);
  bytes.floats32("token_embd.weight", {3, 2}, zeros(6));
  for (const char* norm :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    bytes.floats32(norm, {2}, {1, 1});
  }
  bytes.floats32("blk.0.attn_output.weight", {2, 4}, zeros(8));
  bytes.floats32("blk.0.ffn_gate.weight", {1, 2}, zeros(2));
  bytes.floats32("blk.0.ffn_up.weight", {1, 2}, zeros(2));
  bytes.floats32("blk.0.ffn_down.weight", {2, 1}, zeros(2));
  const ScratchFolder folder;
  const std::string path = folder.write("m.gguf", bytes.bytes());
  const ModelConfig model = find_model(path, {});
  const auto source = open_gguf_weights(path, model);
  const auto rows_of = [&](const std::string& name) {
    const WeightSpec spec = weight_spec(model, 0, name);
    std::vector<float> rows(static_cast<std::size_t>(spec.rows * spec.cols));
    source->read(spec, 0, spec.rows, rows.data());
    return rows;
  };
  CHECK(rows_of("self_attn.q_proj") == std::vector<float>{0, 1, 4, 5, 2, 3, 6, 7});
  CHECK(rows_of("self_attn.k_proj") == std::vector<float>{8, 9, 12, 13, 10, 11, 14, 15});
  CHECK(rows_of("self_attn.v_proj") == std::vector<float>{16, 17, 18, 19, 20, 21, 22, 23});
}

TEST_CASE("quantised rows are put back as they are", "[core][gguf]") {
  const std::uint64_t seed = 22;
  CAPTURE(seed);
  Rng rng(seed, "gguf blocks");
  GgufBytes bytes;
  bytes.text("general.architecture", "llama").u32("llama.block_count", 1);
  bytes.u32("llama.embedding_length", 64).u32("llama.feed_forward_length", 32);
  bytes.u32("llama.context_length", 64).u32("llama.attention.head_count", 2);
  bytes.u32("llama.attention.key_length", 4).u32("llama.vocab_size", 3);
  bytes.f32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  constexpr std::size_t kRowBytes = 2 * 34;  // two blocks of Q8_0: a half, then 32 bytes
  std::string blocks;
  for (std::size_t i = 0; i < 8 * kRowBytes; ++i) {
    blocks += static_cast<char>(i % 34 == 1 ? 0x3c : draw(rng, 0, 255));
  }
  for (const char* name : {"blk.0.attn_q.weight", "blk.0.attn_k.weight", "blk.0.attn_v.weight"}) {
    bytes.tensor(name, 8, {64, 8}, blocks);
  }
  bytes.floats32("token_embd.weight", {3, 64}, zeros(192));
  for (const char* norm :
       {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight", "output_norm.weight"}) {
    bytes.floats32(norm, {64}, zeros(64));
  }
  bytes.floats32("blk.0.attn_output.weight", {64, 8}, zeros(512));
  bytes.floats32("blk.0.ffn_gate.weight", {32, 64}, zeros(2048));
  bytes.floats32("blk.0.ffn_up.weight", {32, 64}, zeros(2048));
  bytes.floats32("blk.0.ffn_down.weight", {64, 32}, zeros(2048));
  const ScratchFolder folder;
  const std::string path = folder.write("m.gguf", bytes.bytes());
  const ModelConfig model = find_model(path, {});
  const auto source = open_gguf_weights(path, model);
  constexpr std::size_t kStored[] = {0, 2, 1, 3, 4, 6, 5, 7};  // of rows of heads of 4
  for (const char* name : {"self_attn.q_proj", "self_attn.v_proj"}) {
    const WeightSpec spec = weight_spec(model, 0, name);
    CHECK(source->type(spec) == TensorType::Q8_0);
    std::vector<std::byte> copied(8 * kRowBytes);
    source->read_blocks(spec, 0, 8, copied.data());
    std::vector<float> read(8 * 64);
    source->read(spec, 0, 8, read.data());
    for (std::size_t row = 0; row < 8; ++row) {
      const std::size_t at = spec.name.find("q_proj") != std::string::npos ? kStored[row] : row;
      const auto stored = bytes_of_text(blocks).subspan(at * kRowBytes, kRowBytes);
      CHECK(std::memcmp(copied.data() + row * kRowBytes, stored.data(), kRowBytes) == 0);
      std::vector<float> expected(64);
      dequantise(TensorType::Q8_0, stored.data(), 2, expected.data());
      CHECK(std::memcmp(read.data() + row * 64, expected.data(), 64 * sizeof(float)) == 0);
    }
  }
}

TEST_CASE("a wrong tensor of a GGUF file is named", "[core][gguf]") {
  const ScratchFolder folder;
  Rng rng(23, "gguf errors");
  GgufBytes whole = keys_of("llama");
  add_weights(whole, "llama", rng);
  const ModelConfig model = config_of(whole);
  const auto error = [&](const GgufBytes& bytes) {
    const std::string path = folder.write("m.gguf", bytes.bytes());
    const std::string text = error_of([&] { open_gguf_weights(path, model); });
    return text.substr(std::min(text.size(), path.size()));
  };
  CHECK(error(whole).empty());
  GgufBytes bytes = keys_of("llama");
  CHECK(error(bytes) == ": tensor 'token_embd.weight': is missing; allowed: every tensor of llama");
  CHECK(error(bytes.floats32("token_embd.weight", {6, 7}, zeros(42))) ==
        ": tensor 'token_embd.weight': has shape [6, 7]; allowed: [7, 6], as the metadata "
        "requires");
  GgufBytes other = keys_of("llama");
  CHECK(error(other.tensor("token_embd.weight", 24, {6, 7}, std::string(42, 'x'))) ==
        ": tensor 'token_embd.weight': has type I8; allowed: F32, F16, BF16, Q4_0, Q4_1, Q5_0, "
        "Q5_1, Q8_0, Q4_K, Q5_K, Q6_K");
}

}  // namespace
}  // namespace metronome::TEST_FILE
