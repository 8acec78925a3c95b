// Tokens that are looked for in a text before anything else is done with it.
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
  bool is_normalized = false;   // looked for in the normalised text, by its normalised content
  bool is_single_word = false;  // only where no word character touches it
  bool strips_left = false;     // takes the white space before it
  bool strips_right = false;    // and behind it
};

// A half-open range of bytes: an added token, or the text between two.
struct AddedSpan {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::optional<TokenId> id;
};

// Finds added tokens as `tokenizers` does: the leftmost, of those the longest, then on behind it.
class AddedTokenFinder {
 public:
  // By the text to look for. An empty one is never found; of equal ones the first is.
  explicit AddedTokenFinder(std::vector<std::pair<std::string, AddedToken>> tokens = {});

  // Replaces `spans`. Together they are all of `text` (UTF-8). A token in white space that the one
  // before it has taken is found all the same.
  void split(std::string_view text, std::vector<AddedSpan>& spans) const;

 private:
  static constexpr std::int32_t kNone = -1;
  struct Node {
    std::int32_t token = kNone;  // that ends here
    std::vector<std::pair<char, std::int32_t>> children;
  };

  std::int32_t child_of(std::int32_t node, char c) const;
  // The longest at the front of `text`, or kNone.
  std::int32_t longest(std::string_view text) const;

  std::vector<std::pair<std::string, AddedToken>> tokens_;
  std::vector<Node> nodes_;
  std::array<std::int32_t, 256> roots_;  // by first byte
};

}  // namespace metronome
