// SPDX-License-Identifier: Apache-2.0
// The generation_config.json of a model folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/model/model_config.h"

namespace metronome {

// The end-of-text tokens of a folder's generation_config.json replace those of its config.json, as
// in transformers' generate(): a chat model often ends its answers with another token than its
// texts. Nothing happens where the folder has no such file, or the file names no tokens. Throws
// ConfigError for a file that cannot be read, is not JSON, or has other than token ids.
void apply_generation_config(const std::string& folder, ModelConfig& model);

// Applies the text of such a file; `path` is shown in messages.
void apply_generation_config_text(std::string_view json, const std::string& path,
                                  ModelConfig& model);

// How the file asks to sample; nullopt: it does not say. The ranges are those of vLLM's
// SamplingParams.
struct SamplingDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<std::int64_t> top_k;           // 0: all
  std::optional<std::int64_t> max_new_tokens;  // of answers for which nobody asks

  // "temperature 0.6, top_k 20"; empty: the file says nothing.
  std::string text() const;
};

// The defaults that `vllm serve` takes from a folder's generation_config.json (generation-config
// auto). All nullopt where the folder has none. Throws ConfigError for a file that cannot be read,
// is not JSON, or has a value out of range.
SamplingDefaults read_sampling_defaults(const std::string& folder);
SamplingDefaults parse_sampling_defaults(std::string_view json, const std::string& path);

}  // namespace metronome
