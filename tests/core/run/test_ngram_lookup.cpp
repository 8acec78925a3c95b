// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <vector>

#include "core/base/rng.h"
#include "core/run/ngram_lookup.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Ids = std::vector<TokenId>;

Ids ids(const std::vector<std::int32_t>& numbers) {
  Ids result;
  for (const std::int32_t number : numbers) result.push_back(TokenId{number});
  return result;
}

Ids found(const Ids& text, std::int32_t min_length, std::int32_t max_length,
          std::int32_t max_tokens) {
  NgramLookup lookup(min_length, max_length);
  const auto draft = lookup.find(text, max_tokens);
  return {draft.begin(), draft.end()};
}

// Tries every length and every place.
Ids searched(const Ids& text, std::int32_t min_length, std::int32_t max_length,
             std::int32_t max_tokens) {
  const auto size = static_cast<std::int32_t>(text.size());
  for (std::int32_t length = std::min(max_length, size); length >= min_length; --length) {
    for (std::int32_t begin = 0; begin + length < size; ++begin) {
      const auto first = text.begin() + begin;
      if (!std::equal(first, first + length, text.end() - length)) continue;
      const std::int32_t num_tokens = std::min(max_tokens, size - begin - length);
      return {first + length, first + length + num_tokens};
    }
  }
  return {};
}

}  // namespace

TEST_CASE("a lookup drafts what followed the longest match", "[ngram]") {
  CHECK(found(ids({1, 2, 3, 4, 1, 2}), 1, 3, 3) == ids({3, 4, 1}));
  // The longer match wins over the earlier one.
  CHECK(found(ids({2, 9, 1, 2, 7, 5, 1, 2}), 1, 2, 2) == ids({7, 5}));
  // Of equal ones the earlier.
  CHECK(found(ids({1, 2, 7, 1, 2, 8, 1, 2}), 2, 2, 1) == ids({7}));
  // A match may overlap the last tokens.
  CHECK(found(ids({5, 5, 5, 5}), 2, 2, 8) == ids({5, 5}));
  CHECK(found(ids({1, 2, 3, 1}), 2, 3, 8).empty());
  CHECK(found(ids({1, 2, 3, 1, 2, 3}), 1, 3, 0).empty());
  CHECK(found(ids({1}), 1, 4, 4).empty());
  CHECK(found({}, 1, 4, 4).empty());
}

TEST_CASE("a lookup finds what a search of every place finds", "[ngram]") {
  Rng rng(17, "lookup");
  for (int i = 0; i < 20'000; ++i) {
    const std::int32_t vocab = draw(rng, 1, 4);
    const std::int32_t size = draw(rng, 0, 40);
    Ids text;
    for (std::int32_t t = 0; t < size; ++t) text.push_back(TokenId{draw(rng, 1, vocab)});
    const std::int32_t min_length = draw(rng, 1, 6);
    const std::int32_t max_length = draw(rng, min_length, 9);
    const std::int32_t max_tokens = draw(rng, 0, 9);
    INFO("case " << i);
    REQUIRE(found(text, min_length, max_length, max_tokens) ==
            searched(text, min_length, max_length, max_tokens));
  }
}

// The numbers are what vLLM 0.33's _find_longest_matched_ngram_and_propose_tokens gave for these
// texts.
TEST_CASE("a lookup drafts as vLLM's", "[ngram]") {
  struct Row {
    std::int32_t min_length, max_length, num_drafts;
    std::uint64_t vocab;
    std::int32_t max_model_len;
    int num_found, num_tokens;
    std::uint64_t digest;
  };
  const Row rows[] = {{1, 1, 3, 4, 64, 379, 1122, 0x4c0744d568c07006},
                      {1, 3, 4, 3, 64, 381, 1438, 0xc1525e97026340a8},
                      {2, 4, 8, 2, 64, 368, 2509, 0xe4bf9ea18f43d373},
                      {3, 5, 2, 2, 50, 266, 510, 0xe5165c76674433d1},
                      {5, 5, 5, 2, 64, 204, 966, 0x8363daa7d58982f5},
                      {2, 8, 40, 3, 64, 339, 4312, 0x9a09f8c130ee5394}};
  for (const Row& row : rows) {
    int num_found = 0;
    int num_tokens = 0;
    std::uint64_t digest = 0;
    for (std::uint64_t c = 0; c < 400; ++c) {
      Ids text;
      for (std::uint64_t i = 0; i <= mix64(c) % 61; ++i) {
        text.push_back(TokenId{static_cast<std::int32_t>(mix64(1000 * c + i) % row.vocab)});
      }
      const std::int32_t room = row.max_model_len - static_cast<std::int32_t>(text.size());
      const Ids draft =
          found(text, row.min_length, row.max_length, std::clamp(room, 0, row.num_drafts));
      num_found += draft.empty() ? 0 : 1;
      num_tokens += static_cast<int>(draft.size());
      for (const TokenId id : draft) {
        digest = mix64(digest ^ static_cast<std::uint64_t>(value(id) + 1));
      }
      digest = mix64(digest);
    }
    INFO(row.min_length << " to " << row.max_length);
    CHECK(num_found == row.num_found);
    CHECK(num_tokens == row.num_tokens);
    CHECK(digest == row.digest);
  }
}

}  // namespace metronome::testing::TEST_FILE
