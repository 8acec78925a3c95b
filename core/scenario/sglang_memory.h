// SPDX-License-Identifier: Apache-2.0
// The GPU memory that SGLang has beside its reserve for chunks and graphs.
#pragma once

#include "core/scenario/serve_defaults.h"

namespace metronome {

// Whether there is any: cost_model.gpu_memory_utilization of sglang_serve_defaults is the least
// that the key can say where it does not.
bool sglang_leaves_memory(const HardwareSpec& gpu, const ChosenOptions& chosen);

}  // namespace metronome
