// SPDX-License-Identifier: Apache-2.0
// Converts token ids to text incrementally.
#pragma once

#include <string>
#include <string_view>

#include "models/text/tokenizer.h"

namespace metronome {

// The appended texts together are decode() of all ids. Each call appends whole characters and holds
// back bytes whose text may still change. These are an incomplete character, at most three bytes.
// With DecodeRule::has_byte_runs it is a whole run of byte tokens, because its last byte can change
// the text of its first.
class Detokenizer {
 public:
  // The tokenizer must outlive this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens);

  // Appends to `out`.
  void push(TokenId id, std::string& out);
  // Appends the held text. A new text may begin afterwards.
  void finish(std::string& out);

 private:
  void settle_held(bool is_end, std::string& out);
  void emit(std::string_view characters, std::string& out);

  const Tokenizer* tokenizer_;
  bool skips_special_;
  std::string held_;
  std::int64_t num_to_strip_;
  bool has_token_ = false;  // since the beginning or finish()
};

}  // namespace metronome
