// SPDX-License-Identifier: Apache-2.0
// SGLang as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

struct LogDialect;

const EngineProduct& sglang_product();
const LogDialect& sglang_log();

std::unique_ptr<Policy> make_sglang(const PolicyContext& context);

// Settings that SGLang refuses at its start.
void check_sglang_settings(const Scenario& scenario, const ConfigNode& source);

}  // namespace metronome
