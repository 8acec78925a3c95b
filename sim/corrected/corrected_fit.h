// Fits a correction of step times (sim/corrected/corrected_model.h) to intervals of a measured run:
// stretches of steps of which only is known when the last of them ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/corrected/corrected_model.h"

namespace metronome {

// A step as the base predicts it.
struct PredictedStep {
  double rest_ns = 0;  // all but attention
  double attention_ns = 0;
  std::int64_t num_prefill_tokens = 0;
  std::int64_t num_decode_tokens = 0;
};

// Steps [begin, end) of a run.
struct MeasuredInterval {
  std::size_t begin = 0;
  std::size_t end = 0;
  double took_ns = 0;  // on the device
  // It begins when the interval before it in the list ended: where that instant was taken late, one
  // is too long and the other too short by as much.
  bool follows = false;
};

struct CorrectionFit {
  StepFactors factors;
  double instant_ns = 0;  // how uncertain an instant is (standard deviation)
  // Of predicted / measured - 1 over the intervals: of their sum, and the mean size.
  double sum_error = 0;
  double mean_abs_error = 0;
};

constexpr std::size_t kMinIntervals = 10;  // a fit wants

// The most likely factors, where
//   - a step's own time scatters by 1 %, independently of others,
//   - an instant was taken early or late by an amount that is estimated from the intervals:
//     neighbours are off in opposite directions,
//   - factors are 1 give or take 10 %, and those of neighbouring ranges differ by 5 %,
// with intervals that are far off counting less (Huber). So ranges that were hardly measured stay
// at what the base and their neighbours say. Requires kMinIntervals. Deterministic.
CorrectionFit fit_correction(std::span<const PredictedStep> steps,
                             std::span<const MeasuredInterval> intervals);

double corrected_ns(const StepFactors& factors, const PredictedStep& step);

// The errors of `factors` on intervals that it need not have been fitted to.
CorrectionFit check_factors(const StepFactors& factors, std::span<const PredictedStep> steps,
                            std::span<const MeasuredInterval> intervals);

// A correction that changes nothing.
StepFactors unit_factors();

}  // namespace metronome
