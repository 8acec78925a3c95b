// SPDX-License-Identifier: Apache-2.0
#include "models/text/bpe.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "models/text/utf8.h"

namespace metronome {
namespace {

// Up to this many symbols, a scan of all pairs is faster than a heap.
constexpr std::size_t kMaxFew = 40;

}  // namespace

Bpe::Bpe(BpeTables tables, const std::vector<std::pair<std::string, TokenId>>& words)
    : tables_(std::move(tables)) {
  for (std::size_t byte = 0; byte < bytes_.size(); ++byte) {
    const char c = static_cast<char>(byte);
    bytes_[byte] = tables_.tokens.find({&c, 1});
  }
  looks_for_words_ = tables_.ignore_merges || !words.empty();
  if (tables_.ignore_merges) return;
  std::vector<TokenId> ids;
  for (const auto& [bytes, id] : words) {
    ids.clear();
    add_symbols(bytes, ids);
    merge(ids, 0);
    is_own_word_.resize(std::max(is_own_word_.size(), index(id) + 1));
    is_own_word_[index(id)] = ids.size() == 1 && ids[0] == id;
  }
}

void Bpe::encode(std::string_view word, std::vector<TokenId>& ids) const {
  if (looks_for_words_) {
    const std::optional<TokenId> whole = tables_.tokens.find(word);
    if (whole && (tables_.ignore_merges ||
                  (index(*whole) < is_own_word_.size() && is_own_word_[index(*whole)]))) {
      ids.push_back(*whole);
      return;
    }
  }
  const std::size_t first = ids.size();
  add_symbols(word, ids);
  merge(ids, first);
}

void Bpe::add_symbols(std::string_view word, std::vector<TokenId>& ids) const {
  bool unknown_is_due = false;
  const auto add_unknown = [&] {
    if (unknown_is_due) ids.push_back(*tables_.unknown);
    unknown_is_due = false;
  };
  while (!word.empty()) {
    const std::size_t size = tables_.is_byte_level ? 1 : read_utf8(word).num_bytes;
    const std::string_view symbol = word.substr(0, size);
    word.remove_prefix(size);
    const std::optional<TokenId> id =
        tables_.is_byte_level ? bytes_[byte_of(symbol[0])] : tables_.tokens.find(symbol);
    if (id) {
      add_unknown();
      ids.push_back(*id);
      continue;
    }
    const auto has_token = [&](char c) { return (*tables_.byte_tokens)[byte_of(c)].has_value(); };
    if (tables_.byte_tokens && std::all_of(symbol.begin(), symbol.end(), has_token)) {
      // A pending unknown token comes after these, as in `tokenizers`.
      for (const char c : symbol) ids.push_back(*(*tables_.byte_tokens)[byte_of(c)]);
      continue;
    }
    if (!tables_.unknown) continue;
    if (!tables_.fuse_unknown) add_unknown();
    unknown_is_due = true;
  }
  add_unknown();
}

void Bpe::merge(std::vector<TokenId>& ids, std::size_t first) const {
  if (ids.size() - first <= kMaxFew) {
    merge_few(ids, first);
  } else {
    merge_many(ids, first);
  }
}

// Repeatedly merges the pair of lowest rank (the leftmost of equals) until no pair merges.
void Bpe::merge_few(std::vector<TokenId>& ids, std::size_t first) const {
  std::size_t num = ids.size() - first;
  TokenId* const symbols = ids.data() + first;
  std::array<Merged, kMaxFew> pairs;  // [i]: symbols i and i + 1
  const auto look_up = [&](std::size_t i) {
    pairs[i] = tables_.merges.find(symbols[i], symbols[i + 1]);
  };
  for (std::size_t i = 0; i + 1 < num; ++i) look_up(i);
  while (num > 1) {
    const auto end = pairs.begin() + static_cast<std::ptrdiff_t>(num - 1);
    const auto best = std::min_element(
        pairs.begin(), end, [](const Merged& a, const Merged& b) { return a.rank < b.rank; });
    if (best->rank == UINT32_MAX) break;
    const auto i = static_cast<std::size_t>(best - pairs.begin());
    symbols[i] = best->id;
    std::copy(symbols + i + 2, symbols + num, symbols + i + 1);
    std::copy(best + 1, end, best);
    --num;
    if (i > 0) look_up(i - 1);
    if (i + 1 < num) look_up(i);
  }
  ids.resize(first + num);
}

// Merges with a heap of candidates over a linked list, to the same end. The symbols of a candidate
// may have merged since it was pushed; such a candidate is dropped.
void Bpe::merge_many(std::vector<TokenId>& ids, std::size_t first) const {
  struct Symbol {
    TokenId id;
    std::uint32_t previous, next;
    bool is_gone;
  };
  constexpr std::uint32_t kNone = UINT32_MAX;
  using Candidate = std::pair<std::uint32_t, std::uint32_t>;  // rank, position
  const auto num = static_cast<std::uint32_t>(ids.size() - first);
  std::vector<Symbol> symbols(num);
  for (std::uint32_t i = 0; i < num; ++i) {
    symbols[i] = {ids[first + i], i == 0 ? kNone : i - 1, i + 1 < num ? i + 1 : kNone, false};
  }
  const auto merged_at = [&](std::uint32_t i) {
    if (symbols[i].is_gone || symbols[i].next == kNone) return Merged{};
    return tables_.merges.find(symbols[i].id, symbols[symbols[i].next].id);
  };
  std::vector<Candidate> candidates;
  candidates.reserve(num);
  for (std::uint32_t i = 0; i < num; ++i) {
    if (const Merged merged = merged_at(i); merged.rank != UINT32_MAX) {
      candidates.emplace_back(merged.rank, i);
    }
  }
  std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(
      std::greater<>(), std::move(candidates));
  const auto offer = [&](std::uint32_t i) {
    if (i == kNone) return;
    if (const Merged merged = merged_at(i); merged.rank != UINT32_MAX)
      queue.emplace(merged.rank, i);
  };
  while (!queue.empty()) {
    const auto [rank, i] = queue.top();
    queue.pop();
    const Merged merged = merged_at(i);
    if (merged.rank != rank) continue;
    Symbol& left = symbols[i];
    Symbol& right = symbols[left.next];
    left.id = merged.id;
    left.next = right.next;
    right.is_gone = true;
    if (left.next != kNone) symbols[left.next].previous = i;
    offer(left.previous);
    offer(i);
  }
  ids.resize(first);
  for (const Symbol& symbol : symbols) {
    if (!symbol.is_gone) ids.push_back(symbol.id);
  }
}

}  // namespace metronome
