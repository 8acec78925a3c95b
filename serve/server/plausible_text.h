// SPDX-License-Identifier: Apache-2.0
// The text of simulated answers: sentences as tokens of the model's tokenizer.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/types.h"

namespace metronome {

class Tokenizer;

class PlausibleText {
 public:
  explicit PlausibleText(const Tokenizer& tokenizer);

  // Token `i` (from 0) of an endless text; `seed` chooses its first sentence.
  TokenId token(std::uint64_t seed, std::int64_t i) const {
    const std::size_t begin = begins_[seed % begins_.size()];
    return tokens_[(begin + static_cast<std::size_t>(i)) % tokens_.size()];
  }

 private:
  std::vector<TokenId> tokens_;
  std::vector<std::size_t> begins_;  // first token of each sentence in tokens_
};

}  // namespace metronome
