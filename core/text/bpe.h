// Byte-pair encoding: a word's characters, merged in the order in which training merged them.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "core/text/token_table.h"

namespace metronome {

struct BpeTables {
  TokenTable tokens;  // by the bytes they stand for in a word
  MergeTable merges;
  // A word that is a token as a whole is that token, whatever merges would make of it.
  bool ignore_merges = false;
  // Symbols are bytes, not characters.
  bool is_byte_level = false;
  // For characters that are no token, <0x00> to <0xFF>. Empty: they become `unknown`.
  std::optional<std::array<std::optional<TokenId>, 256>> byte_tokens;
  std::optional<TokenId> unknown;  // none: such characters are left out
  bool fuse_unknown = false;       // one for neighbouring ones
};

class Bpe {
 public:
  Bpe() = default;
  // `words` are tokens that are worth looking for as whole words. They are in the tables.
  Bpe(BpeTables tables, const std::vector<std::pair<std::string, TokenId>>& words);

  // Appends the ids of a word, UTF-8. O(n log n) in its length.
  void encode(std::string_view word, std::vector<TokenId>& ids) const;

 private:
  void add_symbols(std::string_view word, std::vector<TokenId>& ids) const;
  void merge(std::vector<TokenId>& ids, std::size_t first) const;
  void merge_few(std::vector<TokenId>& ids, std::size_t first) const;
  void merge_many(std::vector<TokenId>& ids, std::size_t first) const;

  BpeTables tables_;
  std::array<std::optional<TokenId>, 256> bytes_;  // of a byte-level model
  // By id: merging the token's own bytes gives the token, so that a word need only be looked up.
  std::vector<bool> is_own_word_;
  bool looks_for_words_ = false;
};

}  // namespace metronome
