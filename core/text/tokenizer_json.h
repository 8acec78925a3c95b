// The JSON of a tokenizer.json. Vocabulary and merges are most of a file of tens of megabytes and
// are taken out while it is parsed; what is left is a small tree.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/json.h"

namespace metronome {

// Ids are below this. Published vocabularies have a quarter of a million.
constexpr std::int64_t kMaxVocabSize = 2'000'000;

struct TokenizerJson {
  Json rest;  // without `model.vocab` and `model.merges`
  bool has_vocab = false;
  bool has_merges = false;
  std::vector<std::pair<std::string, std::int32_t>> vocab;  // in the order of the file
  std::vector<std::pair<std::string, std::string>> merges;
};

// Throws ConfigError: no JSON, a key twice, nesting too deep, a vocabulary or merges of another
// form. An entry of the vocabulary may still be there twice. `name` is shown in messages.
TokenizerJson parse_tokenizer_json(std::string_view text, const std::string& name);

// A text from the file as messages show it: printable, and not too long.
std::string shown(std::string_view text);

}  // namespace metronome
