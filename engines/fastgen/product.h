// SPDX-License-Identifier: Apache-2.0
// DeepSpeed-FastGen as the registry of engines has it.
#pragma once

#include <memory>

#include "core/scenario/engine_product.h"

namespace metronome {

const EngineProduct& fastgen_product();

std::unique_ptr<Policy> make_fastgen(const PolicyContext& context);

}  // namespace metronome
