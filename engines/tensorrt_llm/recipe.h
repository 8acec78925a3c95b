// SPDX-License-Identifier: Apache-2.0
// How a version of TensorRT-LLM is started, and how the public sweep starts it.
#pragma once

#include <vector>

#include "core/scenario/serving_recipe.h"

namespace metronome {

// See EngineProduct.
std::vector<ServeDefault> tensorrt_llm_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                              const RecipeContext& context);

}  // namespace metronome
