// SPDX-License-Identifier: Apache-2.0
// The ragged path against the right-padded batch, pass by pass: they share weights and no
// arithmetic. Random sequences at different progress, in chunks of different sizes.
#include <cmath>
#include <optional>

#include "tests/catch.h"
#include "tests/cpu/cpu_lab.h"
#include "tests/cpu/padded_model.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr float kTolerance = 1e-4f;
constexpr std::int32_t kCapacity = 64;
constexpr std::int32_t kMaxChunk = 13;

struct Differences {
  float logits = 0;
  float kv = 0;
  float largest_logit = 0;  // what they are to be compared with
  std::int64_t num_logits = 0;
  std::int64_t num_decodes = 0;
};

std::int32_t draw(Rng& rng, std::int32_t low, std::int32_t high) {
  return static_cast<std::int32_t>(rng.uniform_int(low, high));
}

// One of the three architectures in another shape.
ModelConfig random_model(std::uint64_t seed) {
  Rng rng(seed, "padded model");
  ModelConfig model = small_model(kFamilies[seed % std::size(kFamilies)]);
  model.n_layers = draw(rng, 1, 4);
  model.hidden_dim = draw(rng, 8, 70);
  model.n_kv_heads = draw(rng, 1, 3);
  model.n_heads = model.n_kv_heads * draw(rng, 1, 4);
  model.head_dim = 2 * draw(rng, 2, 18);
  model.ffn_dim = draw(rng, 8, 100);
  model.vocab_size = draw(rng, 20, 200);
  if (model.sliding_window > 0) {
    model.sliding_window = draw(rng, 1, 30);
    model.global_layer_interval = draw(rng, 1, 3);
  }
  return model;
}

// Norms with a weight of their own an element; drawn models scale by one.
class UnevenNorms final : public WeightSource {
 public:
  explicit UnevenNorms(std::unique_ptr<WeightSource> source) : source_(std::move(source)) {}
  TensorType type(const WeightSpec& spec) const override { return source_->type(spec); }
  void read(const WeightSpec& spec, std::int64_t row_begin, std::int64_t row_end,
            float* out) const override {
    source_->read(spec, row_begin, row_end, out);
    if (spec.role != WeightRole::Norm) return;
    // Eighths are exact in every type.
    for (std::int64_t i = 0; i < (row_end - row_begin) * spec.cols; ++i) {
      out[i] += static_cast<float>(i % 5 - 2) / 8.0f;
    }
  }

 private:
  std::unique_ptr<WeightSource> source_;
};

// A sequence on both sides: its blocks in the KvStore, scattered, and its padded cache.
struct Sequence {
  std::vector<TokenId> ids;
  std::int32_t num_cached = 0;
  std::vector<BlockId> blocks;
  std::vector<BlockId> window_blocks;
  PaddedCache cache;
};

class Comparison {
 public:
  Comparison(const ModelConfig& model, std::uint64_t seed, Differences& seen)
      : model_(model),
        rng_(seed, "padded comparison"),
        has_window_tables_(model.n_window_layers() > 0 && draw(rng_, 0, 1) == 1),
        block_size_(draw(rng_, 1, 20)),
        weights_(random_weights(model, seed)),
        padded_(model, weights_),
        transformer_(model, weights_, pool_),
        seen_(seen) {
    const auto num_sequences = static_cast<std::size_t>(draw(rng_, 1, 4));
    const auto blocks_each = static_cast<std::size_t>(ceil_div(kCapacity, block_size_));
    std::vector<BlockId> free;
    for (std::size_t b = 0; b < 2 * num_sequences * blocks_each; ++b) {
      free.push_back(BlockId{static_cast<std::int32_t>(b)});
    }
    std::shuffle(free.begin(), free.end(), rng_);
    const auto pop_blocks = [&] {
      std::vector<BlockId> blocks(free.end() - static_cast<long>(blocks_each), free.end());
      free.resize(free.size() - blocks_each);
      return blocks;
    };
    kv_.emplace(KvShape{.n_layers = model.n_layers,
                        .n_kv_heads = model.n_kv_heads,
                        .head_dim = model.head_dim,
                        .num_blocks = static_cast<std::int64_t>(free.size()),
                        .block_size = block_size_});
    for (std::size_t s = 0; s < num_sequences; ++s) {
      sequences_.push_back({random_ids(seed * 8 + s, kCapacity, model.vocab_size), 0, pop_blocks(),
                            pop_blocks(), PaddedCache(model, kCapacity)});
    }
  }

  // Passes until a sequence is full.
  void run() {
    while (pass()) {
    }
    for (const Sequence& sequence : sequences_) compare_kv(sequence);
  }

 private:
  bool pass() {
    ForwardBatch batch;
    batch.clear();
    std::vector<PaddedSequence> padded_batch;
    std::vector<std::size_t> members;
    for (std::size_t s = 0; s < sequences_.size(); ++s) {
      if (draw(rng_, 0, 3) == 0) continue;  // takes no part
      const std::int32_t chunk_len = draw(rng_, 0, 1) == 0 ? 1 : draw(rng_, 1, kMaxChunk);
      if (sequences_[s].num_cached + chunk_len > kCapacity) return false;
      add(batch, s, chunk_len);
      padded_batch.push_back(padded_part(sequences_[s], chunk_len));
      members.push_back(s);
    }
    if (members.empty()) return true;
    std::vector<float> logits;
    transformer_.forward(batch, *kv_, logits);
    const PaddedLogits expected = padded_.forward(padded_batch);
    for (std::size_t i = 0; i < members.size(); ++i) {
      const std::size_t last = padded_batch[i].chunk.size() - 1;
      const auto vocab = static_cast<std::size_t>(model_.vocab_size);
      compare_logits(std::span(logits).subspan(i * vocab, vocab), expected.at(i, last));
      Sequence& sequence = sequences_[members[i]];
      seen_.num_decodes += sequence.num_cached > 0 && last == 0 ? 1 : 0;
      sequence.num_cached += static_cast<std::int32_t>(padded_batch[i].chunk.size());
    }
    return true;
  }

  // Logits of the chunk's last token.
  void add(ForwardBatch& batch, std::size_t s, std::int32_t chunk_len) const {
    const Sequence& sequence = sequences_[s];
    const std::int32_t context_len = sequence.num_cached + chunk_len;
    for (auto* starts : {&batch.query_start, &batch.table_start, &batch.window_table_start}) {
      if (starts->empty()) starts->push_back(0);
    }
    batch.requests.push_back(RequestId{static_cast<std::uint32_t>(s)});
    batch.context_lens.push_back(context_len);
    for (std::int32_t p = sequence.num_cached; p < context_len; ++p) {
      batch.token_ids.push_back(sequence.ids[static_cast<std::size_t>(p)]);
      batch.positions.push_back(p);
    }
    batch.query_start.push_back(batch.num_tokens());
    batch.logit_tokens.push_back(batch.num_tokens() - 1);
    const auto num_blocks = static_cast<long>(ceil_div(context_len, block_size_));
    const auto append = [&](const std::vector<BlockId>& blocks, std::vector<BlockId>& tables,
                            std::vector<std::int32_t>& starts) {
      tables.insert(tables.end(), blocks.begin(), blocks.begin() + num_blocks);
      starts.push_back(static_cast<std::int32_t>(tables.size()));
    };
    append(sequence.blocks, batch.block_tables, batch.table_start);
    if (has_window_tables_) {
      append(sequence.window_blocks, batch.window_block_tables, batch.window_table_start);
    }
  }

  static PaddedSequence padded_part(Sequence& sequence, std::int32_t chunk_len) {
    const auto begin = sequence.ids.begin() + sequence.num_cached;
    return {{begin, begin + chunk_len}, sequence.num_cached, &sequence.cache};
  }

  void compare_logits(std::span<const float> logits, std::span<const float> expected) {
    float difference = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      difference = larger(difference, std::abs(logits[i] - expected[i]));
      seen_.largest_logit = std::max(seen_.largest_logit, std::abs(expected[i]));
    }
    CHECK(difference <= kTolerance);
    seen_.logits = larger(seen_.logits, difference);
    seen_.num_logits += static_cast<std::int64_t>(logits.size());
  }

  void compare_kv(const Sequence& sequence) {
    const auto head_dim = static_cast<std::size_t>(model_.head_dim);
    std::vector<float> key(head_dim);
    std::vector<float> value(head_dim);
    float difference = 0;
    for (std::int64_t layer = 0; layer < model_.n_layers; ++layer) {
      const bool is_own = has_window_tables_ && model_.is_window_layer(layer);
      const std::vector<BlockId>& blocks = is_own ? sequence.window_blocks : sequence.blocks;
      for (std::int64_t head = 0; head < model_.n_kv_heads; ++head) {
        for (std::int32_t p = 0; p < sequence.num_cached; ++p) {
          const BlockId block = blocks[static_cast<std::size_t>(p / block_size_)];
          kv_->read(layer, block, p % block_size_, head, key.data(), value.data());
          const auto row = static_cast<std::size_t>(
              ((layer * model_.n_kv_heads + head) * kCapacity + p) * model_.head_dim);
          for (std::size_t d = 0; d < head_dim; ++d) {
            difference = larger(difference, std::abs(key[d] - sequence.cache.keys[row + d]));
            difference = larger(difference, std::abs(value[d] - sequence.cache.values[row + d]));
          }
        }
      }
    }
    CHECK(difference <= kTolerance);
    seen_.kv = larger(seen_.kv, difference);
  }

  // A NaN stays, and fails every comparison.
  static float larger(float a, float b) { return std::isnan(a) || a > b ? a : b; }

  const ModelConfig model_;
  Rng rng_;
  const bool has_window_tables_;
  const std::int32_t block_size_;
  const UnevenNorms weights_;
  const PaddedModel padded_;
  ThreadPool pool_{1};
  Transformer transformer_;
  std::optional<KvStore> kv_;
  std::vector<Sequence> sequences_;
  Differences& seen_;
};

void check_seen(const Differences& seen) {
  INFO("largest difference: logits " << seen.logits << " of up to " << seen.largest_logit << ", KV "
                                     << seen.kv << "; " << seen.num_logits << " logits compared");
  CHECK(seen.largest_logit > 1);
  CHECK(seen.num_logits > 100'000);
  CHECK(seen.num_decodes > 300);
}

}  // namespace

TEST_CASE("ragged batches give the logits and KV of padded ones", "[cpu][padded]") {
  Differences seen;
  for (const Family family : kFamilies) {
    for (std::uint64_t seed = 0; seed < 25; ++seed) {
      INFO(name_of(family) << ", seed " << seed);
      Comparison(small_model(family), seed, seen).run();
    }
  }
  check_seen(seen);
}

TEST_CASE("models of random shapes give the logits and KV of padded batches", "[cpu][padded]") {
  Differences seen;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const ModelConfig model = random_model(seed);
    INFO("seed " << seed << ": " << model.architecture);
    REQUIRE(model.shape_error().empty());
    Comparison(model, seed, seen).run();
  }
  check_seen(seen);
}

}  // namespace metronome::testing::TEST_FILE
