// SPDX-License-Identifier: Apache-2.0
// The tokenizers of tests/fixtures/tokenizers, and random things to feed them.
#pragma once

#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "models/text/tokenizer.h"
#include "models/text/utf8.h"
#include "tests/draws.h"
#include "tests/places.h"

namespace metronome::testing {

constexpr const char* kTokenizerFixtures[] = {"llama3", "qwen3",   "gemma3",  "llama2",
                                              "gpt2",   "smollm2", "mistral", "words"};

inline std::string tokenizer_path(const std::string& file) {
  return std::string(source_dir()) + "/tests/fixtures/tokenizers/" + file;
}

inline Json read_fixture_json(const std::string& file) {
  std::ifstream in(tokenizer_path(file), std::ios::binary);
  return Json::parse(std::string(std::istreambuf_iterator<char>(in), {}));
}

inline std::unique_ptr<Tokenizer> fixture_tokenizer(const std::string& name) {
  return read_tokenizer(tokenizer_path(name + ".json"));
}

inline std::vector<TokenId> to_ids(const Json& numbers) {
  std::vector<TokenId> ids;
  for (const Json& number : numbers) ids.push_back(TokenId{number.get<std::int32_t>()});
  return ids;
}

inline std::vector<std::int32_t> to_numbers(const std::vector<TokenId>& ids) {
  std::vector<std::int32_t> numbers;
  for (const TokenId id : ids) numbers.push_back(value(id));
  return numbers;
}

// Random characters of several scripts, and some that tokenizers treat specially.
inline std::string random_text(Rng& rng, std::int32_t max_characters) {
  constexpr char32_t kRanges[][2] = {
      {0x20, 0x7e},     {0x61, 0x7a},     {0x0, 0x20},      {0xa0, 0x24f},    {0x391, 0x3c9},
      {0x410, 0x44f},   {0x5d0, 0x5ea},   {0x621, 0x64a},   {0x905, 0x939},   {0x2000, 0x2064},
      {0x3041, 0x30ff}, {0x4e00, 0x4fff}, {0xac00, 0xad00}, {0xfff0, 0xffff}, {0x1f300, 0x1f64f}};
  std::string text;
  for (std::int32_t n = draw(rng, 0, max_characters); n > 0; --n) {
    const auto& range = kRanges[static_cast<std::size_t>(draw(rng, 0, std::size(kRanges) - 1))];
    append_utf8(static_cast<char32_t>(rng.uniform_int(range[0], range[1])), text);
    if (chance(rng, 0.2)) text += ' ';
  }
  return text;
}

// Bytes that are often almost UTF-8.
inline std::string random_bytes(Rng& rng, std::int32_t max_characters) {
  std::string bytes = random_text(rng, max_characters);
  for (std::int32_t n = draw(rng, 0, 6); n > 0; --n) {
    const auto at = static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(bytes.size())));
    if (chance(rng, 0.3)) {
      bytes.erase(at, static_cast<std::size_t>(draw(rng, 0, 2)));
    } else {
      bytes.insert(at, 1, static_cast<char>(draw(rng, 0, 255)));
    }
  }
  return bytes;
}

// Ids of all kinds: anywhere, in runs of neighbours (so that byte tokens meet), and of no token.
inline std::vector<TokenId> random_ids(Rng& rng, const Tokenizer& tokenizer) {
  const auto size = static_cast<std::int32_t>(tokenizer.vocab_size());
  std::vector<TokenId> ids;
  for (std::int32_t n = draw(rng, 0, 12); n > 0; --n) {
    std::int32_t id = draw(rng, -2, size + 2);
    if (chance(rng, 0.2)) id = draw(rng, 0, std::min(size - 1, 300));
    for (std::int32_t run = chance(rng, 0.4) ? draw(rng, 1, 8) : 1; run > 0; --run) {
      ids.push_back(TokenId{id});
      if (chance(rng, 0.5)) ++id;
    }
  }
  return ids;
}

}  // namespace metronome::testing
