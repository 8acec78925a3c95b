// SPDX-License-Identifier: Apache-2.0
// Drafts that pad a decode.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/engine/step_plan.h"

namespace metronome {

// Of a chunk's drafts those that its step verifies. A policy may admit requests with drafts that
// only make their decode as long as the others: that padding is always rejected.
inline std::int32_t num_verified_drafts(const StepPlan& plan, const ScheduledChunk& chunk) {
  const std::int32_t num_drafts = chunk.num_drafts();
  if (num_drafts == 0) return 0;
  const auto& admitted = plan.admitted;
  const bool is_padding =
      std::find(admitted.begin(), admitted.end(), chunk.request) != admitted.end();
  return is_padding ? 0 : num_drafts;
}

}  // namespace metronome
