// SPDX-License-Identifier: Apache-2.0
// What the configuration of a run says of its engine's limits.
#pragma once

#include "core/metrics/first_tokens.h"

namespace metronome {

struct RunInfo;

// Limits that the configuration does not say are unknown.
EngineLimits engine_limits(const RunInfo& info);

}  // namespace metronome
