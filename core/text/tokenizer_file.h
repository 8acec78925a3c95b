// A tokenizer.json, read and checked, before a tokenizer is made of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text/added_tokens.h"
#include "core/text/text_steps.h"
#include "core/text/tokenizer.h"

namespace metronome {

// One step of a decoder that acts on each token by itself, before tokens are joined.
struct TokenDecoderStep {
  std::string pattern;  // Replace: every occurrence becomes `content`
  std::string content;
  // Strip (no pattern): so many of `content` at the ends.
  std::int64_t num_first = 0;
  std::int64_t num_last = 0;
};

struct TokenizerFile {
  // The model.
  std::vector<std::pair<std::string, TokenId>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  std::string unknown;                                      // "": none
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;

  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool is_byte_level = false;  // words are mapped to ByteLevel's alphabet

  // What the post-processor puts around a text.
  std::vector<TokenId> prefix, suffix;

  bool decodes_byte_level = false;
  std::vector<TokenDecoderStep> token_decoder;
  DecodeRule decode_rule;
};

// Throws ConfigError; `name` is shown in messages. That ids and merges fit together is not checked.
TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace metronome
