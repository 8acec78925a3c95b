// SPDX-License-Identifier: Apache-2.0
// Encoders of images and sounds in front of a language model: their weights take memory, though
// steps of text do not read them.
#pragma once

#include <cstdint>

#include "core/model/json_section.h"

namespace metronome {

// The parameters of the towers that a config.json describes, by their keys, with a projector to the
// width of the model that `text` describes.
std::int64_t tower_params(const JsonSection& root, const JsonSection& text,
                          std::int64_t hidden_dim);

}  // namespace metronome
