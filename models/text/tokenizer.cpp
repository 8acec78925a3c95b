// SPDX-License-Identifier: Apache-2.0
#include "models/text/tokenizer.h"

#include <array>
#include <numeric>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/model/model_file.h"
#include "models/gguf/gguf_file.h"
#include "models/text/bpe_tokenizer.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/tokenizer_file.h"

namespace metronome {
namespace {

class ByteTokenizer final : public Tokenizer {
 public:
  ByteTokenizer() { std::iota(bytes_.begin(), bytes_.end(), '\0'); }

  std::vector<TokenId> encode_within(const EncodingLimits& limits, std::string_view text,
                                     bool /*add_special_tokens*/) const override {
    if (text.size() > limits.max_tokens) throw TextTooLong("the text has too many bytes");
    std::vector<TokenId> ids;
    ids.reserve(text.size());
    for (const char c : text) ids.push_back(id_of(c));
    return ids;
  }
  std::string_view bytes_of(TokenId id) const override {
    if (kind(id) == TokenKind::None) return {};
    return {&bytes_[static_cast<std::size_t>(value(id))], 1};
  }
  TokenKind kind(TokenId id) const override {
    return value(id) >= 0 && value(id) < vocab_size() ? TokenKind::Text : TokenKind::None;
  }
  bool is_special(TokenId /*id*/) const override { return false; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(bytes_.size()); }
  std::optional<TokenId> find(std::string_view token) const override {
    if (token.size() != 1) return std::nullopt;
    return id_of(token[0]);
  }
  ChatFamily chat_family() const override { return ChatFamily::None; }
  const DecodeRule& decode_rule() const override { return rule_; }

 private:
  static TokenId id_of(char c) { return TokenId{static_cast<unsigned char>(c)}; }

  std::array<char, 256> bytes_;
  DecodeRule rule_;
};

}  // namespace

std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path) {
  if (is_gguf_file(path)) return make_gguf_tokenizer(GgufFile(path));
  return parse_tokenizer(read_file(path, "a tokenizer.json of Hugging Face, or a GGUF file"), path);
}

std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name) {
  return make_bpe_tokenizer(parse_tokenizer_file(json, name), name);
}

std::unique_ptr<Tokenizer> byte_tokenizer() { return std::make_unique<ByteTokenizer>(); }

}  // namespace metronome
