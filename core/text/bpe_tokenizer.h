// A tokenizer made of a tokenizer.json.
#pragma once

#include <memory>
#include <string>

#include "core/text/tokenizer.h"
#include "core/text/tokenizer_file.h"

namespace metronome {

// Throws ConfigError where ids, tokens and merges do not fit together; `name` is shown in messages.
std::unique_ptr<Tokenizer> make_bpe_tokenizer(TokenizerFile file, const std::string& name);

}  // namespace metronome
