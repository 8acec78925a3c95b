// SPDX-License-Identifier: Apache-2.0
// Finds added tokens in a text, before any other processing.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// An entry of a tokenizer.json's `added_tokens`.
struct AddedToken {
  TokenId id{};
  std::string content;
  bool is_special = false;
  bool is_normalized = false;   // matched in the normalised text, by its normalised content
  bool is_normal_form = false;  // the content is normalised already
  bool is_single_word = false;  // only if no adjacent character is a word character
  bool strips_left = false;     // includes the white space before it
  bool strips_right = false;    // includes the white space after it
};

// A half-open byte range: an added token, or the text between two.
struct AddedSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::optional<TokenId> id;
};

// Finds added tokens as `tokenizers` does: the leftmost, then the longest of those, then after it.
class AddedTokenFinder {
 public:
  // Each token comes with the text to look for. An empty text is never found. The first of equal
  // texts wins.
  explicit AddedTokenFinder(std::vector<std::pair<std::string, AddedToken>> tokens = {});

  // Replaces `spans`, which together cover all of `text` (UTF-8). A token is found even within
  // white space that the previous token included.
  void split(std::string_view text, std::vector<AddedSpan>& spans) const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::int32_t token = kNone;  // the token that ends here
    std::vector<std::pair<char, std::int32_t>> children;
  };

  std::int32_t child_of(std::int32_t node, char c) const;
  // The longest token at the start of `text`, or kNone.
  std::int32_t longest(std::string_view text) const;

  std::vector<std::pair<std::string, AddedToken>> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_;  // by first byte
};

}  // namespace metronome
