// Fits the form of sim/fitted/fitted_model.h to measured steps.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "sim/fitted/fitted_model.h"
#include "sim/fitted/step_features.h"

namespace metronome {

struct MeasuredStep {
  std::vector<StepFeatures> passes;  // at least one
  double ns = 0;                     // that the device worked on it, > 0
  std::int64_t num_steps = 1;        // of which the passes are: only together were they timed
};

// Host time between a step and the next, when the next depended on it and the device stood idle.
struct MeasuredGap {
  double ns = 0;          // > 0
  double num_chunks = 0;  // of the next step
};

// What the gap is taken for: one number, or one more for each chunk of the step behind it, which is
// for each sequence that the host prepares.
struct GapFit {
  std::size_t num_gaps = 0;
  double constant_ns = 0;
  double base_ns = 0;
  double chunk_ns = 0;
  // Mean |error| of each on held-out gaps.
  double constant_error = 0;
  double chunk_error = 0;

  // Whether the second predicts better by more than kSimplerIsBetter.
  bool grows_with_chunks() const;
};

constexpr double kSimplerIsBetter = 1.02;

struct StepFit {
  FittedModel model;
  std::vector<bool> is_hiccup;  // of the steps; never of held-out ones
  // Mean |error| of each form of G on validation steps, of which the simplest is taken that is at
  // most kSimplerIsBetter of the best.
  std::vector<std::pair<std::string, double>> shapes;
};

constexpr std::size_t kMinSteps = 50;  // a fit wants
constexpr std::size_t kMinGaps = 20;

// Whether the step or gap at `position` is held out: every fifth, by a hash, so that those of every
// phase of a run are.
bool is_held_out(std::size_t position);

// Non-negative least squares of relative errors (sim/cost/least_squares.h). FittedForm::head is 0
// unless it makes validation errors smaller by more than kSimplerIsBetter. A fifth of the steps is
// held out: the coefficients do not see them, nor does the choice of G, which is made on another
// fifth; the errors are theirs. Requires kMinSteps.
StepFit fit_steps(const std::vector<MeasuredStep>& steps);

// Nothing with fewer than kMinGaps.
std::optional<GapFit> fit_gaps(const std::vector<MeasuredGap>& gaps);

}  // namespace metronome
