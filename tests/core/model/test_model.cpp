// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <string>
#include <vector>

#include "core/model/model_config.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

struct Known {
  ModelConfig model;
  double params_billion;
  double gflop_per_token;  // projections
  double head_gflop_per_row;
  double kflop_per_pair;  // attention, all layers
  std::int64_t kv_bytes_per_token;
};

ModelConfig shape(const std::string& name, std::int64_t hidden, std::int64_t layers,
                  std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                  std::int64_t ffn, std::int64_t vocab, bool is_tied) {
  ModelConfig model;
  model.name = name;
  model.n_layers = layers;
  model.hidden_dim = hidden;
  model.n_heads = heads;
  model.n_kv_heads = kv_heads;
  model.head_dim = head_dim;
  model.ffn_dim = ffn;
  model.vocab_size = vocab;
  model.max_position_embeddings = 32768;
  model.has_tied_embeddings = is_tied;
  return model;
}

std::vector<Known> known_models() {
  ModelConfig qwen_4b = shape("Qwen3-4B", 2560, 36, 32, 8, 128, 9728, 151936, true);
  ModelConfig qwen_8b = shape("Qwen3-8B", 4096, 36, 32, 8, 128, 12288, 151936, false);
  qwen_4b.has_qk_norm = qwen_8b.has_qk_norm = true;
  ModelConfig gemma = shape("Gemma-3-1B", 1152, 26, 4, 1, 256, 6912, 262144, true);
  gemma.has_qk_norm = gemma.has_post_norms = true;
  gemma.sliding_window = 512;
  gemma.global_layer_interval = 6;
  return {
      {shape("Llama-3.2-3B", 3072, 28, 24, 8, 128, 8192, 128256, true), 3.2127, 5.637, 0.788, 344.1,
       114688},
      {qwen_4b, 4.0225, 7.267, 0.778, 589.8, 147456},
      {gemma, 0.9999, 1.396, 0.604, 106.5, 26624},
      {shape("Llama-3.1-8B", 4096, 32, 32, 8, 128, 14336, 128256, false), 8.0303, 13.959, 1.051,
       524.3, 131072},
      {qwen_8b, 8.1907, 13.892, 1.245, 589.8, 147456},
  };
}

// Equal once rounded to `digits` decimals.
bool rounds_to(double value, double expected, int digits) {
  const double unit = std::pow(10.0, -digits);
  return std::abs(value - expected) <= 0.5 * unit + 1e-9;
}

TEST_CASE("counts of known models", "[core][model]") {
  for (const Known& known : known_models()) {
    const ModelConfig& model = known.model;
    INFO(model.name);
    CHECK(rounds_to(static_cast<double>(model.n_params()) / 1e9, known.params_billion, 4));
    CHECK(rounds_to(2e-9 * static_cast<double>(model.n_linear_params()), known.gflop_per_token, 3));
    CHECK(rounds_to(2e-9 * static_cast<double>(model.n_embedding_params()),
                    known.head_gflop_per_row, 3));
    const std::int64_t flop_per_pair = 4 * model.n_layers * model.n_heads * model.head_dim;
    CHECK(rounds_to(1e-3 * static_cast<double>(flop_per_pair), known.kflop_per_pair, 1));
    CHECK(model.kv_bytes_per_token() == known.kv_bytes_per_token);
    CHECK(model.weight_bytes() == 2 * model.n_params());
    CHECK(model.shape_error().empty());
  }
}

TEST_CASE("parameter counts are exact", "[core][model]") {
  // Published: the number of elements in the checkpoint.
  const std::vector<Known> known = known_models();
  CHECK(known[0].model.n_params() == 3'212'749'824);
  CHECK(known[1].model.n_params() == 4'022'468'096);
  CHECK(known[2].model.n_params() == 999'885'952);
  CHECK(known[3].model.n_params() == 8'030'261'248);
  CHECK(known[4].model.n_params() == 8'190'735'360);
}

TEST_CASE("layers with a window", "[core][model]") {
  ModelConfig model = known_models()[2].model;
  CHECK(model.n_global_layers() == 4);  // layers 5, 11, 17, 23 of 26
  CHECK(model.n_window_layers() == 22);
  std::int64_t num_global = 0;
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if ((i + 1) % model.global_layer_interval == 0) ++num_global;
  }
  CHECK(num_global == model.n_global_layers());

  model.global_layer_interval = 0;  // every layer has the window
  CHECK(model.n_global_layers() == 0);
  CHECK(model.n_window_layers() == 26);
  model.sliding_window = 0;
  CHECK(model.n_global_layers() == 26);
  CHECK(model.n_window_layers() == 0);
}

TEST_CASE("impossible shapes name the key", "[core][model]") {
  const ModelConfig sound = known_models()[0].model;
  const auto error_of = [&sound](auto change) {
    ModelConfig model = sound;
    change(model);
    return model.shape_error();
  };
  CHECK(error_of([](ModelConfig& m) { m.n_layers = 0; }).starts_with("n_layers: is 0; "));
  CHECK(error_of([](ModelConfig& m) { m.hidden_dim = -1; }).starts_with("hidden_dim: "));
  CHECK(error_of([](ModelConfig& m) { m.vocab_size = 1 << 25; }).starts_with("vocab_size: "));
  CHECK(error_of([](ModelConfig& m) {
          m.n_kv_heads = 7;
        }).starts_with("n_kv_heads: 7 does not divide n_heads 24; allowed: "));
  CHECK(error_of([](ModelConfig& m) {
          m.global_layer_interval = 6;
        }).starts_with("global_layer_interval: "));
  CHECK(error_of([](ModelConfig& m) { m.bytes_per_weight = 8; }).starts_with("bytes_per_weight: "));
}

}  // namespace
}  // namespace metronome::TEST_FILE
