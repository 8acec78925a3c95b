// SPDX-License-Identifier: Apache-2.0
// The limits of a run's engine, as its configuration says.
#pragma once

#include "core/metrics/first_tokens.h"

namespace metronome {

struct RunInfo;

// Limits that the configuration does not say are unknown.
EngineLimits engine_limits(const RunInfo& info);

}  // namespace metronome
