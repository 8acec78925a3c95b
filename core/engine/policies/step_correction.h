// SPDX-License-Identifier: Apache-2.0
// Learns the ratio of measured to predicted step times.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace metronome {

// Kinds of steps (core/engine/step_kind.h): decode-only steps, and steps with prefill by the power
// of two below their prefill tokens. Each kind has a ratio of measured to predicted time, an
// exponential mean over its steps. Ratios are interpolated between kinds, so a search for the
// largest chunk meets no jump. An unseen kind takes the ratio of the nearest seen kind. One outlier
// moves a ratio by at most a sixteenth, because it counts as at most twice or at least half the
// ratio.
//
// Noisy times need a margin: a corrected time is three mean deviations above the mean. Exact
// predictions are not changed.
class StepCorrection {
 public:
  TimeNs corrected_ns(TimeNs predicted_ns, std::int32_t num_prefill_tokens) const;
  // Learns from a step of `num_prefill_tokens`. Ignores it unless both times are positive.
  void learn(TimeNs predicted_ns, TimeNs measured_ns, std::int32_t num_prefill_tokens);
  // Measured over predicted time, without margin.
  double ratio(std::int32_t num_prefill_tokens) const { return blend(num_prefill_tokens).mean; }

 private:
  // The learned ratio of a kind.
  struct Ratio {
    double mean = 1;
    double deviation = 0;  // mean of |measured / (mean * predicted) - 1|
    std::int64_t num_steps = 0;
  };
  static constexpr std::size_t kNumKinds = 33;
  static std::size_t kind_of(std::int32_t num_prefill_tokens);
  const Ratio& nearest(std::size_t kind) const;
  Ratio blend(std::int32_t num_prefill_tokens) const;

  std::array<Ratio, kNumKinds> ratios_;  // [0]: decodes only; [k]: at least 2^(k-1) tokens
  bool is_exact_ = true;                 // every step took its predicted time
};

}  // namespace metronome
