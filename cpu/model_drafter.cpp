// SPDX-License-Identifier: Apache-2.0
#include "cpu/model_drafter.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

void ModelDrafter::propose(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
                           RequestTexts& texts, const PollFn& poll) {
  follow(batch, num_wanted, texts);
  while (batch_.num_tokens() > 0) {
    model_.forward(batch_, kv_, logits_, poll);
    sample_drafts(batch, texts);
    batch_.clear();
    for (const Pending& pending : pending_) {
      const RequestTexts::Text& text = texts[batch.requests[pending.sequence]];
      const auto end = static_cast<std::int32_t>(text.token_ids.size() + text.drafts.size());
      add_tokens(batch, pending.sequence, end - 1, end, 1, text);
    }
  }
}

// The first pass: what the model computed, and the tokens sampled from it. The last one of a text
// leads to its first draft.
void ModelDrafter::follow(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
                          RequestTexts& texts) {
  batch_.clear();
  pending_.clear();
  for (std::size_t s = 0; s < batch.requests.size(); ++s) {
    const RequestTexts::Text& text = texts[batch.requests[s]];
    const std::int32_t begin = batch.positions[static_cast<std::size_t>(batch.query_start[s])];
    const auto num_known = static_cast<std::int32_t>(text.token_ids.size());
    if (num_wanted[s] > 0) {
      add_tokens(batch, s, begin, num_known, 1, text);
      pending_.push_back({s, num_wanted[s]});
    } else {
      // Rejected drafts stay out. Their KV would be overwritten before it is read.
      add_tokens(batch, s, begin, std::min(batch.context_lens[s], num_known), 0, text);
    }
  }
}

void ModelDrafter::add_tokens(const ForwardBatch& batch, std::size_t sequence, std::int32_t begin,
                              std::int32_t end, std::int32_t num_logits,
                              const RequestTexts::Text& text) {
  if (begin >= end) return;
  const std::int64_t num_blocks = ceil_div(end, kv_.shape().block_size);
  const auto first = static_cast<std::size_t>(batch.table_start[sequence]);
  METRONOME_CHECK(batch.table_start[sequence] + num_blocks <= batch.table_start[sequence + 1],
                  "the drafter has blocks for its lookahead");
  batch_.append(batch.requests[sequence], begin, end,
                {batch.block_tables.data() + first, static_cast<std::size_t>(num_blocks)}, {},
                num_logits);
  const auto num_known = static_cast<std::int32_t>(text.token_ids.size());
  for (std::int32_t position = begin; position < end; ++position) {
    batch_.token_ids[batch_.token_ids.size() - static_cast<std::size_t>(end - position)] =
        position < num_known ? text.token_ids[static_cast<std::size_t>(position)]
                             : text.drafts[static_cast<std::size_t>(position - num_known)];
  }
}

// The likeliest token of each row becomes a draft. Requests with all their drafts leave.
void ModelDrafter::sample_drafts(const ForwardBatch& batch, RequestTexts& texts) {
  const auto vocab_size = static_cast<std::size_t>(model_.model().vocab_size);
  std::size_t row = 0;
  std::erase_if(pending_, [&](const Pending& pending) {
    const std::span<const float> logits(logits_.data() + row++ * vocab_size, vocab_size);
    std::vector<TokenId>& drafts = texts[batch.requests[pending.sequence]].drafts;
    drafts.push_back(sampler_.sample(logits, SamplingParams{}, 0).token);
    return static_cast<std::int32_t>(drafts.size()) == pending.num_wanted;
  });
}

}  // namespace metronome
