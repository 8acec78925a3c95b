// SPDX-License-Identifier: Apache-2.0
// Source: llama.cpp's common/arg.cpp and tools/server/server.cpp of the release that
// llama-cpp-python 0.3.36 has.
#include "core/scenario/serving_recipe.h"
#include "engines/llama_cpp/product.h"

namespace metronome {

std::vector<ServeDefault> llama_cpp_recipe(const Scenario&, const HardwareSpec&,
                                           const RecipeContext& context) {
  RecipeSteps steps(context);
  steps.add("engine.max_num_seqs", 4, "-np, its default: four slots of one context");
  return steps.take();
}

}  // namespace metronome
