// SPDX-License-Identifier: Apache-2.0
// What SGLang's reserve for chunks and graphs leaves of a GPU's memory.
#pragma once

#include "core/scenario/serve_defaults.h"

namespace metronome {

// Whether it leaves any: cost_model.gpu_memory_utilization of sglang_serve_defaults is the least
// that the key can say where it does not.
bool sglang_leaves_memory(const HardwareSpec& gpu, const ChosenOptions& chosen);

}  // namespace metronome
