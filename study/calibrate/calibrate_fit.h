// `metronome calibrate --from`: a cost model fitted to measured steps.
#pragma once

#include <string>
#include <vector>

#include "study/calibrate/calibrate_steps.h"

namespace metronome {

// What the cost model file says of steps.
enum class FitKind {
  Fitted,  // a form
  Replay,  // the times of the steps of one run, and a form for others
};

struct FitOptions {
  std::vector<std::string> sources;  // result folders and CSV files
  CalibrationSetup setup;
  FitKind kind = FitKind::Fitted;
  std::string out;  // empty: nothing is written
};

// Fits, prints what was found and how well held-out steps are predicted, and writes the file.
// Throws UsageError where a run is to be replayed and there are several, or its contexts are not
// known; ConfigError also where a fitted step is faster than the hardware can be; then nothing is
// written.
void calibrate_from_steps(const FitOptions& options);

}  // namespace metronome
