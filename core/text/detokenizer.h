// Token ids as text, while they come.
#pragma once

#include <string>
#include <string_view>

#include "core/text/tokenizer.h"

namespace metronome {

// What the calls append is together decode() of all ids, whatever they are. Each call appends whole
// characters: what may still become something else is held back. That is the beginning of a
// character, at most three bytes; with DecodeRule::has_byte_runs a whole run of byte tokens,
// because its last byte says what its first one becomes.
class Detokenizer {
 public:
  // The tokenizer must outlive it.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // Appends to `out`.
  void push(TokenId id, std::string& out);
  // What was held back. Then a new text may begin.
  void finish(std::string& out);

 private:
  void settle_held(bool is_end, std::string& out);
  void emit(std::string_view characters, std::string& out);

  const Tokenizer* tokenizer_;
  bool skips_special_;
  std::string held_;
  std::int64_t num_to_strip_;
};

}  // namespace metronome
