// SPDX-License-Identifier: Apache-2.0
// Reads a config.json of any architecture by its keys: a simulation needs counts, not an
// implementation.
#pragma once

#include <string>

#include "core/model/json_section.h"
#include "core/model/model_config.h"

namespace metronome {

// Of keys without an architecture: the section `shape` of a scenario.
constexpr const char* kShapeArchitecture = "Shape";

// The part of the file about the language model: the file, or a section of it.
JsonSection any_text_section(const JsonSection& root);

// A model of a file whose architecture has no row in model_family.h: its layers by kind
// (ModelConfig::given_kinds), tables, and the parameters of its towers. `approximation` says by
// which keys, and what was assumed. Not read are the formats of its weights and their type. Throws
// ConfigError for an encoder-decoder, and for a number that is missing or impossible.
ModelConfig read_any_model(const JsonSection& root, const std::string& architecture);

}  // namespace metronome
