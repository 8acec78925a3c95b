// `metronome calibrate --backend`: measures steps of a model where it runs, and fits to them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/run/run.h"

namespace metronome {

struct MeasureOptions {
  std::string model;                     // catalogue name, config.json, or model folder
  std::vector<std::string> assignments;  // KEY=VALUE of a scenario: sizes, memory, steps in flight
  std::string hardware;                  // as CalibrationSetup has it
  double seconds = 120;                  // for everything before the fit
  std::uint64_t seed = 1;                // of the order and the contexts of steps
  std::string out;                       // the cost model
};

// Where the steps of `out` are kept: NAME.steps beside NAME.json. A result folder for step times
// and, where two steps were in flight, one of single steps for the host's gap; `calibrate --from`
// reads them.
std::string measured_folder(const std::string& out);

// Measures the rounds of make_step_script() through the engine and the executor of `backend`, keeps
// them, fits to them and writes the cost model. A round that the time is not enough for is left out
// and said; without one whole round nothing is written, and a UsageError says so. Throws
// ConfigError for whatever the backend refuses, for sizes without room, and where
// calibrate_from_steps() does.
void calibrate_by_measuring(Backend& backend, const MeasureOptions& options);

}  // namespace metronome
