// SPDX-License-Identifier: Apache-2.0
// TensorRT-LLM as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& tensorrt_llm_product();
extern const ServerArguments kTensorRtLlmArguments;
extern const ServerFlags kTensorRtLlmFlags;
extern const LogDialect kTensorRtLlmLog;

// See PolicyInfo::reserved_gib.
double tensorrt_llm_reserved_gib(const MemoryFacts& facts, const ModelConfig& model);

std::unique_ptr<Policy> make_tensorrt_llm(const PolicyContext& context);

// See EngineProduct.
void check_tensorrt_llm_settings(const Scenario& scenario, const ConfigNode& source);

}  // namespace metronome
