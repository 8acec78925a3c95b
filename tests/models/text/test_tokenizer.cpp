// SPDX-License-Identifier: Apache-2.0
// Tokenizers against the `tokenizers` package (goldens of tools/tokenizer_parity), against a merge
// loop that is plain, and on what nobody would write.
#include <algorithm>
#include <map>
#include <stdexcept>
#include <thread>

#include "core/base/json.h"
#include "models/text/added_tokens.h"
#include "models/text/split_pattern.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/models/text/tokenizer_fixtures.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  }
  return bytes;
}

std::string replaced(std::string_view bytes) {
  std::string text;
  append_replaced(bytes, text);
  return text;
}

// Byte-pair encoding by definition: of all neighbours that merge, the pair of lowest rank merges,
// of equals the leftmost; again and again.
std::vector<std::string> merged_plainly(std::vector<std::string> symbols, const Json& merges) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < merges.size(); ++rank) {
    ranks[{merges[rank][0].string(), merges[rank][1].string()}] = rank;
  }
  for (;;) {
    std::size_t best = merges.size(), at = 0;
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto found = ranks.find({symbols[i], symbols[i + 1]});
      if (found != ranks.end() && found->second < best) {
        best = found->second;
        at = i;
      }
    }
    if (best == merges.size()) return symbols;
    symbols[at] += symbols[at + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  }
}

// The message with which a fixture is refused after `change`.
template <class Change>
std::string refusal(const std::string& fixture, const Change& change) {
  Json file = read_fixture_json(fixture + ".json");
  change(file);
  return error_of([&] { parse_tokenizer(file.dump(), "t.json"); });
}

}  // namespace

TEST_CASE("texts have the ids that the tokenizers package gives them", "[tokenizer]") {
  for (const std::string name : kTokenizerFixtures) {
    const auto tokenizer = fixture_tokenizer(name);
    const Json golden = read_fixture_json(name + ".golden.json");
    REQUIRE(golden.at("encode").size() > 30);
    for (const Json& entry : golden.at("encode")) {
      INFO(name << ": " << entry.at("text"));
      const std::string text = entry.at("text").string();
      CHECK(to_numbers(tokenizer->encode(text, false)) == entry.at("ids"));
      CHECK(to_numbers(tokenizer->encode(text, true)) == entry.at("special_ids"));
    }
    for (const Json& entry : golden.at("bytes")) {
      INFO(name << ": " << entry.at("hex"));
      CHECK(to_numbers(tokenizer->encode(from_hex(entry.at("hex").string()), false)) ==
            entry.at("ids"));
    }
  }
}

TEST_CASE("ids have the text that the tokenizers package gives them", "[tokenizer]") {
  for (const std::string name : kTokenizerFixtures) {
    const auto tokenizer = fixture_tokenizer(name);
    const Json golden = read_fixture_json(name + ".golden.json");
    for (const Json& entry : golden.at("decode")) {
      INFO(name << ": " << entry.at("ids"));
      CHECK(decode(*tokenizer, to_ids(entry.at("ids")), entry.at("skip").get<bool>()) ==
            entry.at("text"));
    }
  }
}

TEST_CASE("a text comes back from its ids", "[tokenizer]") {
  constexpr std::uint64_t kSeed = 11;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "texts");
  const auto llama3 = fixture_tokenizer("llama3");
  const auto gemma3 = fixture_tokenizer("gemma3");
  const auto bytes = byte_tokenizer();
  for (int i = 0; i < 400; ++i) {
    const std::string text = random_bytes(rng, 60);
    CAPTURE(text);
    CHECK(decode(*llama3, llama3->encode(text, false), false) == replaced(text));
    CHECK(decode(*llama3, llama3->encode(text, true), true) == replaced(text));
    CHECK(decode(*gemma3, gemma3->encode(text, true), true) == replaced(text));
    CHECK(decode(*bytes, bytes->encode(text, true), true) == replaced(text));
    CHECK(bytes->encode(text, false).size() == text.size());
  }
}

TEST_CASE("any bytes have ids, and any ids a text", "[tokenizer]") {
  constexpr std::uint64_t kSeed = 14;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "bytes");
  for (const std::string name : kTokenizerFixtures) {
    const auto tokenizer = fixture_tokenizer(name);
    for (int i = 0; i < 300; ++i) {
      std::string bytes = random_bytes(rng, 30);
      if (i % 3 == 0) {
        for (char& c : bytes) c = static_cast<char>(draw(rng, 0, 255));
      }
      CAPTURE(name, bytes);
      const std::vector<TokenId> ids = tokenizer->encode(bytes, chance(rng, 0.5));
      for (const TokenId id : ids) REQUIRE(tokenizer->kind(id) != TokenKind::None);
      REQUIRE(is_utf8(decode(*tokenizer, ids, true)));
      // Bytes that are read as U+FFFD are read like it.
      REQUIRE(tokenizer->encode(replaced(bytes), false) == tokenizer->encode(bytes, false));
    }
  }
}

TEST_CASE("words merge as byte-pair encoding says", "[tokenizer]") {
  constexpr std::uint64_t kSeed = 12;
  INFO("seed " << kSeed);
  Rng rng(kSeed, "words");
  Json file = read_fixture_json("gemma3.json");
  file["pre_tokenizer"] = nullptr;
  const auto tokenizer = parse_tokenizer(file.dump(), "t.json");
  const Json& merges = file.at("model").at("merges");
  const Json& vocab = file.at("model").at("vocab");
  for (int i = 0; i < 150; ++i) {
    // Of few letters, so that much merges; up to and beyond what is merged without a heap.
    std::string word;
    std::vector<std::string> symbols;
    for (std::int32_t n = draw(rng, 1, chance(rng, 0.5) ? 45 : 200); n > 0; --n) {
      symbols.emplace_back(1, "abehinorst"[draw(rng, 0, 9)]);
      word += symbols.back();
    }
    CAPTURE(word);
    std::vector<std::int32_t> expected;
    for (const std::string& token : merged_plainly(symbols, merges)) {
      expected.push_back(vocab.at(token).get<std::int32_t>());
    }
    CHECK(to_numbers(tokenizer->encode(word, false)) == expected);
  }
}

TEST_CASE("a long word is no trouble", "[tokenizer]") {
  // Were its time quadratic, this would take minutes.
  const std::string word(1'000'000, 'e');
  for (const std::string name : {"llama3", "qwen3", "gemma3"}) {
    const auto tokenizer = fixture_tokenizer(name);
    CHECK(decode(*tokenizer, tokenizer->encode(word, false), false) == word);
  }
}

TEST_CASE("many marks on a letter are no trouble", "[tokenizer][utf8]") {
  std::string text = "a", above, below;
  for (int i = 0; i < 100'000; ++i) {
    text += "\u0301\u0323";
    if (i > 0) below += "\u0323";
    above += "\u0301";
  }
  CHECK(to_nfc(text) == "\u1ea1" + below + above);
  CHECK(to_nfc("e\u0323\u0302 \u1100\u1161\u11a8 \u212b") == "\u1ec7 \uac01 \u00c5");
}

TEST_CASE("a tokenizer is used by several threads at once", "[tokenizer]") {
  const auto tokenizer = fixture_tokenizer("qwen3");
  Rng rng(13, "texts");
  std::string text;
  for (int i = 0; i < 50; ++i) text += random_text(rng, 100);
  const std::vector<TokenId> expected = tokenizer->encode(text, false);
  std::vector<std::vector<TokenId>> found(4);
  std::vector<std::thread> threads;
  for (auto& ids : found) threads.emplace_back([&] { ids = tokenizer->encode(text, false); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& ids : found) CHECK(ids == expected);
}

TEST_CASE("a tokenizer knows its tokens", "[tokenizer]") {
  const auto llama3 = fixture_tokenizer("llama3");
  CHECK(llama3->chat_family() == ChatFamily::Llama3);
  CHECK(llama3->vocab_size() == 809);
  const TokenId end = llama3->find("<|eot_id|>").value();
  CHECK(llama3->is_special(end));
  CHECK(llama3->bytes_of(end) == "<|eot_id|>");
  const TokenId word = llama3->find("\u0120chunking").value();
  CHECK_FALSE(llama3->is_special(word));
  CHECK(llama3->bytes_of(word) == " chunking");
  CHECK(llama3->encode(" chunking", false) == std::vector<TokenId>{word});
  CHECK(llama3->kind(word) == TokenKind::Text);
  CHECK_FALSE(llama3->find("<|eot_id").has_value());
  for (const std::int32_t id : {-1, 809, INT32_MAX, INT32_MIN}) {
    CHECK(llama3->bytes_of(TokenId{id}).empty());
    CHECK(llama3->kind(TokenId{id}) == TokenKind::None);
    CHECK_FALSE(llama3->is_special(TokenId{id}));
  }

  const auto qwen3 = fixture_tokenizer("qwen3");
  CHECK(qwen3->chat_family() == ChatFamily::Qwen3);
  CHECK(qwen3->is_special(qwen3->find("<|im_end|>").value()));
  CHECK_FALSE(qwen3->is_special(qwen3->find("<think>").value()));

  const auto gemma3 = fixture_tokenizer("gemma3");
  CHECK(gemma3->chat_family() == ChatFamily::Gemma3);
  const TokenId byte = gemma3->find("<0xE2>").value();
  CHECK(gemma3->kind(byte) == TokenKind::Byte);
  CHECK(gemma3->bytes_of(byte) == "\xe2");
  CHECK(gemma3->bytes_of(gemma3->find("\u2581\u2581").value()) == "  ");

  const auto bytes = byte_tokenizer();
  CHECK(bytes->chat_family() == ChatFamily::None);
  CHECK(bytes->vocab_size() == 256);
  CHECK(to_numbers(bytes->encode("a\xff", true)) == std::vector<std::int32_t>{97, 255});
  CHECK(bytes->find("\xff") == TokenId{255});
  CHECK_FALSE(bytes->find("ab").has_value());
  CHECK(bytes->bytes_of(TokenId{256}).empty());
  // Tokens that are looked for in the normalised text read as they stand there.
  const auto gpt2 = fixture_tokenizer("gpt2");
  CHECK(gpt2->chat_family() == ChatFamily::None);
  CHECK(gpt2->bytes_of(gpt2->find("zzzz").value()) == "Zz");
}

TEST_CASE("unknown characters, whole words, empty texts", "[tokenizer]") {
  const auto make = [](const std::string& model, const std::string& more = "") {
    return parse_tokenizer(
        R"({"decoder": {"type": "Fuse"}, "model": {"merges": ["#version: 0.2", "a b"],)"
        R"("vocab": {"a": 0, "b": 1, "ab": 2, "?": 3, "ba": 4, "<0x41>": 5},)" +
            model + "}" + more + "}",
        "t.json");
  };
  const auto ids = [](const Tokenizer& tokenizer, const std::string& text) {
    return to_numbers(tokenizer.encode(text, false));
  };
  using Ids = std::vector<std::int32_t>;
  CHECK(ids(*make(R"("fuse_unk": false)"), "abxxba") == Ids{2, 1, 0});
  CHECK(ids(*make(R"("unk_token": "?", "fuse_unk": false)"), "abxxb") == Ids{2, 3, 3, 1});
  CHECK(ids(*make(R"("unk_token": "?", "fuse_unk": true)"), "xxabxx") == Ids{3, 2, 3});
  CHECK(ids(*make(R"("ignore_merges": true)"), "ba") == Ids{4});
  // A piece that is no whole token is merged as ever.
  CHECK(ids(*make(R"("ignore_merges": true)"), "bab") == Ids{1, 2});
  const std::string normalizer = R"(, "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Replace", "pattern": {"String": "x"}, "content": ""},
      {"type": "Prepend", "prepend": "a"}]})";
  const auto prepending = make(R"("fuse_unk": false)", normalizer);
  CHECK(ids(*prepending, "xb") == Ids{2});
  CHECK(ids(*prepending, "x") == Ids{});
  // Only where the decoder has byte fallback.
  CHECK(prepending->kind(TokenId{5}) == TokenKind::Text);
  CHECK(prepending->bytes_of(TokenId{5}) == "<0x41>");
}

TEST_CASE("a pattern matches at lines, and may match nothing", "[tokenizer]") {
  const auto split = [](const SplitPattern& pattern, const std::string& text) {
    std::vector<SplitSpan> spans;
    pattern.split(text, spans);
    std::string shown;
    for (const SplitSpan& span : spans) {
      const std::string part = text.substr(span.begin, span.end - span.begin);
      shown += span.is_match ? "[" + part + "]" : part;
    }
    return shown;
  };
  CHECK(split(SplitPattern::regex("^a"), "aa\naa") == "[a]a\n[a]a");
  CHECK(split(SplitPattern::regex("b*"), "abbc") == "[]a[bb]c[]");
  CHECK(split(SplitPattern::regex("(?=b)"), "\u00e9b") == "\u00e9[]b");
  CHECK(split(SplitPattern::regex("[\\s]+"), "a\u2003\u0085 b\u180e") == "a[\u2003\u0085 ]b\u180e");
  CHECK(split(SplitPattern::regex("\\S+"), "a\u180e b") == "[a\u180e] [b]");
  // Oniguruma's meanings, where PCRE2 has another: words have marks, \\h is no space, a script has
  // its own characters only, classes nest and intersect.
  CHECK(split(SplitPattern::regex("\\w+"), "\u0915\u094d\u0937\u093f a_1!") ==
        "[\u0915\u094d\u0937\u093f] [a_1]!");
  CHECK(split(SplitPattern::regex("\\h+"), "a1 zF") == "[a1] z[F]");
  CHECK(split(SplitPattern::regex("\\p{Han}+"), "\u8c03\u5ea6\u3002\u4eca") ==
        "[\u8c03\u5ea6]\u3002[\u4eca]");
  CHECK(split(SplitPattern::regex("[\\p{L}&&[^\\p{Han}]]+"), "pi\u00f1\u4e2da") ==
        "[pi\u00f1]\u4e2d[a]");
  CHECK(split(SplitPattern::regex(" ?[^(\\s|[.,!])]+"), "ab, c(d)") == "[ab],[ c]([d])");
  CHECK(split(SplitPattern::regex("[a[b-d]&&[c-z]]+"), "abcdz") == "ab[cd]z");
  CHECK(split(SplitPattern::regex("[[a]^b]+"), "a^bc") == "[a^b]c");
  CHECK(split(SplitPattern::regex("[a[b]-z]+"), "ab-zc") == "[ab-z]c");
  CHECK(split(SplitPattern::regex("[a-[b]c]+"), "a-bcd") == "[a-bc]d");
  CHECK(split(SplitPattern::regex("[\\s-a]+"), " -ab") == "[ -a]b");
  CHECK(split(SplitPattern::regex("[a-z&&^b]+"), "b^") == "[b]^");
  CHECK(split(SplitPattern::regex("[\\w]+|\\w"), "a\u00b2") == "[a][\u00b2]");  // not in a class
  CHECK(split(SplitPattern::regex("\\x{3000}+"), "a\u3000") == "a[\u3000]");
  CHECK(split(SplitPattern::regex("\\p{Yi}+"), "\ua000\u3001") == "[\ua000]\u3001");
  CHECK(split(SplitPattern::regex("\\v"), "a\v\n") == "a[\v]\n");
  CHECK(error_of<std::invalid_argument>([] { SplitPattern::regex("\\p{N}{1,3}+"); }) ==
        "a plus behind {1,3} is not supported");
  CHECK(error_of<std::invalid_argument>([] { SplitPattern::regex(std::string(9999, '[')); }) ==
        "too many classes in classes");
  CHECK(split(SplitPattern::literal("aa"), "aaaba") == "[aa]aba");
  CHECK(split(SplitPattern::literal("aa"), "") == "");
}

TEST_CASE("an added token of white space that another has stripped is gone", "[tokenizer]") {
  const AddedToken end{.id = TokenId{5}, .content = "<e>", .strips_right = true};
  const AddedToken lines{.id = TokenId{6}, .content = "\n\n", .strips_left = true};
  const AddedTokenFinder finder({{end.content, end}, {lines.content, lines}});
  std::vector<AddedSpan> spans;
  finder.split("<e>\n\nb \n\n", spans);
  REQUIRE(spans.size() == 3);
  CHECK(spans[0].id == TokenId{5});
  CHECK(spans[0].end == 5);
  CHECK_FALSE(spans[1].id);
  CHECK(spans[2].id == TokenId{6});
  CHECK(spans[2].begin == 6);
}

TEST_CASE("malformed UTF-8 is replaced by maximal subparts", "[tokenizer][utf8]") {
  const std::string r(kReplacementCharacter);
  CHECK(replaced("a\x80z") == "a" + r + "z");
  // The examples of the Unicode Standard, tables 3-8 to 3-11.
  CHECK(replaced("\xc0\xaf\xe0\x80\xbf\xf0\x81\x82\x41") == r + r + r + r + r + r + r + r + "A");
  CHECK(replaced("\xed\xa0\x80\xed\xbf\xbf\xed\xaf\x41") == r + r + r + r + r + r + r + r + "A");
  CHECK(replaced("\xf4\x91\x92\x93\xff\x41\x80\xbf\x42") == r + r + r + r + r + "A" + r + r + "B");
  CHECK(replaced("\xe1\x80\xe2\xf0\x91\x92\xf1\xbf\x41") == r + r + r + r + "A");
  CHECK(read_utf8("\xe2\x82").is_cut);
  CHECK_FALSE(read_utf8("\xe2\x28").is_cut);
  std::string all;
  for (char32_t c = 1; c < 0x110000; c += 37) {
    if (c >= 0xd800 && c < 0xe000) continue;
    std::string text;
    append_utf8(c, text);
    const Utf8Char read = read_utf8(text);
    REQUIRE((read.is_valid && read.code_point == c && read.num_bytes == text.size()));
    all += text;
  }
  CHECK(is_utf8(all));
  CHECK_FALSE(is_utf8(all + "\xc3"));
}

TEST_CASE("a pattern that gives up is an error, not another split", "[tokenizer]") {
  const SplitPattern pattern = SplitPattern::regex("(?:a+)+[bc]");
  std::vector<SplitSpan> spans;
  pattern.split("aaab", spans);
  CHECK(spans.size() == 1);
  // Each match of a recursive pattern is within the limits; all of a text are not.
  const SplitPattern recursive = SplitPattern::regex("(a(?1)?a|a)(?1)*b|a");
  CHECK_FALSE(error_of<std::runtime_error>([&] {
                recursive.split(std::string(3'000, 'a'), spans);
              }).empty());
  const std::string text(60, 'a');
  CHECK(contains(error_of<std::runtime_error>([&] { pattern.split(text, spans); }),
                 "cannot split the text"));
  CHECK_FALSE(error_of<std::invalid_argument>([] { SplitPattern::regex("(a"); }).empty());
  for (const char* endless : {"(?R)", "x|(?R)", "(\\s|(?1))", "(?<w>\\d|(?&w)x)"}) {
    CHECK(error_of<std::invalid_argument>([&] { SplitPattern::regex(endless); }) ==
          "the pattern recurses without an end");
  }
  CHECK_NOTHROW(SplitPattern::regex("\\(([^()]|(?R))*\\)"));
  // One search has a limit that does not grow with the text, and all of a text have one together.
  const SplitPattern hostile = SplitPattern::regex("(?=(a+))\\1*b|(?=(.*a){20})z|.");
  CHECK(contains(
      error_of<std::runtime_error>([&] { hostile.split(std::string(1 << 20, 'a'), spans); }),
      "cannot split the text"));
  SplitBudget budget(60);
  budget.steps_left = 1'000;
  CHECK(contains(error_of<std::runtime_error>([&] { pattern.split(text, spans, budget); }),
                 "cannot split the text"));
  CHECK(budget.steps_left < 0);
  const std::atomic<bool> is_cancelled = true;
  SplitBudget cancelled(60, &is_cancelled);
  CHECK_THROWS_AS(pattern.split(text, spans, cancelled), EncodingCancelled);
}

TEST_CASE("parts that are not supported are refused by their key", "[tokenizer][refusal]") {
  CHECK(refusal("llama3", [](Json& file) { file["model"]["type"] = "WordPiece"; }) ==
        "t.json: model: type: 'WordPiece' is not supported; allowed: BPE");
  CHECK(refusal("llama3",
                [](Json& file) {
                  file["normalizer"] = {{"type", "NFKC"}};
                }) ==
        "t.json: normalizer: type: 'NFKC' is not supported; "
        "allowed: null, NFC, Replace, Prepend, Sequence");
  CHECK(refusal("llama3",
                [](Json& file) {
                  file["pre_tokenizer"]["pretokenizers"][0]["type"] = "CharDelimiterSplit";
                }) ==
        "t.json: pre_tokenizer: pretokenizers[0]: type: 'CharDelimiterSplit' is not supported; "
        "allowed: null, Split, ByteLevel, Digits, Metaspace, Punctuation, Whitespace, "
        "WhitespaceSplit, BertPreTokenizer, Sequence");
  CHECK(refusal("mistral", [](Json& file) { file["pre_tokenizer"]["replacement"] = "ab"; }) ==
        "t.json: pre_tokenizer: replacement: 'ab' is not a character; allowed: one character");
  CHECK(refusal("mistral", [](Json& file) { file["pre_tokenizer"]["prepend_scheme"] = "x"; }) ==
        "t.json: pre_tokenizer: prepend_scheme: 'x' is not known; allowed: never, first, always");
  CHECK(refusal("mistral", [](Json& file) { file["decoder"]["add_prefix_space"] = false; }) ==
        "t.json: decoder: add_prefix_space: contradicts prepend_scheme; allowed: true");
  CHECK(refusal("llama3",
                [](Json& file) {
                  file["pre_tokenizer"]["pretokenizers"][0]["pattern"] = {{"Regex", "(a"}};
                }) ==
        "t.json: pre_tokenizer: pretokenizers[0]: pattern: Regex: missing closing "
        "parenthesis; allowed: a regular expression of PCRE2");
  CHECK(refusal("llama3", [](Json& file) { file["decoder"] = nullptr; }) ==
        "t.json: decoder: is missing; allowed: ByteLevel, Metaspace, or a Sequence with Fuse");
  CHECK(refusal("llama3",
                [](Json& file) {
                  file["decoder"] = {{"type", "WordPiece"}};
                }) ==
        "t.json: decoder: type: 'WordPiece' is not supported; "
        "allowed: ByteLevel, Metaspace, Replace, ByteFallback, Fuse, Strip, Sequence");
  CHECK(refusal("llama2", [](Json& file) { file["decoder"]["decoders"][3]["stop"] = 1; }) ==
        "t.json: decoder: decoders[3]: stop: cannot be applied before the text ends; allowed: 0");
  CHECK(refusal("llama2",
                [](Json& file) {
                  std::swap(file["decoder"]["decoders"][1], file["decoder"]["decoders"][2]);
                }) ==
        "t.json: decoder: decoders[2]: ByteFallback is not supported here; "
        "allowed: Replace and Strip, ByteFallback, Fuse, Strip in this order");
  CHECK(refusal("llama3",
                [](Json& file) {
                  file["post_processor"]["processors"][1]["single"].push_back(
                      {{"Sequence", {{"id", "B"}, {"type_id", 1}}}});
                }) ==
        "t.json: post_processor: processors[1]: single[2]: is not supported; "
        "allowed: SpecialToken, and once the Sequence A");
  CHECK(refusal("llama3", [](Json& file) { file["model"]["dropout"] = 0.1; }) ==
        "t.json: model: dropout: makes encodings random; allowed: null, 0");
  CHECK(refusal("llama3", [](Json& file) { file["model"]["end_of_word_suffix"] = "</w>"; }) ==
        "t.json: model: end_of_word_suffix: is not supported; allowed: null, \"\"");
  CHECK(refusal("llama3", [](Json& file) { file["model"]["byte_fallback"] = true; }) ==
        "t.json: model: byte_fallback: cannot be true with ByteLevel; allowed: false");
}

TEST_CASE("tokens and merges that do not fit are refused", "[tokenizer][refusal]") {
  CHECK(refusal("qwen3", [](Json& file) { file["model"]["merges"][3][1] = "nowhere"; }) ==
        "t.json: model: merges[3]: 'nowhere' is not in the vocabulary; "
        "allowed: tokens of the vocabulary");
  CHECK(refusal("llama3", [](Json& file) { file["model"]["merges"][5] = "a b c"; }) ==
        "t.json: model: merges[5]: 'a b c' is not a pair; "
        "allowed: \"left right\", or [\"left\", \"right\"]");
  CHECK(
      refusal("qwen3", [](Json& file) { file["model"]["merges"][2].push_back("x"); }) ==
      "t.json: model: merges[2]: is not a pair; allowed: \"left right\", or [\"left\", \"right\"]");
  CHECK(refusal("qwen3", [](Json& file) { file["model"]["vocab"]["!"] = -1; }) ==
        "t.json: model: vocab: '!': is not an id; allowed: whole numbers from 0 to 1999999");
  CHECK(refusal("qwen3", [](Json& file) { file["model"]["vocab"]["!"] = 2000000; }) ==
        "t.json: model: vocab: '!': is not an id; allowed: whole numbers from 0 to 1999999");
  CHECK(refusal("qwen3", [](Json& file) { file["model"]["vocab"]["!"] = 1; }) ==
        "t.json: model: vocab: '\"': has the id of '!'; allowed: an id for each");
  CHECK(refusal("qwen3", [](Json& file) { file["model"].erase("vocab"); }) ==
        "t.json: model: vocab: is missing; allowed: an object of ids");
  CHECK(refusal("qwen3", [](Json& file) { file["model"].erase("merges"); }) ==
        "t.json: model: merges: is missing; allowed: a list of pairs");
  CHECK(refusal("gemma3", [](Json& file) { file["model"]["unk_token"] = "<none>"; }) ==
        "t.json: model: unk_token: '<none>' is not in the vocabulary; allowed: a token");
  CHECK(refusal("qwen3", [](Json& file) { file["added_tokens"][1]["id"] = 1000; }) ==
        "t.json: added_tokens[1]: '<|im_start|>': does not have the next id after the vocabulary; "
        "allowed: 903");
  CHECK(refusal("gemma3", [](Json& file) { file["added_tokens"][1]["id"] = 7; }) ==
        "t.json: added_tokens[1]: '<eos>': has a different id than an earlier entry of the same "
        "token; "
        "allowed: 1");
  CHECK(refusal("qwen3", [](Json& file) { file["added_tokens"][0]["special"] = "yes"; }) ==
        "t.json: added_tokens[0]: special: is not a boolean; allowed: true, false");
  CHECK(
      refusal("llama3", [](Json& file) {
        file["post_processor"]["processors"][1]["special_tokens"]["<|begin_of_text|>"]["ids"] = {
            5000};
      }) == "t.json: post_processor: special_tokens: 5000 is not a token; allowed: ids of tokens");
}

TEST_CASE("what is no tokenizer.json is refused", "[tokenizer][refusal]") {
  const auto of = [](const std::string& text) {
    return error_of([&] { parse_tokenizer(text, "t.json"); });
  };
  CHECK(of("{") == "t.json: is not JSON at byte 2; allowed: a tokenizer.json");
  CHECK(of("[]") == "t.json: is not an object; allowed: a tokenizer.json");
  CHECK(of("{}") == "t.json: model: is missing; allowed: a BPE model");
  CHECK(of(std::string("{}\0", 3)) ==
        "t.json: is not JSON, byte 2 is NUL; allowed: a tokenizer.json");
  CHECK(of(R"({"a": 1, "a": 2})") == "t.json: 'a': appears twice; allowed: every key once");
  CHECK(
      of(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}, "decoder": {"type": "Fuse"}})") ==
      "t.json: model: vocab: 'a': appears twice; allowed: once");
  CHECK(of(std::string(40, '[')) == "t.json: is nested too deeply; allowed: 32 levels");
  CHECK(error_of([] { read_tokenizer("/nowhere/tokenizer.json"); }) ==
        "/nowhere/tokenizer.json: does not exist; allowed: a tokenizer.json of Hugging Face, or a "
        "GGUF file");
  CHECK(error_of([] { read_tokenizer("/"); }) ==
        "/: is a folder; allowed: a tokenizer.json of Hugging Face, or a GGUF file");
  // The least there is.
  const auto tiny = parse_tokenizer(
      R"({"model": {"vocab": {"a": 3, "b": 0, "ab": 2}, "merges": [["a", "b"]]},
          "decoder": {"type": "Fuse"}})",
      "t.json");
  CHECK(to_numbers(tiny->encode("abba?", true)) == std::vector<std::int32_t>{2, 0, 3});
  CHECK(tiny->vocab_size() == 4);
  CHECK(tiny->kind(TokenId{1}) == TokenKind::None);
}

}  // namespace TEST_FILE
