// SPDX-License-Identifier: Apache-2.0
#include "models/text/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "models/text/bpe_tokenizer.h"
#include "models/text/gguf_splits.h"
#include "models/text/tokenizer_file.h"
#include "models/text/tokenizer_json.h"
#include "models/text/utf8.h"

namespace metronome {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// token_type, as in llama.h (enum llama_token_type).
enum class TokenType : std::int64_t { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };

std::string key_of(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

// Reads the tokenizer of one file.
class Reader {
 public:
  explicit Reader(const GgufFile& file)
      : file_(file), tokens_(file.texts(key_of("tokens"))), types_(file.integers(kTypes)) {
    if (tokens_.empty()) fail("tokens", "are missing; allowed: an array of STRING");
    if (tokens_.size() >= std::size_t{kMaxVocabSize}) {
      fail("tokens", fmt::format("are {}; allowed: fewer than {}", tokens_.size(), kMaxVocabSize));
    }
    if (!types_.empty()) check_length("token_type", types_.size());
  }

  TokenizerFile read() {
    const std::optional<std::string_view> model = file_.text(key_of("model"));
    constexpr const char* kAllowed = "; allowed: gpt2, gemma4, llama";
    if (!model) fail("model", std::string("is missing") + kAllowed);
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      result_.vocab.emplace_back(text_of(i), id_of(i));
    }
    if (*model == "gpt2") {
      read_merged(file_.text(key_of("pre")).value_or("default"));
    } else if (*model == "gemma4") {
      read_merged("gemma4");
    } else if (*model == "llama") {
      read_sentence_piece();
    } else {
      fail("model", gguf_shown(*model) + " is not supported" + kAllowed);
    }
    return std::move(result_);
  }

 private:
  static constexpr const char* kTypes = "tokenizer.ggml.token_type";

  [[noreturn]] void fail(std::string_view name, const std::string& message) const {
    file_.fail(key_of(name), message);
  }

  void check_length(std::string_view name, std::size_t count) const {
    if (count == tokens_.size()) return;
    fail(name,
         fmt::format("has {} elements; allowed: {}, one for each token", count, tokens_.size()));
  }

  static TokenId id_of(std::size_t i) { return TokenId{static_cast<std::int32_t>(i)}; }

  bool is_of(std::size_t i, TokenType type) const {
    return i < types_.size() && types_[i] == static_cast<std::int64_t>(type);
  }

  // A vocabulary is UTF-8 in `tokenizers`, too.
  std::string text_of(std::size_t i) const {
    if (!is_utf8(tokens_[i])) {
      fail("tokens", fmt::format("has at {} {}, which is not UTF-8; allowed: UTF-8", i,
                                 gguf_shown(tokens_[i])));
    }
    // llama.cpp gives empty ones a name, so that several can be there.
    if (tokens_[i].empty()) return fmt::format("[EMPTY_{}]", i);
    return std::string(tokens_[i]);
  }

  std::optional<TokenId> token_of(std::string_view name) const {
    const std::optional<std::int64_t> id = file_.integer(key_of(name));
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= static_cast<std::int64_t>(tokens_.size())) {
      fail(name, fmt::format("is {}; allowed: 0 to {}", *id, tokens_.size() - 1));
    }
    return id_of(static_cast<std::size_t>(*id));
  }

  // Tokens around a text. `bos` and `eos` are used when the file has none.
  void read_affixes(bool adds_bos, std::optional<TokenId> bos, std::optional<TokenId> eos) {
    const struct {
      const char* adds;
      const char* id;
      bool is_added;
      std::optional<TokenId> token;
      std::vector<TokenId>& affix;
    } affixes[] = {{"add_bos_token", "bos_token_id", adds_bos, bos, result_.prefix},
                   {"add_eos_token", "eos_token_id", false, eos, result_.suffix}};
    for (const auto& each : affixes) {
      const std::optional<bool> is_asked = file_.boolean(key_of(each.adds));
      if (!is_asked.value_or(each.is_added)) continue;
      std::optional<TokenId> token = token_of(each.id);
      if (!token) token = each.token;
      if (!token && !is_asked) continue;
      if (!token || value(*token) >= static_cast<std::int64_t>(tokens_.size())) {
        fail(each.id, "is missing, and it is added to texts; allowed: the id of a token");
      }
      each.affix.push_back(*token);
    }
  }

  void add_token(std::size_t i, std::string content, bool is_special) {
    AddedToken token;
    token.id = id_of(i);
    token.content = std::move(content);
    token.is_special = is_special;
    result_.added_tokens.push_back(std::move(token));
  }

  // Byte-pair encoding by merges, whose words `name` says.
  void read_merged(std::string_view name) {
    const GgufSplit* split = find_gguf_split(name);
    if (split == nullptr) {
      const std::vector<std::string_view> names = gguf_split_names();
      fail("pre", gguf_shown(name) + " is not known" + did_you_mean(name, names) +
                      "; allowed: " + join_names(names));
    }
    if (split->is_nfc) result_.normalizer.push_back({NormalizerKind::Nfc, std::nullopt, ""});
    if (split->marks_spaces) mark_spaces();
    for (const std::string& pattern : split->patterns) {
      PreTokenizerStep step;
      step.pattern = SplitPattern::regex(pattern);
      result_.pre_tokenizer.push_back(std::move(step));
    }
    result_.is_byte_level = !split->has_byte_tokens;
    result_.decodes_byte_level = !split->has_byte_tokens;
    result_.byte_fallback = split->has_byte_tokens;
    result_.decode_rule.has_byte_runs = split->has_byte_tokens;
    result_.ignore_merges = split->ignore_merges;
    read_merges();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_special = is_of(i, TokenType::Control) || is_of(i, TokenType::Unknown);
      if (is_special || is_of(i, TokenType::UserDefined)) add_token(i, text_of(i), is_special);
    }
    read_affixes(split->adds_bos, std::nullopt, std::nullopt);
  }

  // U+2581 for spaces, and back.
  void mark_spaces() {
    result_.normalizer.push_back(
        {NormalizerKind::Replace, SplitPattern::literal(" "), std::string(kSpace)});
    result_.token_decoder.push_back({std::string(kSpace), " ", 0, 0});
  }

  void read_merges() {
    const std::vector<std::string_view> merges = file_.texts(key_of("merges"));
    if (file_.find(key_of("merges")) == nullptr) {
      fail("merges", "are missing; allowed: an array of STRING");
    }
    result_.merges.reserve(merges.size());
    for (std::size_t i = 0; i < merges.size(); ++i) {
      const std::size_t space = merges[i].find(' ', 1);
      if (space == merges[i].npos || space + 1 == merges[i].size()) {
        fail("merges", fmt::format("has at {} {}, which is not a pair; allowed: \"left right\"", i,
                                   gguf_shown(merges[i])));
      }
      result_.merges.emplace_back(merges[i].substr(0, space), merges[i].substr(space + 1));
    }
  }

  void read_sentence_piece() {
    read_scores();
    const bool has_prefix = file_.boolean(key_of("add_space_prefix")).value_or(true);
    if (has_prefix) {
      result_.normalizer.push_back({NormalizerKind::Prepend, std::nullopt, std::string(kSpace)});
      result_.decode_rule.stripped = " ";
      result_.decode_rule.num_stripped = 1;
    }
    mark_spaces();
    result_.decode_rule.has_byte_runs = true;
    const TokenId unknown = token_of("unknown_token_id").value_or(TokenId{0});
    result_.unknown = text_of(static_cast<std::size_t>(value(unknown)));
    result_.fuse_unknown = true;
    result_.byte_fallback = true;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (is_of(i, TokenType::Control) || is_of(i, TokenType::Unknown)) {
        add_token(i, text_of(i), true);
      } else if (is_of(i, TokenType::UserDefined)) {
        result_.vocab[i].first = with_marked_spaces(text_of(i));
        add_token(i, result_.vocab[i].first, false);
        result_.added_tokens.back().is_normalized = true;
        result_.added_tokens.back().is_normal_form = true;
      }
    }
    read_affixes(true, TokenId{1}, TokenId{2});
  }

  static std::string with_marked_spaces(const std::string& text) {
    std::string result;
    for (const char c : text) c == ' ' ? result.append(kSpace) : result.append(1, c);
    return result;
  }

  // Tokens that merges make are normal or unused ones. Others get no score.
  void read_scores() {
    std::vector<float> scores = file_.floats(key_of("scores"));
    if (scores.empty()) fail("scores", "are missing; allowed: an array of FLOAT32");
    check_length("scores", scores.size());
    constexpr std::size_t kMaxTokenBytes = 1024;
    for (std::size_t i = 0; i < scores.size(); ++i) {
      const bool is_made = !is_of(i, TokenType::Control) && !is_of(i, TokenType::Unknown) &&
                           !is_of(i, TokenType::UserDefined) && !is_of(i, TokenType::Byte);
      if (std::isnan(scores[i])) {
        fail("scores", fmt::format("has at {} NaN; allowed: numbers", i));
      }
      if (is_made && tokens_[i].size() > kMaxTokenBytes) {
        fail("tokens", fmt::format("has at {} one of {} bytes; allowed: at most {}", i,
                                   tokens_[i].size(), kMaxTokenBytes));
      }
      result_.scores.push_back(is_made ? std::optional(scores[i]) : std::nullopt);
    }
  }

  const GgufFile& file_;
  std::vector<std::string_view> tokens_;
  std::vector<std::int64_t> types_;
  TokenizerFile result_;
};

}  // namespace

std::unique_ptr<Tokenizer> make_gguf_tokenizer(const GgufFile& file) {
  return make_bpe_tokenizer(Reader(file).read(), file.path());
}

}  // namespace metronome
