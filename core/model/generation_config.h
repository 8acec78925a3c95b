// The generation_config.json of a model folder.
#pragma once

#include <string>
#include <string_view>

#include "core/model/model_config.h"

namespace metronome {

// The end-of-text tokens of a folder's generation_config.json replace those of its config.json, as
// in transformers' generate(): a chat model often ends its answers with another token than its
// texts. Nothing happens where the folder has no such file, or the file names no tokens. Throws
// ConfigError for a file that cannot be read, is not JSON, or has other than token ids.
void apply_generation_config(const std::string& folder, ModelConfig& model);

// The same for the text of the file; `path` is shown in messages.
void apply_generation_config_text(std::string_view json, const std::string& path,
                                  ModelConfig& model);

}  // namespace metronome
