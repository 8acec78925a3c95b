// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from`: fits a cost model to measured steps.
#pragma once

#include <string>
#include <vector>

#include "study/calibrate/calibrate_steps.h"

namespace metronome {

// How the cost model file describes step times.
enum class FitKind {
  Fitted,  // a form
  Replay,  // the step times of one run, and a form for other steps
};

struct FitOptions {
  std::vector<std::string> sources;  // result folders and CSV files
  CalibrationSetup setup;
  FitKind kind = FitKind::Fitted;
  std::string out;  // empty: no file is written
};

// Fits, prints the fit and its errors on held-out steps, and writes the file. Throws UsageError for
// a replay of several runs or of a run with unknown contexts. Throws ConfigError, also if a fitted
// step is faster than the hardware allows. After an error no file is written.
void calibrate_from_steps(const FitOptions& options);

}  // namespace metronome
