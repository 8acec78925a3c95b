// SPDX-License-Identifier: Apache-2.0
// The slowdown of a machine between two logs: the ratio of their step times at equal work.
#pragma once

#include <cstdint>
#include <optional>

#include "engines/log/engine_log.h"

namespace metronome {

struct StepDrift {
  // Time of the steps after, over that of the same steps before. 1: nothing could be compared.
  double ratio = 1;
  // 95 of 100 resamples of the compositions; nullopt: there are fewer than two.
  std::optional<double> low, high;
  std::int64_t num_compositions = 0;  // that both logs have
  std::int64_t num_before = 0;        // iterations of these
  std::int64_t num_after = 0;
  double share_before = 0;  // of the time of all iterations
  double share_after = 0;
};

// Iterations count as equal work if they have the same context requests, context tokens, generation
// requests and generation tokens. The ratio is that of two sums of median times: each composition
// counts as often as the log that has it more rarely. Logs do not have the lengths of contexts.
// Iterations without a plausible time are left out.
StepDrift step_drift(const EngineLog& before, const EngineLog& after);

}  // namespace metronome
