// Whether chunk-invariance holds on this GPU, with this build and these algorithms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "gpu/engine/device_engine.h"

namespace metronome {

// Prompts of up to the largest pass are computed whole and in chunks of 2049, 1024, 257, 64, 7 and
// 1 tokens, beside the decodes of another request (where two have room), with the engine's own
// model and cache, whose contents it overwrites. Their keys, values and last logits must be the
// same to the bit each time. Returns a line for every size of chunks where they are not, with the
// first part that differs: "keys of layer 3 and 9 more parts differ for 600 tokens in chunks of
// 257". `poll` is called now and then.
std::vector<std::string> chunking_faults(DeviceEngine& engine,
                                         const std::function<void()>& poll = {});

}  // namespace metronome
