// Texts as token ids and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"

namespace metronome {

// Whose chat template a model was trained with (chat_template.h).
enum class ChatFamily { None, Llama3, Qwen3, Gemma3 };

// What a token is to a decoder.
enum class TokenKind {
  None,  // no such id: nothing, whatever stands around it
  Text,
  Byte  // one byte of Gemma's byte fallback, <0xNN>
};

// How tokens become a text, beside their bytes.
struct DecodeRule {
  // A run of Byte tokens that is not UTF-8 as a whole becomes one U+FFFD per byte. Otherwise all
  // bytes are read as one stream, with one U+FFFD per maximal malformed subpart.
  bool has_byte_runs = false;
  // So many of this character are left out at the beginning of the whole text.
  std::int64_t num_stripped = 0;
  std::string stripped;
};

// Immutable: every const call may be made from several threads at once.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // The ids of a text. Bytes that are not UTF-8 are read as U+FFFD, one per maximal malformed
  // subpart; only the byte tokenizer takes any bytes as they are. `add_special_tokens` adds what
  // the file's post-processor says (Llama 3: <|begin_of_text|>, Gemma: <bos>, Qwen: nothing). Added
  // tokens are recognised in the text, special or not, as the `tokenizers` package does. Throws
  // std::runtime_error when a split pattern gives up on the text (PCRE2's limits).
  virtual std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const = 0;

  // The bytes that a token adds to a text: of byte-level tokens their bytes, of Gemma's U+2581 as a
  // space and <0xNN> as that byte. Empty for an id that the tokenizer does not have. Valid as long
  // as the tokenizer.
  virtual std::string_view bytes_of(TokenId id) const = 0;
  virtual TokenKind kind(TokenId id) const = 0;

  // Left out of texts unless asked for.
  virtual bool is_special(TokenId id) const = 0;

  // 1 + the largest id.
  virtual std::int64_t vocab_size() const = 0;

  // The id of a token by its content in the file ("<|eot_id|>"); of the byte tokenizer, by its
  // byte.
  virtual std::optional<TokenId> find(std::string_view token) const = 0;

  // By the special tokens that are there.
  virtual ChatFamily chat_family() const = 0;
  virtual const DecodeRule& decode_rule() const = 0;
};

// Reads a tokenizer.json of Hugging Face's `tokenizers`: byte-level BPE and BPE with byte fallback,
// with the parts that Llama 3, Qwen 3 and Gemma 3 use. `truncation` and `padding` are not applied,
// nor by servers. Throws ConfigError: an unreadable or malformed file, a part that is not supported
// (by its key, with what is allowed), tokens and merges that do not fit.
std::unique_ptr<Tokenizer> read_tokenizer(const std::string& path);

// The same from the file's text; `name` is shown in messages.
std::unique_ptr<Tokenizer> parse_tokenizer(std::string_view json, const std::string& name);

// For models without a tokenizer: ids 0 to 255 are bytes, none is special.
std::unique_ptr<Tokenizer> byte_tokenizer();

// The text of ids, always UTF-8, as `tokenizers` decodes. Ids that the tokenizer does not have are
// left out.
std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                   bool skip_special_tokens);

}  // namespace metronome
