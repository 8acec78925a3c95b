// SPDX-License-Identifier: Apache-2.0
// Starts of a version of vLLM, also those of the public sweep.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/serving_recipe.h"

namespace metronome {

// The rules of scheduler.version that are nearest to a release, as vLLM names itself: "0.17.0" has
// those of "0.19", the oldest that are known.
std::string nearest_vllm_rules(std::string_view version);

// See EngineProduct.
std::vector<ServeDefault> vllm_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                      const RecipeContext& context);

}  // namespace metronome
