// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --backend`: measures steps of a model on this machine and fits a cost model.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run.h"

namespace metronome {

struct MeasureOptions {
  std::string model;                     // catalogue name, config.json, or model folder
  std::vector<std::string> assignments;  // KEY=VALUE of a scenario: sizes, memory, steps in flight
  std::string hardware;                  // same as CalibrationSetup::hardware
  double seconds = 120;                  // for everything before the fit
  std::uint64_t seed = 1;                // of the order and the contexts of steps
  std::string out;                       // the cost model
};

// The folder that keeps the measured steps of `out`: NAME.steps beside NAME.json. It holds a result
// folder for step times. If two steps were in flight it also holds a result folder with one step in
// flight, for the host gap. `calibrate --from` reads them.
std::string measured_folder(const std::string& out);

// Measures the rounds of make_step_script() through the engine and the executor of `backend`. Keeps
// the measurements, fits to them and writes the cost model. Rounds beyond the time limit are left
// out, with a message. Without one whole round nothing is written and UsageError is thrown. Throws
// ConfigError for anything that the backend rejects, for sizes that do not fit, and where
// calibrate_from_steps() does.
void calibrate_by_measuring(Backend& backend, const MeasureOptions& options);

}  // namespace metronome
