// SPDX-License-Identifier: Apache-2.0
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
  double ns = 0;                     // device time, > 0
  std::int64_t num_steps = 1;        // the passes belong to this many steps, timed together
};

// Host time between two steps, where the second depended on the first and the device was idle.
struct MeasuredGap {
  double ns = 0;          // > 0
  double num_chunks = 0;  // of the next step
};

// The fitted gap: a constant, or a constant plus a term per chunk of the next step. The host
// prepares one sequence per chunk.
struct GapFit {
  std::size_t num_gaps = 0;
  double constant_ns = 0;
  double base_ns = 0;
  double chunk_ns = 0;
  // Mean absolute error of each form on held-out gaps.
  double constant_error = 0;
  double chunk_error = 0;

  // Whether the second form predicts better by more than kSimplerIsBetter.
  bool grows_with_chunks() const;
};

constexpr double kSimplerIsBetter = 1.02;

struct StepFit {
  FittedModel model;
  std::vector<bool> is_hiccup;  // one per step; always false for held-out steps
  // Mean absolute error of each form of G on validation steps. The fit takes the simplest form
  // whose error is at most kSimplerIsBetter times the lowest.
  std::vector<std::pair<std::string, double>> shapes;
};

constexpr std::size_t kMinSteps = 50;  // that a fit requires
constexpr std::size_t kMinGaps = 20;

// Whether the step or gap at `position` is held out: every fifth one, by a hash, so that every
// phase of a run contributes.
bool is_held_out(std::size_t position);

// Non-negative least squares of relative errors (sim/cost/least_squares.h). FittedForm::head is 0
// unless it lowers validation errors by more than kSimplerIsBetter. A fifth of the steps is held
// out and yields the reported errors. Neither the coefficients nor the choice of G uses it; another
// fifth decides the choice of G. Requires kMinSteps.
StepFit fit_steps(const std::vector<MeasuredStep>& steps);

// nullopt with fewer than kMinGaps.
std::optional<GapFit> fit_gaps(const std::vector<MeasuredGap>& gaps);

}  // namespace metronome
