// SPDX-License-Identifier: Apache-2.0
// llama.cpp's server as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& llama_cpp_product();
extern const ServerFlags kLlamaCppFlags;

std::unique_ptr<Policy> make_llama_cpp(const PolicyContext& context);

}  // namespace metronome
