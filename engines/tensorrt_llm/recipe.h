// SPDX-License-Identifier: Apache-2.0
// Starts of a version of TensorRT-LLM, also those of the public sweep.
#pragma once

#include <vector>

#include "core/scenario/serving_recipe.h"

namespace metronome {

// See EngineProduct.
std::vector<ServeDefault> tensorrt_llm_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                              const RecipeContext& context);

}  // namespace metronome
