// SPDX-License-Identifier: Apache-2.0
#include "models/text/bpe_tokenizer.h"

#include <algorithm>
#include <array>
#include <fmt/core.h>
#include <functional>
#include <utility>

#include "core/base/error.h"
#include "models/text/bpe.h"
#include "models/text/tokenizer_json.h"
#include "models/text/utf8.h"

namespace metronome {
namespace {

// The characters by which ByteLevel writes bytes: printable Latin-1 bytes as themselves, the others
// in order from U+0100 on.
class ByteAlphabet {
 public:
  ByteAlphabet() {
    bytes_.fill(kNone);
    std::size_t num_others = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_itself =
          (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      bytes_[is_itself ? static_cast<std::size_t>(byte) : 256 + num_others++] =
          static_cast<std::int16_t>(byte);
    }
  }

  // nullopt when a character stands for no byte.
  std::optional<std::string> bytes_of(std::string_view content) const {
    std::string bytes;
    while (!content.empty()) {
      const Utf8Char next = read_utf8(content);
      if (next.code_point >= bytes_.size() || bytes_[next.code_point] == kNone) {
        return std::nullopt;
      }
      bytes += static_cast<char>(bytes_[next.code_point]);
      content.remove_prefix(next.num_bytes);
    }
    return bytes;
  }

 private:
  static constexpr std::int16_t kNone = -1;
  std::array<std::int16_t, 256 + 68> bytes_;
};

const ByteAlphabet& byte_alphabet() {
  static const ByteAlphabet alphabet;
  return alphabet;
}

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The byte of a <0xNN> token.
std::optional<char> fallback_byte(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text.back() != '>') return std::nullopt;
  const int high = hex_digit(text[3]);
  const int low = hex_digit(text[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string fallback_token(std::size_t byte) {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  return std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + '>';
}

void apply(const TokenDecoderStep& step, std::string& text) {
  if (!step.pattern.empty()) {
    std::string result;
    std::size_t end = 0;
    for (std::size_t at; (at = text.find(step.pattern, end)) != text.npos;) {
      result.append(text, end, at - end).append(step.content);
      end = at + step.pattern.size();
    }
    text = result.append(text, end);
    return;
  }
  const std::size_t size = step.content.size();
  for (std::int64_t i = 0; i < step.num_first && text.starts_with(step.content); ++i) {
    text.erase(0, size);
  }
  for (std::int64_t i = 0; i < step.num_last && text.ends_with(step.content); ++i) {
    text.erase(text.size() - size);
  }
}

// The properties of every token, by id.
class TokenPieces {
 public:
  TokenPieces() = default;
  // `tokens` is sorted by id; ids may be missing.
  TokenPieces(const std::vector<std::pair<TokenId, std::string>>& tokens, const TokenizerFile& file,
              const std::vector<TokenDecoderStep>& steps) {
    const std::size_t size = tokens.empty() ? 0 : index(tokens.back().first) + 1;
    begins_.reserve(size + 1);
    kinds_.resize(size, TokenKind::None);
    for (const auto& [id, content] : tokens) {
      begins_.resize(index(id) + 1, bytes_.size());
      std::string piece = content;
      kinds_[index(id)] = TokenKind::Text;
      if (file.decodes_byte_level) {
        if (auto bytes = byte_alphabet().bytes_of(content)) piece = std::move(*bytes);
      } else {
        for (const TokenDecoderStep& step : steps) apply(step, piece);
        if (const std::optional<char> byte = fallback_byte(piece);
            byte && file.decode_rule.has_byte_runs) {
          kinds_[index(id)] = TokenKind::Byte;
          piece.assign(1, *byte);
        }
      }
      bytes_ += piece;
    }
    begins_.resize(size + 1, bytes_.size());
  }

  bool has(TokenId id) const { return value(id) >= 0 && index(id) < kinds_.size(); }
  std::size_t size() const { return kinds_.size(); }
  TokenKind kind(TokenId id) const { return has(id) ? kinds_[index(id)] : TokenKind::None; }
  std::string_view operator[](TokenId id) const {
    if (!has(id)) return {};
    const std::size_t begin = begins_[index(id)];
    return std::string_view(bytes_).substr(begin, begins_[index(id) + 1] - begin);
  }

 private:
  std::string bytes_;
  std::vector<std::size_t> begins_;
  std::vector<TokenKind> kinds_;
};

// Checks and combines the tokens of a file.
class Builder {
 public:
  Builder(const TokenizerFile& file, const std::string& name)
      : file_(file), name_(name), ids_(file.vocab.size() + file.added_tokens.size()) {
    for (const auto& [token, id] : file.vocab) {
      if (!ids_.add(token, id)) fail("model: vocab: " + shown(token), "appears twice", "once");
      tokens_.emplace_back(id, token);
    }
    by_id();
    for (std::size_t i = 1; i < tokens_.size(); ++i) {
      if (tokens_[i - 1].first == tokens_[i].first) {
        fail("model: vocab: " + shown(tokens_[i].second),
             "has the id of " + shown(tokens_[i - 1].second), "an id for each");
      }
    }
  }

  BpeTables bpe_tables() const {
    BpeTables tables;
    tables.is_byte_level = file_.is_byte_level;
    tables.ignore_merges = file_.ignore_merges;
    tables.fuse_unknown = file_.fuse_unknown;
    tables.tokens = TokenTable(tokens_.size());
    for (const auto& [id, token] : tokens_) {
      const std::optional<std::string> bytes = bytes_in_words(token);
      if (bytes) tables.tokens.add(*bytes, id);
    }
    tables.merges = file_.scores.empty() ? listed_merges() : merges_by_score();
    if (!file_.unknown.empty()) {
      tables.unknown = ids_.find(file_.unknown);
      if (!tables.unknown) {
        fail("model: unk_token", shown(file_.unknown) + " is not in the vocabulary", "a token");
      }
    }
    if (file_.byte_fallback) {
      tables.byte_tokens.emplace();
      for (std::size_t byte = 0; byte < 256; ++byte) {
        (*tables.byte_tokens)[byte] = ids_.find(fallback_token(byte));
      }
    }
    return tables;
  }

  // The vocabulary's tokens, as the bytes they have in words.
  std::vector<std::pair<std::string, TokenId>> words() const {
    std::vector<std::pair<std::string, TokenId>> words;
    for (const auto& [id, token] : tokens_) {
      if (auto bytes = bytes_in_words(token)) words.emplace_back(std::move(*bytes), id);
    }
    return words;
  }

  // Call it once, after bpe_tables.
  void add_added_tokens() {
    auto next = static_cast<std::int32_t>(tokens_.size());
    for (std::size_t i = 0; i < file_.added_tokens.size(); ++i) {
      const AddedToken& token = file_.added_tokens[i];
      const std::string place = fmt::format("added_tokens[{}]: {}", i, shown(token.content));
      const std::optional<TokenId> known = ids_.find(token.content);
      if (known && *known != token.id) {
        fail(place, "has a different id than an earlier entry of the same token",
             std::to_string(value(*known)));
      }
      if (known) continue;
      // `tokenizers` assigns these ids itself and ignores the file's.
      if (value(token.id) != next) {
        fail(place, "does not have the next id after the vocabulary", std::to_string(next));
      }
      ++next;
      ids_.add(token.content, token.id);
      tokens_.emplace_back(token.id, token.content);
    }
    by_id();
    for (std::size_t i = 1; i < tokens_.size(); ++i) {
      if (tokens_[i - 1].first == tokens_[i].first) {
        fail("added_tokens: " + shown(tokens_[i].second),
             "has the id of " + shown(tokens_[i - 1].second), "an id for each");
      }
    }
  }

  // Changes the content by which a token is decoded. `tokenizers` decodes a token matched in the
  // normalised text to its normalised content.
  void show_as(TokenId id, const std::string& content) {
    const auto found =
        std::lower_bound(tokens_.begin(), tokens_.end(), id,
                         [](const auto& token, TokenId key) { return token.first < key; });
    found->second = content;
  }

  const std::vector<std::pair<TokenId, std::string>>& tokens() const { return tokens_; }
  TokenTable release_ids() { return std::move(ids_); }

 private:
  [[noreturn]] void fail(const std::string& place, const std::string& what,
                         const std::string& allowed) const {
    throw ConfigError(name_ + ": " + place + ": " + what + "; allowed: " + allowed);
  }

  void by_id() {
    std::stable_sort(tokens_.begin(), tokens_.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
  }

  MergeTable listed_merges() const {
    MergeTable merges(file_.merges.size());
    for (std::size_t rank = 0; rank < file_.merges.size(); ++rank) {
      const auto& [left, right] = file_.merges[rank];
      const TokenId left_id = id_in_merge(rank, left);
      const TokenId right_id = id_in_merge(rank, right);
      const TokenId merged_id = id_in_merge(rank, left + right);
      merges.set(left_id, right_id, {static_cast<std::uint32_t>(rank), merged_id});
    }
    return merges;
  }

  // A token with a score. Such files have the tokens in the order of their ids.
  std::optional<TokenId> scored(std::string_view token) const {
    const std::optional<TokenId> id = ids_.find(token);
    return id && file_.scores[index(*id)] ? id : std::nullopt;
  }

  // Every pair of such tokens that makes a token with a score. Equal scores have equal ranks.
  MergeTable merges_by_score() const {
    std::vector<float> ranks;  // scores, the highest first
    for (const std::optional<float>& score : file_.scores) {
      if (score) ranks.push_back(*score);
    }
    std::sort(ranks.begin(), ranks.end(), std::greater<>());
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    struct Pair {
      TokenId left, right;
      Merged merged;
    };
    std::vector<Pair> pairs;
    for (std::size_t i = 0; i < file_.scores.size(); ++i) {
      if (!file_.scores[i]) continue;
      const auto& [text, id] = file_.vocab[i];
      const auto rank = static_cast<std::uint32_t>(
          std::lower_bound(ranks.begin(), ranks.end(), *file_.scores[i], std::greater<>()) -
          ranks.begin());
      const std::string_view whole = text;
      for (std::size_t at = 0; at < whole.size();) {
        at += read_utf8(whole.substr(at)).num_bytes;
        if (at >= whole.size()) break;
        const std::optional<TokenId> left = scored(whole.substr(0, at));
        const std::optional<TokenId> right = left ? scored(whole.substr(at)) : std::nullopt;
        if (right) pairs.push_back({*left, *right, {rank, id}});
      }
    }
    MergeTable merges(pairs.size());
    for (const Pair& pair : pairs) merges.set(pair.left, pair.right, pair.merged);
    return merges;
  }

  // nullopt if no word of a byte-level model contains it.
  std::optional<std::string> bytes_in_words(const std::string& token) const {
    if (!file_.is_byte_level) return token;
    return byte_alphabet().bytes_of(token);
  }

  TokenId id_in_merge(std::size_t rank, const std::string& token) const {
    const std::optional<TokenId> id = ids_.find(token);
    if (!id) {
      fail(fmt::format("model: merges[{}]", rank), shown(token) + " is not in the vocabulary",
           "tokens of the vocabulary");
    }
    return *id;
  }

  const TokenizerFile& file_;
  const std::string& name_;
  TokenTable ids_;
  std::vector<std::pair<TokenId, std::string>> tokens_;  // in order of ids
};

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer(TokenizerFile file, const std::string& name) : file_(std::move(file)) {
    Builder builder(file_, name);
    BpeTables tables = builder.bpe_tables();
    bpe_ = Bpe(std::move(tables), file_.is_byte_level ? builder.words() : no_words());
    builder.add_added_tokens();
    std::vector<std::pair<std::string, AddedToken>> raw, in_normalized;
    for (const AddedToken& token : file_.added_tokens) {
      if (token.is_normalized) {
        SplitBudget budget(token.content.size());
        in_normalized.emplace_back(token.is_normal_form
                                       ? token.content
                                       : normalized(token.content, file_.normalizer, budget),
                                   token);
        builder.show_as(token.id, in_normalized.back().first);
      } else {
        raw.emplace_back(token.content, token);
      }
    }
    raw_finder_ = AddedTokenFinder(std::move(raw));
    normalized_finder_ = AddedTokenFinder(std::move(in_normalized));
    pieces_ = TokenPieces(builder.tokens(), file_, file_.token_decoder);
    if (file_.decode_rule.has_first_token) {
      first_pieces_ = TokenPieces(builder.tokens(), file_, file_.first_token_decoder);
    }
    ids_ = builder.release_ids();
    for (std::size_t id = 0; id < pieces_.size(); ++id) {
      longest_token_bytes_ =
          std::max(longest_token_bytes_, pieces_[TokenId{static_cast<std::int32_t>(id)}].size());
    }
    is_special_.resize(pieces_.size());
    for (const AddedToken& token : file_.added_tokens) {
      if (token.is_special) is_special_[index(token.id)] = true;
    }
    check_affixes(name);
    family_ = find_family();
    file_.vocab = {};
    file_.merges = {};
    file_.scores = {};
  }

  std::vector<TokenId> encode_within(const EncodingLimits& limits, std::string_view text,
                                     bool add_special_tokens) const override {
    if (text.size() / longest_token_bytes_ > limits.max_tokens) {
      throw TextTooLong("the text has too many bytes");
    }
    std::string valid;
    if (!is_utf8(text)) {
      append_replaced(text, valid);
      text = valid;
    }
    std::vector<TokenId> ids;
    ids.reserve(std::min(text.size() / 3, limits.max_tokens));
    if (add_special_tokens) ids = file_.prefix;
    Pieces pieces;
    SplitBudget budget(text.size(), limits.is_cancelled);
    std::vector<AddedSpan> spans;
    raw_finder_.split(text, spans);
    for (const AddedSpan& span : spans) {
      if (span.id) {
        ids.push_back(*span.id);
      } else {
        encode_between(text.substr(span.begin, span.end - span.begin), span.begin == 0, limits,
                       budget, pieces, ids);
      }
    }
    if (add_special_tokens) ids.insert(ids.end(), file_.suffix.begin(), file_.suffix.end());
    return ids;
  }

  std::string_view bytes_of(TokenId id) const override { return pieces_[id]; }
  std::string_view first_bytes_of(TokenId id) const override {
    return file_.decode_rule.has_first_token ? first_pieces_[id] : pieces_[id];
  }
  TokenKind kind(TokenId id) const override { return pieces_.kind(id); }
  bool is_special(TokenId id) const override { return pieces_.has(id) && is_special_[index(id)]; }
  std::int64_t vocab_size() const override { return static_cast<std::int64_t>(pieces_.size()); }
  std::optional<TokenId> find(std::string_view token) const override { return ids_.find(token); }
  ChatFamily chat_family() const override { return family_; }
  const DecodeRule& decode_rule() const override { return file_.decode_rule; }

 private:
  static std::vector<std::pair<std::string, TokenId>> no_words() { return {}; }

  static void check(const EncodingLimits& limits, std::size_t num_tokens) {
    if (num_tokens > limits.max_tokens) throw TextTooLong("the text has too many tokens");
    if (limits.is_cancelled != nullptr && *limits.is_cancelled) throw EncodingCancelled();
  }

  // Encodes a text between added tokens that are matched without normalisation.
  void encode_between(std::string_view text, bool begins_text, const EncodingLimits& limits,
                      SplitBudget& budget, Pieces& pieces, std::vector<TokenId>& ids) const {
    std::string buffer;
    if (!file_.normalizer.empty()) {
      buffer = normalized(text, file_.normalizer, budget);
      text = buffer;
    }
    std::vector<AddedSpan> spans;
    normalized_finder_.split(text, spans);
    for (const AddedSpan& span : spans) {
      if (span.id) {
        ids.push_back(*span.id);
        check(limits, ids.size());
        continue;
      }
      pieces.split(text.substr(span.begin, span.end - span.begin), begins_text && span.begin == 0,
                   file_.pre_tokenizer, budget);
      for (const std::string_view piece : pieces.all()) {
        bpe_.encode(piece, ids);
        check(limits, ids.size());
      }
    }
  }

  void check_affixes(const std::string& name) const {
    for (const auto* affix : {&file_.prefix, &file_.suffix}) {
      for (const TokenId id : *affix) {
        if (pieces_.kind(id) != TokenKind::None) continue;
        throw ConfigError(fmt::format(
            "{}: post_processor: special_tokens: {} is not a token; allowed: ids of tokens", name,
            value(id)));
      }
    }
  }

  ChatFamily find_family() const {
    const auto has = [&](std::initializer_list<std::string_view> tokens) {
      return std::all_of(tokens.begin(), tokens.end(),
                         [&](std::string_view token) { return ids_.find(token).has_value(); });
    };
    if (has({"<|begin_of_text|>", "<|start_header_id|>", "<|eot_id|>"})) return ChatFamily::Llama3;
    if (has({"<|im_start|>", "<|im_end|>", "<think>"})) return ChatFamily::Qwen3;
    if (has({"<bos>", "<start_of_turn>", "<end_of_turn>"})) return ChatFamily::Gemma3;
    return ChatFamily::None;
  }

  TokenizerFile file_;  // without vocabulary and merges
  Bpe bpe_;
  TokenPieces pieces_;
  TokenPieces first_pieces_;  // of tokens that begin a text, if they differ
  TokenTable ids_;            // by content, for all tokens
  std::vector<bool> is_special_;
  std::size_t longest_token_bytes_ = 1;
  AddedTokenFinder raw_finder_, normalized_finder_;
  ChatFamily family_ = ChatFamily::None;
};

}  // namespace

std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerFile file, const std::string& name) {
  return std::make_unique<BpeTokenizer>(std::move(file), name);
}

}  // namespace metronome
