// SPDX-License-Identifier: Apache-2.0
#include "core/run/ngram_lookup.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

NgramLookup::NgramLookup(std::int32_t min_length, std::int32_t max_length)
    : min_length_(static_cast<std::size_t>(min_length)),
      max_length_(static_cast<std::size_t>(max_length)) {
  METRONOME_CHECK(1 <= min_length && min_length <= max_length, "lengths of a lookup");
}

// Knuth, Morris and Pratt's search, from the end of the text to its begin: at every place it knows
// how many tokens match the last ones of the text. The matches may overlap these.
std::span<const TokenId> NgramLookup::find(std::span<const TokenId> text, std::int32_t max_tokens) {
  const std::size_t size = text.size();
  if (max_tokens <= 0 || size <= min_length_) return {};
  const auto from_end = [&text, size](std::size_t i) { return text[size - 1 - i]; };
  // [i]: the longest proper prefix of the reversed text's first i + 1 tokens that also ends them.
  borders_.assign(std::min(max_length_, size), 0);
  std::size_t longest = 0;
  std::size_t follows = 0;  // where the token behind the match lies
  std::size_t matched = 0;
  for (std::size_t i = 1; i < size; ++i) {
    if (matched == max_length_) matched = borders_[max_length_ - 1];
    while (matched > 0 && from_end(matched) != from_end(i)) matched = borders_[matched - 1];
    if (from_end(matched) == from_end(i)) ++matched;
    if (i < borders_.size()) borders_[i] = matched;
    // Of equally long matches the last one here is the first one in the text.
    if (matched > 0 && matched >= longest) {
      longest = matched;
      follows = size - 1 - i + matched;
    }
  }
  if (longest < min_length_) return {};
  return text.subspan(follows, std::min(static_cast<std::size_t>(max_tokens), size - follows));
}

}  // namespace metronome
