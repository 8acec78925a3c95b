// SPDX-License-Identifier: Apache-2.0
// Texts that come token by token are the texts of all tokens, and never half a character.
#include "models/text/detokenizer.h"
#include "models/text/utf8.h"
#include "tests/catch.h"
#include "tests/models/text/tokenizer_fixtures.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// decode() as `tokenizers` describes it: all tokens first, then their bytes as a whole.
std::string decoded_plainly(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                            bool skips_special) {
  std::string text, run;
  const auto end_run = [&] {
    if (is_utf8(run)) {
      text += run;
    } else {
      for (std::size_t i = 0; i < run.size(); ++i) text += kReplacementCharacter;
    }
    run.clear();
  };
  std::string all;
  bool is_first = true;
  for (const TokenId id : ids) {
    if (tokenizer.kind(id) == TokenKind::None) continue;
    if (skips_special && tokenizer.is_special(id)) continue;
    all += is_first ? tokenizer.first_bytes_of(id) : tokenizer.bytes_of(id);
    is_first = false;
    if (tokenizer.kind(id) == TokenKind::Byte) {
      run += tokenizer.bytes_of(id);
    } else {
      end_run();
      text += tokenizer.bytes_of(id);
    }
  }
  end_run();
  if (!tokenizer.decode_rule().has_byte_runs) {
    text.clear();
    append_replaced(all, text);
  }
  for (std::int64_t i = 0; i < tokenizer.decode_rule().num_stripped; ++i) {
    if (!text.starts_with(tokenizer.decode_rule().stripped)) break;
    text.erase(0, tokenizer.decode_rule().stripped.size());
  }
  return text;
}

void check_random_ids(const Tokenizer& tokenizer, Rng& rng) {
  for (int i = 0; i < 500; ++i) {
    const std::vector<TokenId> ids = random_ids(rng, tokenizer);
    const bool skips_special = chance(rng, 0.5);
    CAPTURE(to_numbers(ids), skips_special);
    Detokenizer detokenizer(tokenizer, skips_special);
    for (int round = 0; round < 2; ++round) {  // a new text may begin
      std::string text;
      for (const TokenId id : ids) {
        std::string part;
        detokenizer.push(id, part);
        REQUIRE(is_utf8(part));
        text += part;
      }
      detokenizer.finish(text);
      REQUIRE(text == decoded_plainly(tokenizer, ids, skips_special));
      REQUIRE(text == decode(tokenizer, ids, skips_special));
    }
  }
}

// The text that is appended for each of the ids, and at the end.
std::vector<std::string> parts_of(const Tokenizer& tokenizer, const std::vector<TokenId>& ids) {
  Detokenizer detokenizer(tokenizer, true);
  std::vector<std::string> parts;
  for (const TokenId id : ids) detokenizer.push(id, parts.emplace_back());
  detokenizer.finish(parts.emplace_back());
  return parts;
}

}  // namespace

TEST_CASE("token by token gives the text of all tokens", "[detokenizer]") {
  constexpr std::uint64_t kSeed = 21;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "ids");
  for (const std::string name : kTokenizerFixtures) {
    INFO(name);
    check_random_ids(*fixture_tokenizer(name), rng);
  }
  check_random_ids(*byte_tokenizer(), rng);
}

TEST_CASE("a character goes out when it is whole", "[detokenizer]") {
  const auto bytes = byte_tokenizer();
  using Parts = std::vector<std::string>;
  CHECK(parts_of(*bytes, bytes->encode("a\xe2\x82\xac!", false)) ==
        Parts{"a", "", "", "\u20ac", "!", ""});
  // Bytes that can become no character any more are replaced at once.
  CHECK(parts_of(*bytes, bytes->encode("\xe2(", false)) == Parts{"", "\ufffd(", ""});
  CHECK(parts_of(*bytes, bytes->encode("\xff\xf0\x9f", false)) ==
        Parts{"\ufffd", "", "", "\ufffd"});
}

TEST_CASE("a run of byte tokens goes out when it is whole", "[detokenizer]") {
  const auto gemma3 = fixture_tokenizer("gemma3");
  const auto ids = [&](std::initializer_list<const char*> tokens) {
    std::vector<TokenId> found;
    for (const char* token : tokens) found.push_back(gemma3->find(token).value());
    return found;
  };
  using Parts = std::vector<std::string>;
  CHECK(parts_of(*gemma3, ids({"a", "<0xE2>", "<0x82>", "<0xAC>", "b"})) == Parts{"a", "", "", "",
                                                                                  "\u20ac"
                                                                                  "b",
                                                                                  ""});
  // One that is not UTF-8 is replaced byte by byte, its valid part as well.
  CHECK(parts_of(*gemma3, ids({"<0x41>", "<0xFF>", "b"})) == Parts{"", "",
                                                                   "\ufffd\ufffd"
                                                                   "b",
                                                                   ""});
  // Special tokens are left out before runs are looked at.
  CHECK(parts_of(*gemma3, ids({"<0xC3>", "<eos>", "<0xA9>"})) == Parts{"", "", "", "\u00e9"});
}

TEST_CASE("Metaspace leaves the spaces of a text's first token out", "[detokenizer]") {
  const auto mistral = fixture_tokenizer("mistral");
  const std::vector<TokenId> ids = mistral->encode(" the the", false);
  REQUIRE(ids.size() >= 2);
  CHECK(decode(*mistral, ids, true) == "the the");
  Detokenizer detokenizer(*mistral, true);
  for (int round = 0; round < 2; ++round) {  // a new text begins with a first token again
    std::string text;
    for (const TokenId id : ids) detokenizer.push(id, text);
    detokenizer.finish(text);
    CHECK(text == "the the");
  }
}

}  // namespace TEST_FILE
