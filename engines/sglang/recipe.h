// SPDX-License-Identifier: Apache-2.0
// Starts of a version of SGLang, also those of the public sweep.
#pragma once

#include <vector>

#include "core/scenario/serving_recipe.h"

namespace metronome {

// See EngineProduct.
std::vector<ServeDefault> sglang_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                        const RecipeContext& context);

}  // namespace metronome
