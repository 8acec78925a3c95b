// SPDX-License-Identifier: Apache-2.0
// `metronome calibrate --from`: fits a cost model to measured steps.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/cost/cost_model_file.h"
#include "sim/fitted/fitted_fit.h"
#include "study/calibrate/calibrate_steps.h"

namespace metronome {

// How the cost model file describes step times.
enum class FitKind {
  Fitted,  // a form
  Replay,  // the step times of one run, and a form for other steps
};

// Measured steps and what was fitted to them.
struct Calibration {
  CalibrationSteps measured;
  FitKind kind = FitKind::Fitted;
  StepFit fit;
  std::optional<GapFit> gap;  // absent: not measured

  CostModelFile file() const;
};

// Reads the steps of result folders, logs and CSV files and fits them. Throws UsageError for a
// replay of several runs or of a run with unknown contexts. Throws ConfigError, also if a fitted
// step is faster than the hardware allows.
Calibration calibrate_from_steps(const std::vector<std::string>& sources,
                                 const CalibrationSetup& setup, FitKind kind);

// Fits these steps. Requires kMinSteps. Throws as calibrate_from_steps does.
Calibration calibrate_steps(CalibrationSteps measured, FitKind kind);

}  // namespace metronome
