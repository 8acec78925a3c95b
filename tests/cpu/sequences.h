// SPDX-License-Identifier: Apache-2.0
// Sequences that grow by chunks, side by side in one forward pass.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "core/run/forward_batch.h"
#include "core/run/image_batch.h"
#include "cpu/transformer.h"

namespace metronome::testing {

// Some sequences in one cache, with their blocks interleaved and in descending order.
class Sequences {
 public:
  Sequences(Transformer& transformer, std::int32_t count, std::int32_t max_tokens)
      : transformer_(transformer),
        blocks_each_((max_tokens + kBlockSize - 1) / kBlockSize),
        lengths_(static_cast<std::size_t>(count)),
        kv_(kv_shape(transformer.model(),
                     {.num_blocks = std::int64_t{count} * blocks_each_, .block_size = kBlockSize},
                     count)) {}

  // The state of a sequence in a layer, numbered among those with states.
  std::span<const float> state(std::int64_t state_layer, std::int32_t sequence) const {
    return {kv_.state(state_layer, BlockId{sequence}),
            static_cast<std::size_t>(kv_.shape().state_floats)};
  }

  // The images of every sequence.
  void set_images(std::vector<PlacedImage> images) { images_ = std::move(images); }

  // Appends a chunk to each sequence whose chunk is not empty; the logits of all their tokens.
  std::vector<float> append(const std::vector<std::span<const TokenId>>& chunks) {
    ForwardBatch batch;
    batch.query_start = {0};
    batch.table_start = {0};
    for (std::size_t s = 0; s < chunks.size(); ++s) {
      if (!chunks[s].empty()) add_chunk(s, chunks[s], batch);
    }
    if (!images_.empty()) {
      place_images(
          transformer_.model().vision, [&](RequestId) { return std::span(images_); }, batch);
    }
    std::vector<float> logits;
    transformer_.forward(batch, kv_, logits);
    return logits;
  }

 private:
  static constexpr std::int32_t kBlockSize = 12;  // not whole tiles of 16

  void add_chunk(std::size_t sequence, std::span<const TokenId> chunk, ForwardBatch& batch) {
    const BlockId slot{static_cast<std::int32_t>(sequence)};
    batch.num_state_groups = transformer_.model().n_linear_layers() > 0 ? 1 : 0;
    batch.state_sources.push_back(lengths_[sequence] == 0 ? kNoBlock : slot);
    batch.state_targets.push_back(slot);
    batch.requests.push_back(RequestId{static_cast<std::uint32_t>(sequence)});
    for (const TokenId token : chunk) {
      batch.logit_tokens.push_back(batch.num_tokens());
      batch.token_ids.push_back(token);
      batch.positions.push_back(lengths_[sequence]++);
    }
    batch.query_start.push_back(batch.num_tokens());
    batch.context_lens.push_back(lengths_[sequence]);
    const auto count = static_cast<std::int32_t>(lengths_.size());
    for (std::int32_t i = 0; i * kBlockSize < lengths_[sequence]; ++i) {
      const std::int32_t id = (blocks_each_ - 1 - i) * count + static_cast<std::int32_t>(sequence);
      batch.block_tables.push_back(BlockId{id});
    }
    batch.table_start.push_back(static_cast<std::int32_t>(batch.block_tables.size()));
  }

  Transformer& transformer_;
  std::int32_t blocks_each_;
  std::vector<std::int32_t> lengths_;
  std::vector<PlacedImage> images_;
  KvStore kv_;
};

struct GreedyTokens {
  std::vector<TokenId> tokens;
  std::vector<float> logits;  // [tokens, vocab_size], from which each was chosen
};

// Continues the only sequence by the likeliest tokens, `count` >= 1 of them. `logits` ends with
// those of its last token.
inline GreedyTokens append_greedy(Sequences& sequence, std::span<const float> logits,
                                  std::size_t vocab_size, std::size_t count) {
  GreedyTokens greedy;
  std::vector<float> last(logits.end() - static_cast<std::ptrdiff_t>(vocab_size), logits.end());
  while (true) {
    greedy.logits.insert(greedy.logits.end(), last.begin(), last.end());
    const auto likeliest = std::max_element(last.begin(), last.end()) - last.begin();
    greedy.tokens.push_back(TokenId{static_cast<std::int32_t>(likeliest)});
    if (greedy.tokens.size() == count) return greedy;
    last = sequence.append({std::span(greedy.tokens).last(1)});
  }
}

}  // namespace metronome::testing
