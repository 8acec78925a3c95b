// SPDX-License-Identifier: Apache-2.0
// Proposes the draft tokens of speculative decoding, for executors that compute.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "core/run/forward_batch.h"
#include "core/run/ngram_lookup.h"
#include "core/run/request_texts.h"

namespace metronome {

class Drafter {
 public:
  // Called repeatedly during long operations; an exception from it ends the operation.
  using PollFn = std::function<void()>;

  virtual ~Drafter() = default;

  // Called after every pass. `batch` is as it was computed, and `texts` have the tokens sampled
  // from it. Writes the drafts of sequence i to its text, at most num_wanted[i] of them.
  virtual void propose(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
                       RequestTexts& texts, const PollFn& poll) = 0;

  // Positions behind a chunk that it computes, and whose KV blocks it needs.
  virtual std::int32_t num_lookahead_tokens() const { return 0; }
  // It may find fewer drafts than are wanted.
  virtual bool may_find_fewer() const { return false; }
};

// Looks the drafts up in the text.
class NgramDrafter final : public Drafter {
 public:
  explicit NgramDrafter(const NgramLookup& lookup) : lookup_(lookup) {}

  void propose(const ForwardBatch& batch, std::span<const std::int32_t> num_wanted,
               RequestTexts& texts, const PollFn& poll) override;
  bool may_find_fewer() const override { return true; }

 private:
  NgramLookup lookup_;
};

}  // namespace metronome
