// SPDX-License-Identifier: Apache-2.0
// Every family of core/model/model_family.h on the CPU: a token's logits have the same bits in
// every chunking, beside every other sequence, and with any number of threads.
#include <algorithm>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/model/model_family.h"
#include "cpu/transformer.h"
#include "models/weights/model_weights.h"
#include "tests/catch.h"
#include "tests/cpu/sequences.h"
#include "tests/lab.h"

namespace metronome::TEST_FILE {
namespace {

using testing::Sequences;

constexpr std::uint64_t kSeed = 29;

void draw_experts(const ModelFamily& family, Rng& rng, ModelConfig& model) {
  const ExpertKeys& keys = family.expert_keys;
  model.n_expert_groups = keys.has_groups ? rng.uniform_int(1, 3) : 1;
  model.n_groups_per_token = rng.uniform_int(1, model.n_expert_groups);
  const std::int64_t size = rng.uniform_int(2, 6);
  model.n_experts = model.n_expert_groups * size;
  model.n_experts_per_token =
      family.traits.has_sparse_mixer ? 2 : rng.uniform_int(1, model.n_groups_per_token * size);
  model.expert_ffn_dim = rng.uniform_int(10, 40);
  if (keys.num_shared != nullptr || keys.has_wide_shared_expert) {
    model.shared_expert_ffn_dim = rng.uniform_int(10, 40);
  }
  if (keys.has_groups) model.expert_scale = 1.7;
  if (keys.dense != DenseLayers::None)
    model.n_dense_layers = rng.uniform_int(0, model.n_layers - 1);
}

void draw_latent_attention(Rng& rng, ModelConfig& model) {
  LatentAttention& latent = model.latent_attention;
  latent = {.kv_rank = rng.uniform_int(4, 40),
            .q_rank = rng.uniform_int(0, 1) * rng.uniform_int(4, 40),
            .nope_dim = rng.uniform_int(2, 20),
            .rope_dim = 2 * rng.uniform_int(1, 10),
            .value_dim = rng.uniform_int(2, 70)};
  model.n_kv_heads = model.n_heads;
  model.head_dim = latent.nope_dim + latent.rope_dim;
  model.rotary_dim = latent.rope_dim;
}

// A random model made as the family is.
ModelConfig random_model(const ModelFamily& family, Rng& rng) {
  const auto draw = [&rng](std::int64_t min, std::int64_t max) {
    return rng.uniform_int(min, max);
  };
  ModelConfig model;
  model.name = family.architecture;
  model.architecture = family.architecture;
  model.has_qk_norm = family.traits.has_qk_norm;
  model.has_post_norms = family.traits.has_post_norms;
  model.n_layers = draw(1, 3);
  model.n_kv_heads = draw(1, 2);
  model.n_heads = model.n_kv_heads * draw(1, 3);
  model.head_dim = 2 * draw(3, 12);
  model.hidden_dim = draw(20, 60);
  model.ffn_dim = draw(20, 80);
  model.vocab_size = draw(30, 90);
  model.max_position_embeddings = 128;
  model.has_tied_embeddings = draw(0, 1) == 1;
  model.bytes_per_weight = 2 * draw(1, 2);
  if (family.has_experts) {
    draw_experts(family, rng, model);
  }
  if (family.traits.has_shared_expert_gate) model.shared_expert_ffn_dim = draw(10, 40);
  if (family.keys == ConfigKeys::DeepSeek) draw_latent_attention(rng, model);
  if (family.has_linear_attention) {
    const std::int64_t num_key_heads = draw(1, 3);
    model.n_layers = draw(2, 4);
    model.linear_attention = {.layers = {},
                              .n_key_heads = num_key_heads,
                              .n_value_heads = num_key_heads * draw(1, 3),
                              .key_head_dim = draw(3, 20),
                              .value_head_dim = draw(3, 40),
                              .conv_width = draw(2, 5)};
    for (std::int64_t i = 0; i < model.n_layers; ++i) {
      if (i == 0 || draw(0, 2) > 0) model.linear_attention.layers.push_back(i);
    }
  }
  if (family.windows != WindowRule::None && draw(0, 1) == 1) {
    model.sliding_window = draw(3, 40);
    model.global_layer_interval = draw(0, 2);
  }
  if (family.unrotated_interval > 0 || family.rotates_windows_only) model.unrotated_layers = {0};
  if (family.has_partial_rotation && model.latent_attention.is_empty())
    model.rotary_dim = 2 * draw(1, model.head_dim / 2);
  model.attention_softcap = family.defaults.attention_softcap / 20;
  model.logit_softcap = family.defaults.logit_softcap / 20;
  if (family.has_multipliers) {
    model.embedding_multiplier = 3;
    model.residual_multiplier = 0.3;
    model.attention_multiplier = 0.2;
    model.logit_divisor = 4;
  }
  if (family.qk_norm_key != nullptr) model.has_qk_norm = draw(0, 1) == 1;
  apply_architecture(model);
  if (family.parallel_key != nullptr) model.has_parallel_mlp = draw(0, 1) == 1;
  if (family.biases.qkv != nullptr && draw(0, 1) == 1) model.has_qkv_biases = true;
  if (family.biases.mlp != nullptr && draw(0, 1) == 1) model.has_mlp_biases = true;
  if (draw(0, 2) == 0) model.qkv_clip = 0.5;
  if (draw(0, 2) == 0) {
    model.query_scale_beta = 0.3;
    model.query_scale_positions = draw(5, 40);
  }
  REQUIRE(model.shape_error().empty());
  REQUIRE(model.unsupported.empty());
  return model;
}

// The logits of a text's tokens, computed in random chunks beside another sequence's.
std::vector<float> in_random_chunks(Transformer& transformer, const std::vector<TokenId>& text,
                                    const std::vector<TokenId>& other, Rng& rng) {
  Sequences sequences(transformer, 2,
                      static_cast<std::int32_t>(std::max(text.size(), other.size())));
  const auto vocab_size = static_cast<std::size_t>(transformer.model().vocab_size);
  std::vector<float> logits;
  std::size_t done[2] = {};
  while (done[0] < text.size()) {
    std::vector<std::span<const TokenId>> chunks;
    for (const std::vector<TokenId>* of : {&text, &other}) {
      std::size_t& begin = done[chunks.size()];
      const auto wanted = static_cast<std::size_t>(rng.uniform_int(chunks.empty() ? 1 : 0, 30));
      chunks.push_back(std::span(*of).subspan(begin, std::min(wanted, of->size() - begin)));
      begin += chunks.back().size();
    }
    const std::vector<float> all = sequences.append(chunks);
    const auto count = static_cast<std::ptrdiff_t>(chunks[0].size() * vocab_size);
    logits.insert(logits.end(), all.begin(), all.begin() + count);
  }
  return logits;
}

TEST_CASE("chunks, neighbours and threads change no bit in any family", "[cpu][families]") {
  for (const ModelFamily& family : model_families()) {
    for (std::uint64_t repeat = 0; repeat < 4; ++repeat) {
      Rng rng(kSeed + repeat, std::string(family.architecture));
      INFO(family.architecture << ", seed " << kSeed + repeat);
      const ModelConfig model = random_model(family, rng);
      const auto weights = random_weights(model, kSeed + repeat);
      ThreadPool pool(1);
      Transformer transformer(model, *weights, pool);
      const auto ids = [&](std::uint64_t seed, std::int32_t count) {
        return testing::random_ids(seed, count, model.vocab_size);
      };
      const std::vector<TokenId> text = ids(repeat, 70);
      Sequences alone(transformer, 1, 70);
      const std::vector<float> whole = alone.append({text});
      CHECK(std::all_of(whole.begin(), whole.end(), [](float x) { return x - x == 0; }));
      for (const int num_threads : {1, 2, 3}) {
        ThreadPool threads(num_threads);
        Transformer other(model, *weights, threads);
        CHECK(in_random_chunks(other, text, ids(repeat + 100, 60), rng) == whole);
      }
    }
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
