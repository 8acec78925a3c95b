// SPDX-License-Identifier: Apache-2.0
// SGLang as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& sglang_product();

std::unique_ptr<Scheduler> make_sglang(const SchedulerContext& context);

// Settings that SGLang refuses at its start.
void check_sglang_settings(const Scenario& scenario, const ConfigNode& source);

}  // namespace metronome
