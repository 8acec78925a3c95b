// SPDX-License-Identifier: Apache-2.0
// Positions that a server's command scales.
#pragma once

#include <string>
#include <vector>

#include "engines/arguments/engine_settings.h"

namespace metronome {

// The model's name with the context that the command's `rope_scaling` gives it, "qwen3-32b-128k".
// A note says why a scaling has no effect.
std::string with_scaled_context(const std::string& model, const EngineArguments& arguments,
                                std::vector<std::string>& notes);

}  // namespace metronome
