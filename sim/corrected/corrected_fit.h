// SPDX-License-Identifier: Apache-2.0
// Fits a correction of step times (sim/corrected/corrected_model.h) to intervals of a measured run.
// An interval is a stretch of steps; only the end of its last step is known.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/corrected/corrected_model.h"

namespace metronome {

// The base's prediction of a step.
struct PredictedStep {
  double rest_ns = 0;  // all but the other two
  double attention_ns = 0;
  double comm_ns = 0;
  std::int64_t num_prefill_tokens = 0;
  std::int64_t num_decode_tokens = 0;
};

// Steps [begin, end) of a run.
struct MeasuredInterval {
  std::size_t begin = 0;
  std::size_t end = 0;
  double took_ns = 0;  // device time
  // The interval begins when the previous one in the list ended. If that instant was taken late,
  // one interval is too long and the other too short by the same amount.
  bool follows = false;
};

struct CorrectionFit {
  StepFactors factors;
  double instant_ns = 0;  // standard deviation of an instant
  // Of predicted / measured - 1 over the intervals: for their sum, and the mean absolute value.
  double sum_error = 0;
  double mean_abs_error = 0;
};

// How far the base may be off: standard deviations of factors from 1, and between neighbouring
// ranges.
struct BaseScatter {
  double factor = 0.1;
  double neighbours = 0.05;
};
// Of kernel times that were measured on the same GPU: those of two GPUs were off by 2 to 4 %.
constexpr BaseScatter kProfileScatter = {0.03, 0.02};

constexpr std::size_t kMinIntervals = 10;  // that a fit requires

// Computes the most likely factors under these assumptions:
//   - A step's own time scatters by 1 %, independently of other steps.
//   - Instants were taken early or late by an amount estimated from the intervals, as neighbours
//     deviate in opposite directions.
//   - Factors are near 1, and those of neighbouring ranges near each other (`scatter`). That of
//     collectives deviates by 50 %: hosts with the same GPUs differ as much.
//   - Intervals with large deviations count less (Huber).
// So ranges with few measurements stay near the base and their neighbours. Requires kMinIntervals.
// Deterministic.
CorrectionFit fit_correction(std::span<const PredictedStep> steps,
                             std::span<const MeasuredInterval> intervals,
                             const BaseScatter& scatter = {});

double corrected_ns(const StepFactors& factors, const PredictedStep& step);

// The errors of `factors` on `intervals`, which may differ from the intervals of the fit.
CorrectionFit check_factors(const StepFactors& factors, std::span<const PredictedStep> steps,
                            std::span<const MeasuredInterval> intervals);

// A correction that changes nothing.
StepFactors unit_factors();

}  // namespace metronome
