// SPDX-License-Identifier: Apache-2.0
// Prompt lookup: drafts from the text itself (speculative.method ngram).
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// Finds the longest sequence of min_length to max_length tokens that ends the text and occurs in it
// before. The tokens behind its first occurrence are the draft. This is vLLM's rule
// (vllm/v1/spec_decode/ngram_proposer.py).
class NgramLookup {
 public:
  // Requires 1 <= min_length <= max_length.
  NgramLookup(std::int32_t min_length, std::int32_t max_length);

  // The draft: at most `max_tokens` tokens, none if nothing is found. Time is linear in the text.
  std::span<const TokenId> find(std::span<const TokenId> text, std::int32_t max_tokens);

 private:
  std::size_t min_length_;
  std::size_t max_length_;
  std::vector<std::size_t> borders_;  // [max_length], reused
};

}  // namespace metronome
