// SPDX-License-Identifier: Apache-2.0
// Checks chunk-invariance on this GPU, with this build and these algorithms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/device_engine.h"

namespace metronome {

// Computes prompts of up to the largest pass whole and in chunks of 2049, 1024, 257, 64, 7 and 1
// tokens. Decodes of another request run beside them if two requests fit. Uses the engine's model
// and cache, and overwrites the cache. Keys, values and last logits must have the same bits each
// time. Returns a line for every chunk size that fails, with the first part that differs: "keys of
// layer 3 and 9 more parts differ for 600 tokens in chunks of 257". Calls `poll` now and then.
std::vector<std::string> chunking_faults(DeviceEngine& engine,
                                         const std::function<void()>& poll = {});

}  // namespace metronome
