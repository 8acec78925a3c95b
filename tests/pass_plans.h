// SPDX-License-Identifier: Apache-2.0
// Plans of one pass, for tests of step times.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "core/engine/step_plan.h"

namespace metronome::testing {

inline ScheduledChunk prefill(std::int32_t first, std::int32_t n) {
  return {RequestId{0}, first, n, ChunkKind::Prefill, true};
}

inline ScheduledChunk decode(std::int32_t history) {
  return {RequestId{0}, history, 1, ChunkKind::Decode, true};
}

inline StepPlan one_pass(std::vector<ScheduledChunk> chunks) {
  StepPlan plan;
  plan.chunks = std::move(chunks);
  plan.passes = {{0, static_cast<std::int32_t>(plan.chunks.size())}};
  return plan;
}

}  // namespace metronome::testing
