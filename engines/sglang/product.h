// SPDX-License-Identifier: Apache-2.0
// SGLang as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

struct KernelRules;

const EngineProduct& sglang_product();
extern const DecisionFormat kSglangDecisions;
extern const EngineMetrics kSglangMetrics;
extern const LogDialect kSglangLog;
extern const ServerArguments kSglangArguments;
extern const ServerFlags kSglangFlags;
extern const KernelRules kSglangKernels;

// See PolicyInfo::reserved_gib.
double sglang_reserved_gib(const MemoryFacts& facts, const ModelConfig& model);
// See EngineProduct::divide_memory.
StatePool sglang_divide_memory(const Scenario& scenario, const StateMemory& memory);

std::unique_ptr<Policy> make_sglang(const PolicyContext& context);

// Settings that SGLang refuses at its start.
void check_sglang_settings(const Scenario& scenario, const ConfigNode& source);

}  // namespace metronome
