// SPDX-License-Identifier: Apache-2.0
// The steps of a log with the positions of its rebuilt requests: step times are fitted to them.
#pragma once

#include <string>

#include "core/model/model_config.h"
#include "study/calibrate/calibrate_steps.h"
#include "study/rebuilt/rebuilt_requests.h"

namespace metronome {

// Iterations whose requests are not those that the log counts, or whose times are not plausible,
// are left out. `hardware` is what the steps ran on, for the file.
CalibrationSteps rebuilt_steps(const RebuiltLog& rebuilt, const std::string& path,
                               const ModelConfig& model, const std::string& hardware,
                               const std::string& engine);

}  // namespace metronome
