#include "core/text/gguf_tokenizer.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/text/bpe_tokenizer.h"
#include "core/text/tokenizer_file.h"
#include "core/text/tokenizer_json.h"
#include "core/text/utf8.h"

namespace metronome {
namespace {

constexpr std::string_view kSpace = "\xe2\x96\x81";  // U+2581, SentencePiece's space

// token_type, as in llama.h (enum llama_token_type).
enum class TokenType : std::int64_t { Normal = 1, Unknown, Control, UserDefined, Unused, Byte };

// Split patterns. Each is a step; a text between two matches is a piece, too.
constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr std::string_view kDigit = R"(\p{N})";
constexpr std::string_view kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kTekken =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr std::string_view kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+)"
    R"(|\s+(?!\S)|\s+)";
// llama.cpp's own, for files that do not say whose pattern they need.
constexpr std::string_view kDefault1 = R"([\p{P}\$\+<=>\^~\|]+)";
constexpr std::string_view kDefault3 = R"(\p{N}+)";
constexpr std::string_view kDefault4 = R"([0-9][0-9][0-9])";

struct Splitting {
  std::string_view name;  // tokenizer.ggml.pre
  std::vector<std::string_view> patterns;
  bool ignore_merges = false;
  bool adds_bos = false;  // unless tokenizer.ggml.add_bos_token says otherwise
  bool is_nfc = false;
};

// Names and what they imply: src/llama-vocab.cpp of llama.cpp. Patterns: the tokenizer.json of
// GPT-2, SmolLM, StarCoder, Refact and Granite, Llama 3, Qwen 2, Mistral Nemo, GPT-4 and GPT-4o.
const std::vector<Splitting>& all_splittings() {
  static const std::vector<Splitting> all = {
      {"default", {kDefault1, kGpt2, kDefault3, kDefault4}},
      {"gpt-2", {kGpt2}},
      {"smollm", {kDigit, kGpt2}},
      {"starcoder", {kDigit, kGpt2}},
      {"refact", {kDigit, kGpt2}},
      {"llama-bpe", {kLlama3}, true, true},
      {"llama3", {kLlama3}, true, true},
      {"llama-v3", {kLlama3}, true, true},
      {"dbrx", {kLlama3}},
      {"qwen2", {kQwen2}, false, false, true},
      {"tekken", {kTekken}, true, true},
      {"gpt-4o", {kGpt4o}},
      {"llama4", {kGpt4o}},
  };
  return all;
}

std::string key_of(std::string_view name) { return "tokenizer.ggml." + std::string(name); }

// Reads the tokenizer of one file.
class Reader {
 public:
  explicit Reader(const GgufFile& file)
      : file_(file), tokens_(file.texts(key_of("tokens"))), types_(file.integers(kTypes)) {
    if (tokens_.empty()) fail("tokens", "are missing; allowed: an array of STRING");
    if (tokens_.size() >= std::size_t{kMaxVocabSize}) {
      fail("tokens", "are " + std::to_string(tokens_.size()) + "; allowed: fewer than " +
                         std::to_string(kMaxVocabSize));
    }
    if (!types_.empty()) check_length("token_type", types_.size());
  }

  TokenizerFile read() {
    const std::optional<std::string_view> model = file_.text(key_of("model"));
    if (!model) fail("model", "is missing; allowed: gpt2, llama");
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      result_.vocab.emplace_back(text_of(i), id_of(i));
    }
    if (*model == "gpt2") {
      read_byte_level();
    } else if (*model == "llama") {
      read_sentence_piece();
    } else {
      fail("model", gguf_shown(*model) + " is not supported; allowed: gpt2, llama");
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
    fail(name, "has " + std::to_string(count) + " elements; allowed: " +
                   std::to_string(tokens_.size()) + ", one for each token");
  }

  static TokenId id_of(std::size_t i) { return TokenId{static_cast<std::int32_t>(i)}; }

  bool is_of(std::size_t i, TokenType type) const {
    return i < types_.size() && types_[i] == static_cast<std::int64_t>(type);
  }

  // A vocabulary is UTF-8 in `tokenizers`, too.
  std::string text_of(std::size_t i) const {
    if (!is_utf8(tokens_[i])) {
      fail("tokens", "has at " + std::to_string(i) + " " + gguf_shown(tokens_[i]) +
                         ", which is not UTF-8; allowed: UTF-8");
    }
    // llama.cpp gives empty ones a name, so that several can be there.
    if (tokens_[i].empty()) return "[EMPTY_" + std::to_string(i) + "]";
    return std::string(tokens_[i]);
  }

  std::optional<TokenId> token_of(std::string_view name) const {
    const std::optional<std::int64_t> id = file_.integer(key_of(name));
    if (!id) return std::nullopt;
    if (*id < 0 || *id >= static_cast<std::int64_t>(tokens_.size())) {
      fail(name,
           "is " + std::to_string(*id) + "; allowed: 0 to " + std::to_string(tokens_.size() - 1));
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

  void read_byte_level() {
    const std::string_view name = file_.text(key_of("pre")).value_or("default");
    const std::vector<Splitting>& all = all_splittings();
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](const Splitting& known) { return known.name == name; });
    if (found == all.end()) {
      std::vector<std::string_view> names;
      for (const Splitting& known : all) names.push_back(known.name);
      fail("pre", gguf_shown(name) + " is not known" + did_you_mean(name, names) +
                      "; allowed: " + join_names(names));
    }
    if (found->is_nfc) result_.normalizer.push_back({NormalizerKind::Nfc, std::nullopt, ""});
    for (const std::string_view pattern : found->patterns) {
      PreTokenizerStep step;
      step.pattern = SplitPattern::regex(pattern);
      result_.pre_tokenizer.push_back(std::move(step));
    }
    result_.is_byte_level = true;
    result_.decodes_byte_level = true;
    result_.ignore_merges = found->ignore_merges;
    read_merges();
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      const bool is_special = is_of(i, TokenType::Control) || is_of(i, TokenType::Unknown);
      if (is_special || is_of(i, TokenType::UserDefined)) add_token(i, text_of(i), is_special);
    }
    read_affixes(found->adds_bos, std::nullopt, std::nullopt);
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
        fail("merges", "has at " + std::to_string(i) + " " + gguf_shown(merges[i]) +
                           ", which is not a pair; allowed: \"left right\"");
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
    result_.normalizer.push_back(
        {NormalizerKind::Replace, SplitPattern::literal(" "), std::string(kSpace)});
    result_.token_decoder.push_back({std::string(kSpace), " ", 0, 0});
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
        fail("scores", "has at " + std::to_string(i) + " NaN; allowed: numbers");
      }
      if (is_made && tokens_[i].size() > kMaxTokenBytes) {
        fail("tokens", "has at " + std::to_string(i) + " one of " +
                           std::to_string(tokens_[i].size()) + " bytes; allowed: at most " +
                           std::to_string(kMaxTokenBytes));
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

std::string gguf_chat_template(const GgufFile& file) {
  return std::string(file.text("tokenizer.chat_template").value_or(std::string_view()));
}

}  // namespace metronome
