// SPDX-License-Identifier: Apache-2.0
// Byte-pair encoding: merges a word's characters in the order of training.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "models/text/token_table.h"

namespace metronome {

struct BpeTables {
  TokenTable tokens;  // by their bytes in a word
  MergeTable merges;
  // If the whole word is a token, it becomes that token, without merges.
  bool ignore_merges = false;
  // Symbols are bytes instead of characters.
  bool is_byte_level = false;
  // <0x00> to <0xFF>, for characters without a token. Empty: such characters become `unknown`.
  std::optional<std::array<std::optional<TokenId>, 256>> byte_tokens;
  std::optional<TokenId> unknown;  // empty: such characters are left out
  bool fuse_unknown = false;       // one token for adjacent unknown characters
};

class Bpe {
 public:
  Bpe() = default;
  // `words` are the tokens to look up as whole words. The tables contain them.
  Bpe(BpeTables tables, const std::vector<std::pair<std::string, TokenId>>& words);

  // Appends the ids of a UTF-8 word in O(n log n) of its length.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  void add_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  void merge(std::vector<TokenId>& ids, std::size_t first) const;
  void merge_few(std::vector<TokenId>& ids, std::size_t first) const;
  void merge_many(std::vector<TokenId>& ids, std::size_t first) const;

  BpeTables tables_;
  std::array<std::optional<TokenId>, 256> bytes_;  // of a byte-level model
  // By id: true if merging the token's own bytes gives the token. Such a word needs only a lookup.
  std::vector<bool> is_own_word_;
  bool looks_for_words_ = false;
};

}  // namespace metronome
