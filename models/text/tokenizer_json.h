// SPDX-License-Identifier: Apache-2.0
// Parses a tokenizer.json. Vocabulary and merges are most of a file of tens of megabytes. The
// parser extracts them, so the remaining tree is small.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace metronome {

// All ids are below this. Published vocabularies have a quarter of a million entries.
constexpr std::int64_t kMaxVocabSize = 2'000'000;

struct TokenizerJson {
  Json rest;  // without `model.vocab` and `model.merges`
  bool has_vocab = false;
  bool has_merges = false;
  std::vector<std::pair<std::string, std::int32_t>> vocab;  // in the order of the file
  std::vector<std::pair<std::string, std::string>> merges;
};

// Throws ConfigError for invalid JSON, a duplicate key, too deep nesting, and a vocabulary or
// merges of another form. The vocabulary may still contain an entry twice. `name` is shown in
// messages.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name);

// A text from the file for messages: printable and shortened.
std::string shown(std::string_view text);

}  // namespace metronome
