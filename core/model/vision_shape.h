// SPDX-License-Identifier: Apache-2.0
// Checks of the numbers that describe a vision tower.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/layer_parts.h"

namespace metronome {

// The first error in the tower's shape, as "vision.key: what is wrong; what is allowed"; empty:
// none. `n_layers` is the language model's.
std::string vision_error(const VisionTower& tower, std::int64_t n_layers, std::int64_t vocab_size);

}  // namespace metronome
