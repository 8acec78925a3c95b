// SPDX-License-Identifier: Apache-2.0
// Converts texts to token ids and back.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "models/text/split_pattern.h"

namespace metronome {

// The family whose chat template the model was trained with (chat_template.h).
enum class ChatFamily { None, Llama3, Qwen3, Gemma3 };

// How a decoder treats a token.
enum class TokenKind {
  None,  // no such id: decodes to nothing
  Text,
  Byte  // one byte of Gemma's byte fallback, <0xNN>
};

// How tokens become a text, in addition to their bytes.
struct DecodeRule {
  // A run of Byte tokens that is not valid UTF-8 as a whole becomes one U+FFFD per byte. Otherwise
  // all bytes form one stream, with one U+FFFD per maximal malformed subpart.
  bool has_byte_runs = false;
  // At most this many `stripped` characters are removed at the beginning of the whole text.
  std::int64_t num_stripped = 0;
  std::string stripped;
  // The first token of a text has other bytes than elsewhere: Tokenizer::first_bytes_of().
  bool has_first_token = false;
};

// When to give up an encoding.
struct EncodingLimits {
  std::size_t max_tokens = SIZE_MAX;
  // Set by another thread when nobody wants the tokens any more. Null: never.
  const std::atomic<bool>* is_cancelled = nullptr;
};
// The text has more than EncodingLimits::max_tokens.
struct TextTooLong : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Immutable: several threads may make const calls at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text. Invalid UTF-8 becomes U+FFFD, one per maximal malformed subpart; only the
  // byte tokenizer accepts any bytes. `add_special_tokens` adds the tokens of the file's
  // post-processor (Llama 3: <|begin_of_text|>, Gemma: <bos>, Qwen: nothing). Added tokens, special
  // or not, are recognised in the text as in the `tokenizers` package. Throws std::runtime_error
  // when a split pattern exceeds PCRE2's limits.
  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const {
    return encode_within({}, text, add_special_tokens);
  }
  // Encodes within limits. Throws TextTooLong soon after the tokens have become too many, and
  // EncodingCancelled soon after the encoding was cancelled. A text of more bytes than max_tokens
  // times those of the longest token is too long, and is not looked at.
  virtual std::vector<TokenId> encode_within(const EncodingLimits& limits, std::string_view text,
                                             bool add_special_tokens) const = 0;

  // The bytes that a token adds to a text. Gemma's U+2581 becomes a space, and <0xNN> that byte.
  // Empty for an unknown id. Valid as long as the tokenizer.
  virtual std::string_view bytes_of(TokenId id) const = 0;
  // The bytes that a token adds where it begins a text. Metaspace leaves out its spaces.
  virtual std::string_view first_bytes_of(TokenId id) const { return bytes_of(id); }
  virtual TokenKind kind(TokenId id) const = 0;

  // Special tokens are left out of texts unless requested.
  virtual bool is_special(TokenId id) const = 0;

  // 1 + the largest id.
  virtual std::int64_t vocab_size() const = 0;

  // The id of a token by its content in the file ("<|eot_id|>"). The byte tokenizer looks up a
  // byte.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;

  // Derived from the special tokens in the vocabulary.
  virtual ChatFamily chat_family() const = 0;
  virtual const DecodeRule& decode_rule() const = 0;
};

// Reads a tokenizer.json of Hugging Face's `tokenizers`: byte-level BPE and BPE with byte fallback,
// with the parts that Llama, Qwen, Gemma, Mistral, Phi, GPT-2, SmolLM, OLMo and Granite use.
// Ignores `truncation` and `padding`, as servers do. Reads the tokenizer of a GGUF file, too
// (gguf_tokenizer.h). Throws ConfigError for an unreadable or malformed file, an unsupported part
// (with its key and what is allowed), and inconsistent tokens and merges.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path);

// Parses the file's text; `name` is shown in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name);

// For models without a tokenizer: ids 0 to 255 are bytes, none is special.
std::unique_ptr<Tokenizer> byte_tokenizer();

// The text of ids, always UTF-8, decoded as in `tokenizers`. Unknown ids are left out.
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                   bool skip_special_tokens);

}  // namespace metronome
