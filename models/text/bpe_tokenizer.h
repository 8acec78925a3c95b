// SPDX-License-Identifier: Apache-2.0
// A tokenizer built from a tokenizer.json or a GGUF file.
#pragma once

#include <memory>
#include <string>

#include "models/text/tokenizer.h"
#include "models/text/tokenizer_file.h"

namespace metronome {

// Throws ConfigError if ids, tokens and merges are inconsistent. `name` is shown in messages.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerFile file, const std::string& name);

}  // namespace metronome
