// SPDX-License-Identifier: Apache-2.0
// How much of a workload an engine can do at most.
#pragma once

#include <cstdint>

namespace metronome {

struct PreparedVariant;

struct Saturation {
  double requests_per_s = 0;                    // 0: no request can be served
  double prompt_tokens = 0, output_tokens = 0;  // of a served request, in the mean
  std::int64_t num_served = 0, num_tried = 0;
};

// Measures how much the engine serves when requests never run out. All arrive at the start; those
// count that leave the queue in its second half. Sessions continue without pauses. Uses up to 1000
// requests, or eight times as many as may run at once. Throws Interrupted.
Saturation saturation_of(PreparedVariant& variant);

}  // namespace metronome
