// SPDX-License-Identifier: Apache-2.0
// A simulated run of a scenario that is compared at once, and not stored.
#pragma once

#include <string>

#include "reports/files/result_reader.h"

namespace metronome {

// Simulates the only variant of the scenario at `path`, with a bar of its progress; `folder` of the
// result is the path. Throws UsageError if there are several, and ConfigError as run does.
StoredRun simulated_run(const std::string& path);

}  // namespace metronome
