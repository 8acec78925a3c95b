// SPDX-License-Identifier: Apache-2.0
// Files that have all of a model in one: those of the format GGUF. Core recognises them, so that a
// scenario may name one. models/ registers what reads them.
#pragma once

#include <string>

#include "core/model/model_config.h"

namespace metronome {

// Whether a path is that of a GGUF file: one whose name ends in .gguf, in any case of letters, or
// whose first bytes are GGUF. False for what cannot be read.
bool is_gguf_file(const std::string& path);

// The configuration of the model in such a file, which gets this name. Throws ConfigError for a
// malformed file and for a model that is not supported.
using ModelFileReader = ModelConfig (*)(const std::string& path, const std::string& name);

// Called once, at the start of a program, before a model is looked up.
void register_model_file_reader(ModelFileReader reader);
ModelFileReader model_file_reader();  // nullptr: none is registered

}  // namespace metronome
