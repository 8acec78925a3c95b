// SPDX-License-Identifier: Apache-2.0
// nano-vllm as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& nano_vllm_product();
extern const DecisionFormat kNanoVllmDecisions;

std::unique_ptr<Policy> make_nano_vllm(const PolicyContext& context);

}  // namespace metronome
