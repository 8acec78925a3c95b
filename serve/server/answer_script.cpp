// SPDX-License-Identifier: Apache-2.0
#include "serve/server/answer_script.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "models/text/tokenizer.h"
#include "serve/server/plausible_text.h"
#include "serve/server/schema_text.h"

namespace metronome {
namespace {

// The tokens of a part of a text that is not its beginning. Tokenizers that begin every text with a
// blank leave it out after a line break, which no token of theirs has beside other characters.
std::vector<TokenId> inner_tokens(const Tokenizer& tokenizer, const std::string& text) {
  std::vector<TokenId> tokens = tokenizer.encode(text, false);
  const bool adds_blank = !tokens.empty() && !text.starts_with(' ') &&
                          tokenizer.bytes_of(tokens.front()).starts_with(' ');
  if (!adds_blank) return tokens;
  std::vector<TokenId> behind = tokenizer.encode("\n" + text, false);
  const auto line_break = std::find_if(behind.begin(), behind.end(),
                                       [&](TokenId id) { return tokenizer.bytes_of(id) == "\n"; });
  if (line_break == behind.end()) return tokens;
  behind.erase(behind.begin(), line_break + 1);
  return behind;
}

// The pieces of a text, those that are not free as tokens.
class Draft {
 public:
  // Needed letters beyond `most_tokens` are left out: the answer is cut before them.
  Draft(const Tokenizer& tokenizer, const Json& schema, const SchemaChoices& choices,
        std::int64_t most_tokens)
      : tokenizer_(&tokenizer), pieces_(schema_pieces(schema, choices)), seed_(choices.seed) {
    for (const SchemaPiece& piece : pieces_) {
      std::vector<TokenId>& tokens = tokens_.emplace_back();
      if (!piece.is_free) {
        tokens = tokens_.size() == 1 ? tokenizer.encode(piece.text, false)
                                     : inner_tokens(tokenizer, piece.text);
      } else if (piece.min_chars > 0) {
        fill(piece, piece.min_chars, most_tokens + 1 - num_tokens_, tokens);
      }
      num_tokens_ += static_cast<std::int64_t>(tokens.size());
    }
  }

  std::int64_t num_tokens() const { return num_tokens_; }  // without letters that are not needed
  bool can_grow() const {
    return std::any_of(pieces_.begin(), pieces_.end(), [](const SchemaPiece& piece) {
      return piece.is_free && piece.max_chars == INT64_MAX;
    });
  }

  // The tokens, with free pieces of equal lengths. Short ones leave what they cannot take to
  // others.
  std::vector<TokenId> tokens(std::int32_t num_tokens) {
    std::int64_t rest = num_tokens - num_tokens_;
    std::vector<std::size_t> free;
    for (std::size_t i = 0; i < pieces_.size(); ++i) {
      if (pieces_[i].is_free) free.push_back(i);
    }
    std::stable_sort(free.begin(), free.end(), [this](std::size_t a, std::size_t b) {
      return pieces_[a].max_chars < pieces_[b].max_chars;
    });
    for (std::size_t k = 0; k < free.size() && rest > 0; ++k) {
      std::vector<TokenId>& own = tokens_[free[k]];
      const std::size_t before = own.size();
      const std::int64_t share = rest / static_cast<std::int64_t>(free.size() - k);
      fill(pieces_[free[k]], 0, static_cast<std::int64_t>(before) + share, own);
      rest -= static_cast<std::int64_t>(own.size()) - static_cast<std::int64_t>(before);
    }
    std::vector<TokenId> all;
    for (const std::vector<TokenId>& part : tokens_)
      all.insert(all.end(), part.begin(), part.end());
    return all;
  }

 private:
  // Plausible text in a free piece, until it has `min_chars` or `max_tokens`. More than its
  // max_chars it never has.
  void fill(const SchemaPiece& piece, std::int64_t min_chars, std::int64_t max_tokens,
            std::vector<TokenId>& tokens) {
    if (!text_) text_.emplace(*tokenizer_);
    std::int64_t num_chars = 0;
    const auto chars_of = [this](TokenId id) {
      return static_cast<std::int64_t>(tokenizer_->bytes_of(id).size());
    };
    for (const TokenId id : tokens) num_chars += chars_of(id);
    const std::vector<TokenId> letter = inner_tokens(*tokenizer_, "a");
    while (static_cast<std::int64_t>(tokens.size()) < max_tokens) {
      if (min_chars > 0 && num_chars >= min_chars) return;
      const TokenId next = text_->token(seed_, static_cast<std::int64_t>(next_++));
      if (num_chars + chars_of(next) <= piece.max_chars) {
        tokens.push_back(next);
        num_chars += chars_of(next);
        continue;
      }
      std::int64_t size = 0;
      for (const TokenId id : letter) size += chars_of(id);
      if (size == 0 || num_chars + size > piece.max_chars) return;
      tokens.insert(tokens.end(), letter.begin(), letter.end());
      num_chars += size;
    }
  }

  const Tokenizer* tokenizer_;
  std::vector<SchemaPiece> pieces_;
  std::vector<std::vector<TokenId>> tokens_;  // of the pieces
  std::int64_t num_tokens_ = 0;
  std::uint64_t seed_;
  std::optional<PlausibleText> text_;
  std::uint64_t next_ = 0;  // of the text
};

}  // namespace

std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::uint64_t seed,
                                 std::int32_t count) {
  const PlausibleText text(tokenizer);
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(text.token(seed, i));
  return tokens;
}

std::vector<TokenId> schema_tokens(const Tokenizer& tokenizer, const Json& schema,
                                   std::uint64_t seed, std::int32_t num_tokens,
                                   std::int32_t most_tokens) {
  const auto distance = [&](const Draft& draft) {
    const std::int64_t excess = draft.num_tokens() - num_tokens;
    if (draft.num_tokens() > most_tokens) return INT32_MAX + excess;
    return excess > 0 ? excess : draft.can_grow() ? 0 : -excess;
  };
  std::optional<Draft> draft;
  std::optional<SchemaError> error;
  std::int64_t num_items = 1;
  for (const auto& [has_optional, items] :
       {std::pair{true, 1}, std::pair{false, 1}, std::pair{false, 0}}) {
    try {
      Draft other(tokenizer, schema,
                  {.seed = seed, .has_optional = has_optional, .num_items = items}, most_tokens);
      if (!draft || distance(other) < distance(*draft)) draft.emplace(std::move(other));
    } catch (const SchemaError& refused) {
      if (!error) error = refused;
      continue;
    }
    if (distance(*draft) == 0) break;
  }
  if (!draft) throw SchemaError(*error);
  // Lists grow where no text can.
  while (draft->num_tokens() < num_tokens && !draft->can_grow() && num_items < 64) {
    num_items *= 2;
    try {
      Draft longer(tokenizer, schema, {.seed = seed, .num_items = num_items}, most_tokens);
      if (distance(longer) >= distance(*draft)) break;
      draft.emplace(std::move(longer));
    } catch (const SchemaError&) {
      break;  // longer lists are none that the schema allows
    }
  }
  return draft->tokens(num_tokens);
}

}  // namespace metronome
