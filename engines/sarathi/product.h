// SPDX-License-Identifier: Apache-2.0
// Sarathi-Serve, and the schedulers that it is compared with in its own repository as the registry
// of policies has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& sarathi_product();
extern const DecisionFormat kSarathiDecisions;

std::unique_ptr<Policy> make_sarathi(const PolicyContext& context);
std::unique_ptr<Policy> make_vllm_prefill_first(const PolicyContext& context);
std::unique_ptr<Policy> make_orca(const PolicyContext& context);
std::unique_ptr<Policy> make_simple_chunking(const PolicyContext& context);

// See EngineProduct.
void check_sarathi_settings(const Scenario& scenario, const ConfigNode& source);

}  // namespace metronome
