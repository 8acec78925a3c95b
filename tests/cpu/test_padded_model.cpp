// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "tests/catch.h"
#include "tests/cpu/padded_model.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<TokenId> tokens(const std::vector<int>& ids) {
  std::vector<TokenId> result;
  for (const int id : ids) result.push_back(TokenId{id});
  return result;
}

// Tensors by name; what is not there is 0.
class WrittenWeights : public WeightSource {
 public:
  explicit WrittenWeights(std::map<std::string, std::vector<float>> tensors)
      : tensors_(std::move(tensors)) {}
  TensorType type(const WeightSpec&) const override { return TensorType::Float32; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    const auto found = tensors_.find(spec.name);
    for (std::int64_t i = row_begin * spec.cols; i < row_end * spec.cols; ++i) {
      *out++ = found == tensors_.end() ? 0.0f : found->second.at(static_cast<std::size_t>(i));
    }
  }

 private:
  std::map<std::string, std::vector<float>> tensors_;
};

// Element i of a tensor is ((5 i^2 + 7 i + the sum of its name's bytes) mod 23 - 11) / 16; of a
// norm, 1/64 of that whole number, and 1 more unless norms have a unit offset.
class FormulaWeights : public WeightSource {
 public:
  explicit FormulaWeights(const ModelConfig& model) : model_(model) {}
  TensorType type(const WeightSpec&) const override { return TensorType::Float32; }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    std::int64_t sum = 0;
    for (const char c : spec.name) sum += c;
    for (std::int64_t i = row_begin * spec.cols; i < row_end * spec.cols; ++i) {
      const auto whole = static_cast<float>((5 * i * i + 7 * i + sum) % 23 - 11);
      const float one = model_.has_unit_offset_norms ? 0.0f : 1.0f;
      *out++ = spec.role == WeightRole::Norm ? one + whole / 64 : whole / 16;
    }
  }

 private:
  ModelConfig model_;
};

ModelConfig llama(std::int64_t hidden_dim, std::int64_t head_dim) {
  ModelConfig model;
  model.name = "tiny";
  model.architecture = "LlamaForCausalLM";
  model.n_layers = 2;
  model.hidden_dim = hidden_dim;
  model.n_heads = 4;
  model.n_kv_heads = 2;
  model.head_dim = head_dim;
  model.ffn_dim = hidden_dim + 2;
  model.vocab_size = 7;
  model.max_position_embeddings = 1024;
  model.norm_eps = 1e-5;
  model.rope_theta = 100;
  model.rope_scaling = {RopeScaling::Kind::Llama3, 4, 1, 4, 160};
  model.bytes_per_weight = 4;
  return model;
}

ModelConfig qwen3(std::int64_t hidden_dim, std::int64_t head_dim) {
  ModelConfig model = llama(hidden_dim, head_dim);
  model.architecture = "Qwen3ForCausalLM";
  model.has_tied_embeddings = true;
  model.has_qk_norm = true;
  model.norm_eps = 1e-6;
  model.rope_theta = 50;
  model.rope_scaling = {};
  model.rope_scaling.kind = RopeScaling::Kind::Linear;
  model.rope_scaling.factor = 2;
  return model;
}

// Layer 0 sees a window, layer 1 everything.
ModelConfig gemma3(std::int64_t hidden_dim, std::int64_t head_dim) {
  ModelConfig model = qwen3(hidden_dim, head_dim);
  model.architecture = "Gemma3ForCausalLM";
  model.has_post_norms = true;
  model.has_unit_offset_norms = true;
  model.scales_embeddings = true;
  model.activation = Activation::GeluTanh;
  model.sliding_window = 3;
  model.global_layer_interval = 2;
  model.rope_theta = 1000;
  model.rope_local_theta = 10;
  model.rope_scaling.factor = 8;
  model.query_pre_attn_scalar = 9;
  return model;
}

std::vector<ModelConfig> drawn_models() {
  std::vector<ModelConfig> models{llama(24, 8), qwen3(24, 8), gemma3(24, 8)};
  for (ModelConfig& model : models) {
    model.n_layers = 3;
    model.vocab_size = 50;
  }
  return models;
}

std::vector<TokenId> drawn_tokens(const ModelConfig& model, std::int64_t count) {
  std::vector<TokenId> ids;
  for (std::int64_t i = 0; i < count; ++i) {
    ids.push_back(TokenId{static_cast<std::int32_t>((i * i * 3 + i * 7 + 5) % model.vocab_size)});
  }
  return ids;
}

std::vector<TokenId> part(const std::vector<TokenId>& ids, std::size_t begin, std::size_t count) {
  const auto first = ids.begin() + static_cast<std::ptrdiff_t>(begin);
  return {first, first + static_cast<std::ptrdiff_t>(count)};
}

using Logits = std::vector<std::vector<float>>;  // one row a token

// The logits of every token of a prompt that is computed alone, in chunks of these lengths.
Logits run_alone(const PaddedModel& padded, PaddedCache& cache, const std::vector<TokenId>& prompt,
                 const std::vector<std::size_t>& chunk_lens) {
  Logits rows;
  for (const std::size_t chunk_len : chunk_lens) {
    const auto start = static_cast<std::int32_t>(rows.size());
    const PaddedSequence sequence{part(prompt, rows.size(), chunk_len), start, &cache};
    const PaddedLogits logits = padded.forward({&sequence, 1});
    for (std::size_t t = 0; t < chunk_len; ++t) {
      const std::span<const float> row = logits.at(0, t);
      rows.emplace_back(row.begin(), row.end());
    }
  }
  return rows;
}

float max_difference(std::span<const float> a, std::span<const float> b) {
  REQUIRE(a.size() == b.size());
  float largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const float difference = std::abs(a[i] - b[i]);
    if (std::isnan(difference)) return difference;
    largest = std::max(largest, difference);
  }
  return largest;
}

// Whether two runs are equal to the bit, NaN in the same places included.
bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](float x, float y) { return x == y || (std::isnan(x) && std::isnan(y)); });
}

// One layer and one head of two dimensions. Tokens are (1, 1), (1, -1) and (-1, 1), which a norm
// leaves as they are; values are twice that; nothing comes from the MLP; the last norm triples the
// second element; the head gives both elements and their sum.
struct HandModel {
  ModelConfig model;
  std::map<std::string, std::vector<float>> tensors;

  HandModel() {
    model.name = "by hand";
    model.n_layers = 1;
    model.hidden_dim = model.head_dim = model.ffn_dim = 2;
    model.n_heads = model.n_kv_heads = 1;
    model.vocab_size = 3;
    model.max_position_embeddings = 16;
    model.norm_eps = 0;
    tensors["model.embed_tokens.weight"] = {1, 1, 1, -1, -1, 1};
    tensors["model.layers.0.input_layernorm.weight"] = {1, 1};
    tensors["model.layers.0.post_attention_layernorm.weight"] = {1, 1};
    tensors["model.layers.0.self_attn.v_proj.weight"] = {2, 0, 0, 2};
    tensors["model.layers.0.self_attn.o_proj.weight"] = {1, 0, 0, 1};
    tensors["model.norm.weight"] = {1, 3};
    tensors["lm_head.weight"] = {1, 0, 0, 1, 1, 1};
  }

  Logits run(const std::vector<int>& prompt) const {
    PaddedCache cache(model, 8);
    return run_alone(PaddedModel(model, WrittenWeights(tensors)), cache, tokens(prompt),
                     {prompt.size()});
  }
};

void check_row(const std::vector<float>& row, const std::vector<double>& expected) {
  REQUIRE(row.size() == expected.size());
  for (std::size_t i = 0; i < row.size(); ++i) {
    CHECK(static_cast<double>(row[i]) == Approx(expected[i]).margin(2e-6));
  }
}

}  // namespace

TEST_CASE("queries of zero attend evenly to all before them", "[cpu][padded]") {
  const Logits rows = HandModel().run({0, 1, 1});
  // (1, 1) + (2, 2), over its root mean square 3.
  check_row(rows[0], {1, 3, 4});
  // (1, -1) + (2, 0) = (3, -1), whose root mean square is sqrt(5).
  check_row(rows[1], {3 / std::sqrt(5.0), -3 / std::sqrt(5.0), 0});
  // (1, -1) + (2, -2/3) = (3, -5/3), whose root mean square is sqrt(53) / 3.
  check_row(rows[2], {9 / std::sqrt(53.0), -15 / std::sqrt(53.0), -6 / std::sqrt(53.0)});
}

TEST_CASE("a window layer attends to its window only", "[cpu][padded]") {
  HandModel hand;
  hand.model.sliding_window = 2;
  const Logits rows = hand.run({0, 1, 1});
  check_row(rows[1], {3 / std::sqrt(5.0), -3 / std::sqrt(5.0), 0});
  // (1, -1) + (2, -2): the first token is out of sight.
  check_row(rows[2], {1, -3, -2});
}

TEST_CASE("scores depend on how far apart query and key are", "[cpu][padded]") {
  HandModel hand;
  hand.tensors["model.layers.0.self_attn.q_proj.weight"] = {1, 0, 0, 1};
  hand.tensors["model.layers.0.self_attn.k_proj.weight"] = {1, 0, 0, 1};
  const Logits rows = hand.run({0, 1});
  // The only frequency is 1. (1, -1) turned by 1 times (1, 1) is 2 sin(1); times itself it is 2.
  const double first = 1 / (1 + std::exp(std::sqrt(2.0) * (1 - std::sin(1.0))));
  const double y = -1 + first * 2 - (1 - first) * 2;
  const double root_mean_square = std::sqrt((9 + y * y) / 2);
  check_row(rows[1],
            {3 / root_mean_square, 3 * y / root_mean_square, (3 + 3 * y) / root_mean_square});
}

// The answers are of a script in double precision and of transformers in float32, both with these
// weights; they agree to 3e-6. Per layer, with n(x, w) = x / sqrt(mean(x^2) + eps) * w (Gemma:
// 1 + w) and the script's names:
//   q, k, v = heads of n(x, input_layernorm) times q_proj^T, k_proj^T, v_proj^T
//   q, k    = n(q, q_norm), n(k, k_norm)                                    Qwen 3 and Gemma 3
//   q, k    = (a cos(p f) - b sin(p f), b cos(p f) + a sin(p f)) of halves a, b at position p
//   a       = softmax over j <= i (Gemma's layer 0: j > i - 3) of q_i k_j / sqrt(4; Gemma: 9), v_j
//   x       = x + a o_proj^T                                Gemma: n(.., post_attention_layernorm)
//   h       = n(x, post_attention_layernorm)                     Gemma: pre_feedforward_layernorm
//   x       = x + (act(h gate^T) * h up^T) down^T         Gemma: n(.., post_feedforward_layernorm)
// with f = (1, 0.1), 0.1 made 0.1 ((1 - s) / 4 + s) with s = (160 / (20 pi) - 1) / 3 for Llama;
// (1, 50^-0.5) / 2 for Qwen 3; (1, 10^-0.5) and (1, 1000^-0.5) / 8 for Gemma 3, whose embeddings
// are doubled. Logits are n(x, norm) times lm_head^T, or the embeddings' where they are tied.
TEST_CASE("three architectures give the answers of an independent script", "[cpu][padded]") {
  struct Known {
    ModelConfig model;
    std::vector<double> last_logits;
  };
  const Known known[] = {
      {llama(4, 4), {-0.693640, -0.091343, 0.947311, 0.342299, 0.481482, -0.432274, 1.468802}},
      {qwen3(4, 4), {-0.732155, 0.019794, -0.104731, 0.335460, -0.037380, -0.610470, 1.107013}},
      {gemma3(4, 4), {-0.356342, 0.079033, 0.385996, 1.214760, -0.253521, 0.127991, 0.573690}},
  };
  for (const Known& one : known) {
    INFO(one.model.architecture);
    PaddedCache cache(one.model, 6);
    const PaddedModel padded(one.model, FormulaWeights(one.model));
    check_row(run_alone(padded, cache, tokens({3, 1, 4, 1, 5, 2}), {6}).back(), one.last_logits);
  }
}

TEST_CASE("a chunked prompt has the logits of a whole one", "[cpu][padded]") {
  for (const ModelConfig& model : drawn_models()) {
    const PaddedModel padded(model, *random_weights(model, 7));
    const std::vector<TokenId> prompt = drawn_tokens(model, 17);
    PaddedCache whole_cache(model, 17);
    const Logits whole = run_alone(padded, whole_cache, prompt, {17});
    const std::vector<std::vector<std::size_t>> splits = {
        {1, 16}, {16, 1}, {5, 7, 5}, {3, 1, 9, 4}, std::vector<std::size_t>(17, 1)};
    for (const auto& chunk_lens : splits) {
      PaddedCache cache(model, 20);
      const Logits chunked = run_alone(padded, cache, prompt, chunk_lens);
      for (std::size_t t = 0; t < prompt.size(); ++t) {
        INFO(model.architecture << ", first chunk " << chunk_lens[0] << ", token " << t);
        CHECK(max_difference(chunked[t], whole[t]) <= 1e-5f);
      }
    }
  }
}

namespace {

// Three sequences that have computed 0, 6 and 11 tokens and now compute 4, 1 and 7.
struct MixedBatch {
  static constexpr std::int32_t kCapacity = 20;
  static constexpr std::size_t kStarts[] = {0, 6, 11};
  static constexpr std::size_t kChunkLens[] = {4, 1, 7};

  std::vector<PaddedCache> caches;
  std::vector<PaddedSequence> sequences;

  // Cached positions nobody has written hold `unwritten`.
  MixedBatch(const PaddedModel& padded, const ModelConfig& model, float unwritten) {
    caches.assign(3, PaddedCache(model, kCapacity));
    for (std::size_t s = 0; s < 3; ++s) {
      std::fill(caches[s].keys.begin(), caches[s].keys.end(), unwritten);
      std::fill(caches[s].values.begin(), caches[s].values.end(), unwritten);
      const std::vector<TokenId> prompt = prompt_of(model, s);
      if (kStarts[s] > 0) run_alone(padded, caches[s], prompt, {kStarts[s]});
      sequences.push_back({part(prompt, kStarts[s], kChunkLens[s]),
                           static_cast<std::int32_t>(kStarts[s]), &caches[s]});
    }
  }

  static std::vector<TokenId> prompt_of(const ModelConfig& model, std::size_t s) {
    return part(drawn_tokens(model, 40), 9 * s, kStarts[s] + kChunkLens[s]);
  }
};

}  // namespace

TEST_CASE("a batch with different starts gives what each sequence gives alone", "[cpu][padded]") {
  for (const ModelConfig& model : drawn_models()) {
    const PaddedModel padded(model, *random_weights(model, 3));
    MixedBatch mixed(padded, model, 0);
    const PaddedLogits logits = padded.forward(mixed.sequences);
    CHECK(logits.max_chunk_len == 7);
    CHECK(logits.values.size() == 3 * 7 * 50);
    for (std::size_t s = 0; s < 3; ++s) {
      const std::vector<TokenId> prompt = MixedBatch::prompt_of(model, s);
      PaddedCache cache(model, MixedBatch::kCapacity);
      const Logits alone = run_alone(padded, cache, prompt, {prompt.size()});
      for (std::size_t t = 0; t < MixedBatch::kChunkLens[s]; ++t) {
        INFO(model.architecture << ", sequence " << s << ", token " << t);
        CHECK(max_difference(logits.at(s, t), alone[MixedBatch::kStarts[s] + t]) <= 1e-5f);
      }
      CHECK(max_difference(mixed.caches[s].keys, cache.keys) <= 1e-5f);
      CHECK(max_difference(mixed.caches[s].values, cache.values) <= 1e-5f);
    }
  }
}

TEST_CASE("what pads a batch does not matter", "[cpu][padded]") {
  for (const ModelConfig& model : drawn_models()) {
    INFO(model.architecture);
    const PaddedModel padded(model, *random_weights(model, 4));
    MixedBatch clean(padded, model, 0);
    MixedBatch poisoned(padded, model, kNaN);
    const PaddedLogits expected = padded.forward(clean.sequences);
    const PaddedLogits logits = padded.forward(poisoned.sequences, TokenId{31});
    for (std::size_t s = 0; s < 3; ++s) {
      for (std::size_t t = 0; t < MixedBatch::kChunkLens[s]; ++t) {
        CHECK(max_difference(logits.at(s, t), expected.at(s, t)) == 0);
      }
    }
    // The padding itself was computed, from another token.
    CHECK(max_difference(logits.at(1, 6), expected.at(1, 6)) > 0);
    CHECK(max_difference(logits.at(1, 6), logits.at(0, 6)) > 0);  // another first token
  }
}

TEST_CASE("only the real tokens of a chunk are cached", "[cpu][padded]") {
  for (const ModelConfig& model : drawn_models()) {
    const PaddedModel padded(model, *random_weights(model, 5));
    MixedBatch mixed(padded, model, kNaN);
    const std::vector<PaddedCache> before = mixed.caches;
    padded.forward(mixed.sequences);
    const auto head_dim = static_cast<std::size_t>(model.head_dim);
    for (std::size_t s = 0; s < 3; ++s) {
      INFO(model.architecture << ", sequence " << s);
      std::vector<float> keys = mixed.caches[s].keys;
      std::vector<float> values = mixed.caches[s].values;
      const std::size_t begin = MixedBatch::kStarts[s];
      const std::size_t end = begin + MixedBatch::kChunkLens[s];
      std::size_t num_unwritten = 0;
      for (std::size_t i = 0; i < keys.size(); ++i) {
        const std::size_t position = i / head_dim % MixedBatch::kCapacity;
        if (position < begin || position >= end) continue;
        num_unwritten += std::isnan(keys[i]) || std::isnan(values[i]);
        keys[i] = values[i] = kNaN;
      }
      CHECK(num_unwritten == 0);
      CHECK(same_bits(keys, before[s].keys));
      CHECK(same_bits(values, before[s].values));
    }
  }
}

TEST_CASE("tokens before the window change nothing, the first within it does", "[cpu][padded]") {
  ModelConfig model = gemma3(24, 8);
  model.vocab_size = 50;
  model.n_layers = 1;
  model.sliding_window = 4;
  const PaddedModel padded(model, *random_weights(model, 6));
  const std::vector<TokenId> prompt = drawn_tokens(model, 10);
  const auto last_logits = [&](std::size_t changed) {
    std::vector<TokenId> ids = prompt;
    ids[changed] = TokenId{value(ids[changed]) == 0 ? 1 : 0};
    PaddedCache cache(model, 10);
    return run_alone(padded, cache, ids, {6, 4}).back();
  };
  PaddedCache cache(model, 10);
  const std::vector<float> expected = run_alone(padded, cache, prompt, {6, 4}).back();
  // The last query, at 9, sees 6, 7, 8 and itself.
  for (std::size_t changed = 0; changed < 10; ++changed) {
    INFO("changed " << changed);
    CHECK(same_bits(last_logits(changed), expected) == (changed < 6));
  }
}

TEST_CASE("a chunk must fit its cache and have tokens", "[cpu][padded]") {
  const ModelConfig model = HandModel().model;
  const PaddedModel padded(model, WrittenWeights({}));
  PaddedCache cache(model, 4);
  const PaddedSequence too_long{tokens({0, 1, 2}), 2, &cache};
  CHECK_THROWS_AS(padded.forward({&too_long, 1}), InvariantError);
  const PaddedSequence empty{{}, 2, &cache};
  CHECK_THROWS_AS(padded.forward({&empty, 1}), InvariantError);
  const PaddedSequence fits{tokens({0, 1}), 2, &cache};
  CHECK_NOTHROW(padded.forward({&fits, 1}));
}

TEST_CASE("a model that cannot be computed is refused", "[cpu][padded]") {
  ModelConfig model = HandModel().model;
  model.unsupported = "attention_bias: is true; allowed: false";
  CHECK_THROWS_AS(PaddedModel(model, WrittenWeights({})), InvariantError);
}

}  // namespace TEST_FILE
