// SPDX-License-Identifier: Apache-2.0
// Which simulated times were ever compared with measurements: sim/catalogue/checked.csv, which
// tools/accuracy writes together with docs/accuracy.md.
#pragma once

#include <string>
#include <string_view>

#include "core/hardware/hardware.h"
#include "core/model/model_config.h"

namespace metronome {

// Says what about such a run is far from anything that was compared: the GPU, experts, the format
// of quantised weights, or the number of GPUs. Empty if nothing is. `cost_model` is roofline or
// operators; others are made of measurements of their own, and are never far.
std::string unchecked_warning(std::string_view cost_model, const HardwareSpec& hardware,
                              const ModelConfig& model, std::int64_t tensor_parallel_size);

}  // namespace metronome
