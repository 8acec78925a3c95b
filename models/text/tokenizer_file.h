// SPDX-License-Identifier: Apache-2.0
// A parsed and checked tokenizer.json or GGUF file, the input of a tokenizer.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "models/text/added_tokens.h"
#include "models/text/text_steps.h"
#include "models/text/tokenizer.h"

namespace metronome {

// A decoder step that acts on each token separately, before tokens are joined.
struct TokenDecoderStep {
  std::string pattern;  // Replace: every occurrence becomes `content`
  std::string content;
  // Strip (no pattern): removes up to this many of `content` at the start and at the end.
  std::int64_t num_first = 0;
  std::int64_t num_last = 0;
};

struct TokenizerFile {
  // The model.
  std::vector<std::pair<std::string, TokenId>> vocab;
  std::vector<std::pair<std::string, std::string>> merges;  // by rank
  // Instead of merges: the score of each entry of `vocab`, which is in the order of ids. Two tokens
  // with scores merge if their texts together are one, the highest score first, the leftmost of
  // equals. Empty: the token neither merges nor is made by a merge.
  std::vector<std::optional<float>> scores;
  std::string unknown;  // "": none
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;

  std::vector<AddedToken> added_tokens;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool is_byte_level = false;  // words use ByteLevel's alphabet

  // The tokens that the post-processor puts before and after a text.
  std::vector<TokenId> prefix, suffix;

  bool decodes_byte_level = false;
  std::vector<TokenDecoderStep> token_decoder;
  std::vector<TokenDecoderStep> first_token_decoder;  // with decode_rule.has_first_token
  DecodeRule decode_rule;
};

// Throws ConfigError; `name` is shown in messages. Does not check that ids and merges match.
TokenizerFile parse_tokenizer_file(std::string_view json, const std::string& name);

}  // namespace metronome
