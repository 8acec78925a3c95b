// Learns by how much steps take longer, or shorter, than predicted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace metronome {

// Steps are told apart by their prompt tokens: none, or the power of two below. Each kind has a
// ratio of measured to predicted time, an exponential mean over its steps; between kinds the ratio
// is interpolated, so that it has no jumps that a search for the largest chunk could trip over. A
// kind not seen yet takes the ratio of the nearest kind seen. One wild step moves a ratio by a
// sixteenth at most: it counts as twice or half the ratio.
//
// Times that scatter need a margin: a corrected time is three mean deviations above the mean. Exact
// predictions are not changed at all.
class StepCorrection {
 public:
  TimeNs corrected_ns(TimeNs predicted_ns, std::int32_t num_prefill_tokens) const;
  // A step of `num_prefill_tokens` took `measured_ns`. Both times are positive, or it is ignored.
  void learn(TimeNs predicted_ns, TimeNs measured_ns, std::int32_t num_prefill_tokens);
  // Measured over predicted time, without the margin.
  double ratio(std::int32_t num_prefill_tokens) const { return blend(num_prefill_tokens).ratio; }

 private:
  struct Kind {
    double ratio = 1;
    double deviation = 0;  // mean of |measured / (ratio * predicted) - 1|
    std::int64_t num_steps = 0;
  };
  static constexpr std::size_t kNumKinds = 33;
  static std::size_t kind_of(std::int32_t num_prefill_tokens);
  const Kind& nearest(std::size_t kind) const;
  Kind blend(std::int32_t num_prefill_tokens) const;

  std::array<Kind, kNumKinds> kinds_;  // [0]: decodes only; [k]: 2^(k-1) tokens and more
  bool is_exact_ = true;               // every step took what was predicted
};

}  // namespace metronome
