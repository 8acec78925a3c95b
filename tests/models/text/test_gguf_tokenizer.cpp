// SPDX-License-Identifier: Apache-2.0
// Tokenizers of GGUF files: beside tokenizer.json files of the same tokens, beside a merge loop
// that is plain, and ones that are wrong.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "models/text/gguf_splits.h"
#include "models/text/gguf_tokenizer.h"
#include "models/text/text_steps.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/gguf/gguf_bytes.h"
#include "tests/models/text/tokenizer_fixtures.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using namespace metronome::testing;

constexpr std::int32_t kNormal = 1, kUnknown = 2, kControl = 3, kUser = 4, kByte = 6;

std::unique_ptr<Tokenizer> made(const GgufBytes& bytes) {
  const std::string stored = bytes.bytes();
  return make_gguf_tokenizer(GgufFile(bytes_of_text(stored), "m.gguf"));
}

std::string error(const GgufBytes& bytes) {
  return error_of([&] { made(bytes); });
}

std::vector<std::int32_t> encoded(const Tokenizer& tokenizer, std::string_view text,
                                  bool add_special_tokens = false) {
  return to_numbers(tokenizer.encode(text, add_special_tokens));
}

// The tokens and merges of a fixture as a GGUF file.
GgufBytes of_fixture(const std::string& name, const std::string& pre) {
  const Json file = read_fixture_json(name + ".json");
  std::map<std::int64_t, std::string> by_id;
  for (const Json::Member& member : file.at("model").at("vocab").items()) {
    by_id[member.value.get<std::int64_t>()] = member.key;
  }
  std::vector<std::int32_t> types(by_id.size(), kNormal);
  for (const Json& token : file.at("added_tokens")) {
    by_id[token.at("id").get<std::int64_t>()] = token.at("content").string();
    types.push_back(token.at("special").get<bool>() ? kControl : kUser);
  }
  std::vector<std::string> tokens, merges;
  for (const auto& [id, token] : by_id) tokens.push_back(token);
  for (const Json& merge : file.at("model").at("merges")) {
    merges.push_back(merge.is_string() ? merge.string()
                                       : merge[0].string() + " " + merge[1].string());
  }
  GgufBytes bytes;
  bytes.text("tokenizer.ggml.model", "gpt2").text("tokenizer.ggml.pre", pre);
  bytes.texts("tokenizer.ggml.tokens", tokens).i32s("tokenizer.ggml.token_type", types);
  return bytes.texts("tokenizer.ggml.merges", merges);
}

TEST_CASE("byte-level GGUF tokenizers are those of their tokenizer.json", "[core][gguf]") {
  const std::uint64_t seed = 30;
  CAPTURE(seed);
  for (const auto& [name, pre] : {std::pair("llama3", "llama-bpe"), std::pair("qwen3", "qwen2")}) {
    INFO(name);
    const auto theirs = fixture_tokenizer(name);
    const auto ours = made(of_fixture(name, pre));
    CHECK(ours->vocab_size() == theirs->vocab_size());
    CHECK(ours->chat_family() == theirs->chat_family());
    Rng rng(seed, name);
    for (int i = 0; i < 500; ++i) {
      const std::string text = random_text(rng, 40) + "<|eot_id|><think>" + random_bytes(rng, 20);
      CHECK(encoded(*ours, text) == encoded(*theirs, text));
      const std::vector<TokenId> ids = random_ids(rng, *theirs);
      CHECK(decode(*ours, ids, true) == decode(*theirs, ids, true));
      CHECK(decode(*ours, ids, false) == decode(*theirs, ids, false));
    }
  }
}

// Of a text with a split's steps alone.
std::vector<std::string> pieces_of(const GgufSplit& split, const std::string& text) {
  std::vector<PreTokenizerStep> steps;
  for (const std::string& pattern : split.patterns) {
    steps.emplace_back().pattern = SplitPattern::regex(pattern);
  }
  SplitBudget budget(text.size());
  Pieces pieces;
  pieces.split(text, true, steps, budget);
  return {pieces.all().begin(), pieces.all().end()};
}

// The fixture has the words of llama.cpp's own splitter (unicode_regex_split() in src/unicode.cpp
// of the source package of llama-cpp-python 0.3.36) for the names that it compares with. Where that
// splitter has no cases of letters, marks or digits, the words are those of the package
// `tokenizers` with the pattern of the models' tokenizer.json.
TEST_CASE("a name splits a text as llama.cpp and the models' tokenizers do", "[core][gguf]") {
  const Json fixture = read_fixture_json("gguf_splits.json");
  const std::string text = fixture.at("text").string();
  std::size_t num_names = 0;
  for (const char* const source : {"llama.cpp", "tokenizers"}) {
    for (const Json& group : fixture.at(source)) {
      std::vector<std::string> expected;
      for (const Json& piece : group.at("pieces")) expected.push_back(piece.string());
      for (const Json& name : group.at("names")) {
        INFO(name.string());
        ++num_names;
        const GgufSplit* split = find_gguf_split(name.string());
        REQUIRE(split != nullptr);
        CHECK(pieces_of(*split, text) == expected);
      }
    }
  }
  CHECK(num_names == 91);
  CHECK(gguf_split_names().size() == num_names);
}

TEST_CASE("a name has the flags of llama.cpp", "[core][gguf]") {
  for (const auto& [pre, same] :
       {std::pair("deepseek-r1-qwen", "qwen2"), std::pair("falcon3", "llama3")}) {
    const auto ours = made(of_fixture("qwen3", pre));
    const auto theirs = made(of_fixture("qwen3", same));
    for (const char* text : {"hi there 123", "I'll, e\xcc\x81 <|im_start|>", " \n\n x"}) {
      CHECK(encoded(*ours, text) == encoded(*theirs, text));
    }
  }
}

// Gemma 4: merges of characters, U+2581 for spaces, and bytes for characters without a token.
TEST_CASE("a GGUF tokenizer of gemma4 merges characters", "[core][gguf]") {
  GgufBytes bytes;
  const std::vector<std::string> tokens = {"<pad>",
                                           "<eos>",
                                           "<bos>",
                                           "<unk>",
                                           "\xe2\x96\x81",
                                           "a",
                                           "b",
                                           "\n",
                                           "<0xC3>",
                                           "<0xA9>",
                                           "ab",
                                           "\xe2\x96\x81"
                                           "ab",
                                           "\n\n"};
  std::vector<std::int32_t> types(tokens.size(), kNormal);
  for (std::size_t i = 0; i < 4; ++i) types[i] = kControl;
  types[8] = types[9] = kByte;
  bytes.text("tokenizer.ggml.model", "gemma4").texts("tokenizer.ggml.tokens", tokens);
  bytes.i32s("tokenizer.ggml.token_type", types).u32("tokenizer.ggml.bos_token_id", 2);
  bytes.texts("tokenizer.ggml.merges", {"a b", "\xe2\x96\x81 ab", "\n \n"});
  const auto tokenizer = made(bytes);
  CHECK(encoded(*tokenizer, "ab ab\n\na\xc3\xa9<eos>") ==
        std::vector<std::int32_t>{10, 11, 12, 5, 8, 9, 1});
  CHECK(encoded(*tokenizer, " ", true) == std::vector<std::int32_t>{2, 4});
  CHECK(decode(*tokenizer, tokenizer->encode("ab ab\n\na\xc3\xa9", false), false) ==
        "ab ab\n\na\xc3\xa9");
}

// SentencePiece's merging as its paper says it: of all neighbours whose text is a token, those of
// the highest score merge, of equals the leftmost; then characters without a token become bytes.
std::vector<std::int32_t> merged_plainly(const std::string& text,
                                         const std::vector<std::string>& tokens,
                                         const std::vector<float>& scores,
                                         const std::vector<std::int32_t>& types) {
  std::map<std::string, std::int32_t> ids;
  for (std::size_t i = 0; i < tokens.size(); ++i) ids[tokens[i]] = static_cast<std::int32_t>(i);
  std::vector<std::string> symbols;
  for (std::string_view rest = text; !rest.empty();) {
    const std::size_t size = read_utf8(rest).num_bytes;
    symbols.emplace_back(rest.substr(0, size));
    rest.remove_prefix(size);
  }
  for (;;) {
    std::size_t best = symbols.size();
    float score = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ids.find(symbols[i] + symbols[i + 1]);
      if (found == ids.end() || types[static_cast<std::size_t>(found->second)] != kNormal) continue;
      const float made = scores[static_cast<std::size_t>(found->second)];
      if (best == symbols.size() || made > score) {
        best = i;
        score = made;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  std::vector<std::int32_t> result;
  for (const std::string& symbol : symbols) {
    const auto found = ids.find(symbol);
    if (found != ids.end()) {
      result.push_back(found->second);
      continue;
    }
    for (const char c : symbol) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      const auto byte = static_cast<unsigned char>(c);
      result.push_back(ids.at(std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">"));
    }
  }
  return result;
}

struct Vocabulary {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<std::int32_t> types = {kUnknown, kControl, kControl};
  std::vector<float> scores = {0, 0, 0};

  void add(const std::string& token, std::int32_t type, float score) {
    if (std::find(tokens.begin(), tokens.end(), token) != tokens.end()) return;
    tokens.push_back(token);
    types.push_back(type);
    scores.push_back(score);
  }
  void add_bytes() {
    constexpr std::string_view kDigits = "0123456789ABCDEF";
    for (std::size_t i = 0; i < 256; ++i) {
      add(std::string("<0x") + kDigits[i / 16] + kDigits[i % 16] + ">", kByte, 0);
    }
  }
  GgufBytes bytes() const {
    GgufBytes file;
    file.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", tokens);
    return file.i32s("tokenizer.ggml.token_type", types).floats("tokenizer.ggml.scores", scores);
  }
};

TEST_CASE("tokens merge by score, the leftmost of equals first", "[core][gguf]") {
  const std::uint64_t seed = 31;
  CAPTURE(seed);
  Rng rng(seed, "scores");
  for (int i = 0; i < 40; ++i) {
    Vocabulary vocabulary;
    vocabulary.add_bytes();
    const std::vector<std::string> letters = {"a", "b", "\xc3\xa9", "\xe2\x96\x81"};
    for (const std::string& letter : letters) vocabulary.add(letter, kNormal, -100);
    for (int k = 0; k < 30; ++k) {
      // Tokens of tokens, so that most can be made; few scores, so that many are equal.
      const auto any = [&] {
        const auto from = static_cast<std::int32_t>(vocabulary.tokens.size());
        return vocabulary.tokens[static_cast<std::size_t>(draw(rng, 259, from - 1))];
      };
      const std::string token = any() + any();
      if (token.size() < 30) {
        vocabulary.add(token, kNormal, static_cast<float>(-draw(rng, 0, 6)));
      }
    }
    GgufBytes bytes = vocabulary.bytes();
    const auto tokenizer = made(bytes.truth("tokenizer.ggml.add_space_prefix", false));
    for (int n = 0; n < 30; ++n) {
      std::string text;
      for (std::int32_t left = draw(rng, 0, 90); left > 0; --left) {
        text += chance(rng, 0.05) ? "z" : letters[static_cast<std::size_t>(draw(rng, 0, 3))];
      }
      const auto expected =
          merged_plainly(text, vocabulary.tokens, vocabulary.scores, vocabulary.types);
      CHECK(encoded(*tokenizer, text) == expected);
    }
  }
}

TEST_CASE("spaces, user-defined tokens and bytes of a SentencePiece vocabulary", "[core][gguf]") {
  Vocabulary vocabulary;
  vocabulary.add_bytes();
  for (const char* letter : {"a", "b", "\xe2\x96\x81"}) vocabulary.add(letter, kNormal, -9);
  vocabulary.add(
      "\xe2\x96\x81"
      "a",
      kNormal, -1);
  vocabulary.add("  ", kUser, -1000);  // two spaces, as the conversion writes them
  const auto id = [&](const std::string& token) {
    const auto found = std::find(vocabulary.tokens.begin(), vocabulary.tokens.end(), token);
    return static_cast<std::int32_t>(found - vocabulary.tokens.begin());
  };
  const std::string space = "\xe2\x96\x81";
  using Ids = std::vector<std::int32_t>;
  GgufBytes bytes = vocabulary.bytes();
  const auto plain = made(bytes);
  CHECK(encoded(*plain, "a a") == Ids{id(space + "a"), id(space + "a")});
  CHECK(encoded(*plain, "a", true) == Ids{1, id(space + "a")});
  CHECK(encoded(*plain, "").empty());
  CHECK(encoded(*plain, "b  a") == Ids{id(space), id("b"), id("  "), id("a")});
  CHECK(encoded(*plain, "b</s>a") == Ids{id(space), id("b"), 2, id(space + "a")});
  CHECK(encoded(*plain, "\xe2\x82\xac").size() == 4);
  CHECK(decode(*plain, plain->encode("a  b \xe2\x82\xac", false), true) == "a  b \xe2\x82\xac");
  CHECK(plain->is_special(TokenId{2}));
  CHECK(!plain->is_special(TokenId{id("  ")}));
  CHECK(plain->kind(TokenId{3}) == TokenKind::Byte);
  GgufBytes other = vocabulary.bytes();
  other.truth("tokenizer.ggml.add_space_prefix", false);
  other.truth("tokenizer.ggml.add_bos_token", false).truth("tokenizer.ggml.add_eos_token", true);
  const auto bare = made(other.u32("tokenizer.ggml.eos_token_id", 2));
  CHECK(encoded(*bare, "a a", true) == Ids{id("a"), id(space + "a"), 2});
  CHECK(decode(*bare, bare->encode(" a", false), true) == " a");
}

TEST_CASE("tokens around a byte-level text", "[core][gguf]") {
  GgufBytes bytes = of_fixture("llama3", "llama-bpe");
  const auto first = made(bytes)->find("<|begin_of_text|>");
  REQUIRE(first);
  // Llama 3 adds it unless the file says otherwise, and cannot without its id.
  CHECK(made(bytes)->encode("a", true).size() == 1);
  bytes.u32("tokenizer.ggml.bos_token_id", static_cast<std::uint32_t>(value(*first)));
  CHECK(made(bytes)->encode("a", true).front() == *first);
  bytes.truth("tokenizer.ggml.add_bos_token", false);
  CHECK(made(bytes)->encode("a", true).size() == 1);
}

TEST_CASE("a GGUF file is a tokenizer by its path", "[core][gguf]") {
  const ScratchFolder folder;
  GgufBytes bytes = of_fixture("qwen3", "qwen2");
  const std::string path = folder.write("m.gguf", bytes.bytes());
  CHECK(read_tokenizer(path)->find("<|im_end|>"));
}

TEST_CASE("what is wrong with a GGUF tokenizer is one line", "[core][gguf]") {
  CHECK(error(GgufBytes().text("a", "b")) ==
        "m.gguf: tokenizer.ggml.tokens: are missing; allowed: an array of STRING");
  const std::vector<std::string> tokens = {"a", "b"};
  const auto with = [&](const std::string& model) {
    GgufBytes bytes;
    return bytes.text("tokenizer.ggml.model", model).texts("tokenizer.ggml.tokens", tokens);
  };
  CHECK(error(GgufBytes().texts("tokenizer.ggml.tokens", tokens)) ==
        "m.gguf: tokenizer.ggml.model: is missing; allowed: gpt2, gemma4, llama");
  CHECK(error(with("bert")) ==
        "m.gguf: tokenizer.ggml.model: 'bert' is not supported; allowed: gpt2, gemma4, llama");
  CHECK(
      error(with("gpt2").text("tokenizer.ggml.pre", "qwen3"))
          .starts_with("m.gguf: tokenizer.ggml.pre: 'qwen3' is not known, did you mean 'qwen35'?; "
                       "allowed: default, gpt-2, phi-2, "));
  CHECK(error(with("gpt2")) ==
        "m.gguf: tokenizer.ggml.merges: are missing; allowed: an array of STRING");
  CHECK(error(with("gpt2").texts("tokenizer.ggml.merges", {"ab"})) ==
        "m.gguf: tokenizer.ggml.merges: has at 0 'ab', which is not a pair; allowed: \"left "
        "right\"");
  CHECK(error(with("gpt2").texts("tokenizer.ggml.merges", {"a b"})) ==
        "m.gguf: model: merges[0]: 'ab' is not in the vocabulary; allowed: tokens of the "
        "vocabulary");
  CHECK(error(with("llama")) ==
        "m.gguf: tokenizer.ggml.scores: are missing; allowed: an array of FLOAT32");
  CHECK(error(with("llama").floats("tokenizer.ggml.scores", {1})) ==
        "m.gguf: tokenizer.ggml.scores: has 1 elements; allowed: 2, one for each token");
  CHECK(error(with("llama").i32s("tokenizer.ggml.token_type", {1, 1, 1})) ==
        "m.gguf: tokenizer.ggml.token_type: has 3 elements; allowed: 2, one for each token");
  CHECK(error(with("llama").floats("tokenizer.ggml.scores", {1, NAN})) ==
        "m.gguf: tokenizer.ggml.scores: has at 1 NaN; allowed: numbers");
  CHECK(error(with("llama")
                  .floats("tokenizer.ggml.scores", {1, 2})
                  .u32("tokenizer.ggml.bos_token_id", 2)) ==
        "m.gguf: tokenizer.ggml.bos_token_id: is 2; allowed: 0 to 1");
  GgufBytes twice;
  twice.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"a", "a"});
  CHECK(error(twice.floats("tokenizer.ggml.scores", {1, 2})) ==
        "m.gguf: model: vocab: 'a': appears twice; allowed: once");
  GgufBytes broken;
  broken.text("tokenizer.ggml.model", "llama").texts("tokenizer.ggml.tokens", {"\xff", "a"});
  CHECK(error(broken.floats("tokenizer.ggml.scores", {1, 2})) ==
        "m.gguf: tokenizer.ggml.tokens: has at 0 '\\xff', which is not UTF-8; allowed: UTF-8");
  GgufBytes long_one;
  long_one.text("tokenizer.ggml.model", "llama");
  long_one.texts("tokenizer.ggml.tokens", {std::string(1025, 'a'), "a"});
  CHECK(error(long_one.floats("tokenizer.ggml.scores", {1, 2})) ==
        "m.gguf: tokenizer.ggml.tokens: has at 0 one of 1025 bytes; allowed: at most 1024");
}

}  // namespace
}  // namespace metronome::TEST_FILE
