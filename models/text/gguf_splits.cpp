// SPDX-License-Identifier: Apache-2.0
#include "models/text/gguf_splits.h"

#include <algorithm>
#include <iterator>

namespace metronome {
namespace {

// Parts of patterns. Sources: the tokenizer.json of the models, and src/llama-vocab.cpp of
// llama.cpp, from which names and flags are as well.
const std::string kShort = R"((?i:'s|'t|'re|'ve|'m|'ll|'d))";
const std::string kWord = R"([^\r\n\p{L}\p{N}]?\p{L}+)";
const std::string kSymbols = R"( ?[^\s\p{L}\p{N}]+[\r\n]*)";
const std::string kSpaces = R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
const std::string kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
const std::string kDigit = R"(\p{N})";
const std::string kUpToThreeDigits = R"(\p{N}{1,3})";
const std::string kLines = R"([^\n]+|[\n]+)";

// Llama 3's pattern, with others for numbers.
std::string words_and(const std::string& numbers) {
  return kShort + "|" + kWord + "|" + numbers + "|" + kSymbols + kSpaces;
}

// Words that begin with capitals, of GPT-4o and Mistral's Tekken. `except`: characters that are no
// part of a word; `after`: what may follow one.
std::string cased_words(const std::string& except, const std::string& after) {
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M})" + except + "]";
  const std::string lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M})" + except + "]";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  return before + upper + "*" + lower + "+" + after + "|" + before + upper + "+" + lower + "*" +
         after;
}
const std::string kTekken = cased_words("", "") + R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaces;
std::string gpt4o(const std::string& numbers) {
  return cased_words("", kShort + "?") + "|" + numbers + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*)" + kSpaces;
}

// DeepSeek's. `behind`: what a run of symbols takes with it.
const std::string kCjk = R"([\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
std::string deepseek(const std::string& behind) {
  return R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"
         R"(| ?[\p{P}\p{S}]+)" +
         behind;
}
const std::string kDeepseekLetters =
    R"(A-Za-z\x{b5}\x{c0}-\x{d6}\x{d8}-\x{f6}\x{f8}-\x{1ba}\x{1bc}-\x{1bf}\x{1c4}-\x{293})"
    R"(\x{295}-\x{2af}\x{370}-\x{373}\x{376}\x{377}\x{37b}-\x{37d}\x{37f}\x{386}\x{388}-)"
    R"(\x{38a}\x{38c}\x{38e}-\x{3a1}\x{3a3}-\x{3f5}\x{3f7}-\x{481}\x{48a}-\x{52f}\x{531}-)"
    R"(\x{556}\x{10a0}-\x{10c5}\x{13a0}-\x{13f5}\x{13f8}-\x{13fd}\x{1c90}-\x{1cba})"
    R"(\x{1cbd}-\x{1cbf}\x{1d00}-\x{1d2b}\x{1d6b}-\x{1d77}\x{1d79}-\x{1d9a}\x{1e00}-)"
    R"(\x{1f15}\x{1f18}-\x{1f1d}\x{1f20}-\x{1f45}\x{1f48}-\x{1f4d}\x{1f50}-\x{1f57})"
    R"(\x{1f59}\x{1f5b}\x{1f5d}\x{1f5f}-\x{1f7d}\x{1f80}-\x{1fb4}\x{1fb6}-\x{1fbc}\x{1fbe})"
    R"(\x{1fc2}-\x{1fc4}\x{1fc6}-\x{1fcc}\x{1fd0}-\x{1fd3}\x{1fd6}-\x{1fdb}\x{1fe0}-)"
    R"(\x{1fec}\x{1ff2}-\x{1ff4}\x{1ff6}-\x{1ffc}\x{2102}\x{2107}\x{210a}-\x{2113}\x{2115})"
    R"(\x{2119}-\x{211d}\x{2124}\x{2126}\x{2128}\x{212a}-\x{212d}\x{212f}-\x{2134}\x{2139})"
    R"(\x{213c}-\x{213f}\x{2145}-\x{2149}\x{214e}\x{2183}\x{2184}\x{2c00}-\x{2c7b})"
    R"(\x{2c7e}-\x{2ce4}\x{2ceb}-\x{2cee}\x{2cf2}\x{2cf3}\x{a640}-\x{a66d}\x{a680}-)"
    R"(\x{a69b}\x{a722}-\x{a76f}\x{a771}-\x{a787}\x{a78b}-\x{a78e}\x{ab70}-\x{abbf})"
    R"(\x{fb00}-\x{fb06}\x{fb13}-\x{fb17}\x{ff21}-\x{ff3a}\x{ff41}-\x{ff5a}\x{10400}-)"
    R"(\x{1044f}\x{104b0}-\x{104d3}\x{104d8}-\x{104fb}\x{10c80}-\x{10cb2}\x{10cc0}-)"
    R"(\x{10cf2}\x{118a0}-\x{118df}\x{1e900}-\x{1e943})";
const std::string kDeepseekSymbols =
    R"(\s?[!-/:-~\x{ff01}-\x{ff0f}\x{ff1a}-\x{ff5e}\x{2018}-\x{201f}\x{3000}-\x{3002}]+)";
const std::string kDeepseekCjk = R"([\x{4e00}-\x{9fa5}\x{800}-\x{4e00}\x{ac00}-\x{d7ff}]+)";
const std::string kAsian =
    R"([\x{4e00}-\x{9fff}\x{3400}-\x{4dbf}\x{8c48}-\x{faff}\x{3040}-\x{309f}\x{30a0}-)"
    R"(\x{30ff}\x{ff65}-\x{ff9f}\x{2f00}-\x{2fdf}\x{e40}-\x{e7f}\x{e80}-\x{eff}\x{1780}-)"
    R"(\x{17ff}\x{1000}-\x{109f}\x{aa60}-\x{aa7f}\x{a9e0}-\x{a9ff}\x{ac00}-\x{d7af})"
    R"(\x{1100}-\x{11ff}]+)";
const std::string kYoutu =
    R"([\x{ac00}-\x{d7a3}\x{3131}-\x{318e}]+|[\x{ff01}\x{2026}\x{201c}\x{201d}\x{2018})"
    R"(\x{2019}\x{2014}\x{ff1a}\x{ff1b}\x{ff0c}\x{3001}-\x{303f}\x{fe30}-\x{fe4f}]+|[)"
    R"(\x{3105}-\x{312f}]+|[\x{4e00}-\x{9fa5}\x{3040}-\x{309f}\x{30a0}-\x{30ff}]+)";
const std::string kBloom =
    R"( ?[^(\s|.,!?\x{2026}\x{3002}\x{ff0c}\x{3001}\x{964}\x{6d4}\x{60c})]+)";

// Spaces in runs of powers of two.
std::string jais2() {
  std::string pattern =
      kShort + "|" + kWord + "|" + kUpToThreeDigits + "|" + kSymbols + R"(|\s*[\r\n]+)";
  for (const char* count : {"512", "256", "128", "64", "32", "16", "8", "4", "1,2"}) {
    pattern += R"(|\s{)" + std::string(count) + R"(}(?!\S))";
  }
  return pattern + R"(|\s{1})";
}

const std::string kKimi = R"([\p{Han}]+|)" + cased_words(R"(&&[^\p{Han}])", kShort + "?") +
                          R"(|\p{N}{1,3}|)" + kSymbols + kSpaces;

std::vector<GgufSplit> splits_of_gpt2_and_llama() {
  return {
      // llama.cpp's own, for files that do not say whose pattern they need.
      {{"default"}, {R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "gigachat", "jina-v2-es", "jina-v2-de", "a.x-4.0",
        "mellum", "modern-bert", "jais", "trillion", "granite-docling", "exaone4", "jina-v1-en",
        "jina-v2-code", "roberta-bpe"},
       {kGpt2}},
      {{"mpt", "olmo"}, {kGpt2}, false, false, true},
      {{"smollm", "starcoder", "refact", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {kDigit, kGpt2}},
      {{"command-r"}, {kDigit, kGpt2}, false, false, true},
      {{"falcon"}, {R"([\p{P}\$\+<=>\^~\|`]+)", kGpt2, "[0-9][0-9][0-9]"}},
      {{"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
        "jina-v5-nano"},
       {words_and(kUpToThreeDigits)},
       true,
       true},
      {{"glm4", "glm5"}, {words_and(kUpToThreeDigits)}, true},
      {{"dbrx", "smaug-bpe", "chatglm-bpe"}, {words_and(kUpToThreeDigits)}},
      {{"minicpm5"}, {kUpToThreeDigits, words_and(R"(\p{N}+)")}, true},
      {{"jais-2"}, {jais2()}},
      {{"qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez"},
       {words_and(kDigit)},
       false,
       false,
       true},
      {{"stablelm2", "hunyuan", "solar-open", "grok-2"}, {words_and(kDigit)}},
      {{"qwen35"},
       {kShort + R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" +
        kSpaces}},
      {{"ufakzeka"}, {kWord + R"(|\p{N}|)" + kSymbols + kSpaces}},
      {{"laguna"}, {kLines, words_and(kDigit)}},
      {{"seed-coder"}, {kShort + "|" + kWord + R"(|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+)" + kSpaces}},
      {{"exaone-moe"},
       {kShort + R"(|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N})"
                 R"(| ?[^\s\p{L}\p{N}]+[\r\n/]?|\s*[\r\n]|\s+(?!\S)|\s+)"}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"},
       {R"('(?i:[sdmt]|ll|ve|re)|)" + kWord + R"(|\p{N}|)" + kSymbols +
        R"(|\s*[\r\n]|\s+(?!\S)|\s+)"}},
  };
}

std::vector<GgufSplit> splits_of_others() {
  return {
      {{"tekken"}, {kTekken}, true, true},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {gpt4o(kUpToThreeDigits)}},
      {{"granite-embed-multi-97m"}, {gpt4o(kUpToThreeDigits)}, true},
      {{"tiny_aya", "cohere2moe"}, {R"(\d{1,3}(?=(?:\d{3})*\b))", gpt4o(kUpToThreeDigits)}},
      {{"youtu"}, {kYoutu, gpt4o(kDigit)}, true},
      {{"kimi-k2"}, {kKimi}},
      {{"deepseek-llm"},
       {"[\r\n]", R"(\s?[)" + kDeepseekLetters + "]+", kDeepseekSymbols, R"(\s+$)", kDeepseekCjk,
        R"(\p{N}+)"}},
      {{"deepseek-coder"}, {"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", kDeepseekCjk, kDigit}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {kUpToThreeDigits, kCjk, deepseek(R"([\r\n]*)" + kSpaces)}},
      {{"spark2_5"}, {kUpToThreeDigits, kCjk, deepseek(R"(|[\r\n]|\s+(?!\S)|\s+)"), kDigit}},
      {{"afmoe"},
       {R"(\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N})))", kAsian, deepseek(R"([\r\n]*)" + kSpaces)}},
      {{"superbpe"}, {R"(\p{N}+)", R"((?=(\d{3})+(?!\d)))"}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {kBloom}},
      {{"viking"}, {kBloom, kDigit}},
      {{"chameleon"},
       {"<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\\t\\n]|    |  )", kDigit,
        R"([\p{P}!-/:-@\[-`{-~])", kGpt2},
       false,
       true},
      {.names = {"gemma4", "granite-embed-multi-311m"},
       .patterns = {kLines},
       .adds_bos = true,
       .has_byte_tokens = true,
       .marks_spaces = true},
      {.names = {"sarvam-moe"},
       .patterns = {kLines},
       .has_byte_tokens = true,
       .marks_spaces = true},
      {.names = {"whitespace"}, .patterns = {R"(\S+)"}, .has_byte_tokens = true},
  };
}

}  // namespace

const std::vector<GgufSplit>& all_gguf_splits() {
  static const std::vector<GgufSplit> all = [] {
    std::vector<GgufSplit> splits = splits_of_gpt2_and_llama();
    std::vector<GgufSplit> others = splits_of_others();
    std::move(others.begin(), others.end(), std::back_inserter(splits));
    return splits;
  }();
  return all;
}

const GgufSplit* find_gguf_split(std::string_view name) {
  for (const GgufSplit& split : all_gguf_splits()) {
    if (std::find(split.names.begin(), split.names.end(), name) != split.names.end()) return &split;
  }
  return nullptr;
}

std::vector<std::string_view> gguf_split_names() {
  std::vector<std::string_view> names;
  for (const GgufSplit& split : all_gguf_splits()) {
    names.insert(names.end(), split.names.begin(), split.names.end());
  }
  return names;
}

}  // namespace metronome
