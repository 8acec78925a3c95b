// SPDX-License-Identifier: Apache-2.0
#include "models/text/detokenizer.h"

#include "models/text/utf8.h"

namespace metronome {

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(&tokenizer),
      skips_special_(skip_special_tokens),
      num_to_strip_(tokenizer.decode_rule().num_stripped) {}

void Detokenizer::push(TokenId id, std::string& out) {
  const TokenKind kind = tokenizer_->kind(id);
  if (kind == TokenKind::None || (skips_special_ && tokenizer_->is_special(id))) return;
  if (tokenizer_->decode_rule().has_first_token && !has_token_) {
    has_token_ = true;
    held_ += tokenizer_->first_bytes_of(id);
    return settle_held(false, out);
  }
  if (tokenizer_->decode_rule().has_byte_runs && kind == TokenKind::Text) {
    settle_held(true, out);
    emit(tokenizer_->bytes_of(id), out);
    return;
  }
  held_ += tokenizer_->bytes_of(id);
  if (!tokenizer_->decode_rule().has_byte_runs) settle_held(false, out);
}

void Detokenizer::finish(std::string& out) {
  settle_held(true, out);
  has_token_ = false;
  num_to_strip_ = tokenizer_->decode_rule().num_stripped;
}

// Without `is_end`, an incomplete character stays in held_.
void Detokenizer::settle_held(bool is_end, std::string& out) {
  if (tokenizer_->decode_rule().has_byte_runs) {
    if (is_utf8(held_)) {
      emit(held_, out);
    } else {
      for (std::size_t i = 0; i < held_.size(); ++i) emit(kReplacementCharacter, out);
    }
    held_.clear();
    return;
  }
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Char next = read_utf8(rest);
    if (next.is_cut && !is_end) break;
    emit(next.is_valid ? rest.substr(0, next.num_bytes) : kReplacementCharacter, out);
    rest.remove_prefix(next.num_bytes);
  }
  held_.erase(0, held_.size() - rest.size());
}

void Detokenizer::emit(std::string_view characters, std::string& out) {
  const std::string& stripped = tokenizer_->decode_rule().stripped;
  while (num_to_strip_ > 0 && !characters.empty()) {
    if (!characters.starts_with(stripped)) {
      num_to_strip_ = 0;
      break;
    }
    characters.remove_prefix(stripped.size());
    --num_to_strip_;
  }
  out += characters;
}

std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                   bool skip_special_tokens) {
  Detokenizer detokenizer(tokenizer, skip_special_tokens);
  std::string text;
  for (const TokenId id : ids) detokenizer.push(id, text);
  detokenizer.finish(text);
  return text;
}

}  // namespace metronome
