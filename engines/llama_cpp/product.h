// SPDX-License-Identifier: Apache-2.0
// llama.cpp's server as the registry of engines has it.
#pragma once

#include <memory>
#include <vector>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& llama_cpp_product();
extern const ServerArguments kLlamaCppArguments;
extern const ServerFlags kLlamaCppFlags;
extern const DecisionFormat kLlamaCppDecisions;
extern const LogDialect kLlamaCppLog;

std::unique_ptr<Policy> make_llama_cpp(const PolicyContext& context);

// See EngineProduct.
std::vector<ServeDefault> llama_cpp_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                           const RecipeContext& context);

}  // namespace metronome
