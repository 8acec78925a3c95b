// Learns by how much steps take longer, or shorter, than predicted.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/types.h"

namespace metronome {

// Kinds of steps (core/engine/step_kind.h): decodes alone, and steps with a prompt by the power of
// two below their prompt tokens. Each kind has a ratio of measured to predicted time, an
// exponential mean over its steps. The ratio is interpolated between kinds: a search for the
// largest chunk meets no jump. A kind not seen yet takes the ratio of the nearest kind seen. One
// wild step moves a ratio by a sixteenth at most: it counts as twice or half the ratio.
//
// Times that scatter need a margin: a corrected time is three mean deviations above the mean. Exact
// predictions are not changed at all.
class StepCorrection {
 public:
  TimeNs corrected_ns(TimeNs predicted_ns, std::int32_t num_prefill_tokens) const;
  // A step of `num_prefill_tokens` took `measured_ns`. Both times are positive, or it is ignored.
  void learn(TimeNs predicted_ns, TimeNs measured_ns, std::int32_t num_prefill_tokens);
  // Measured over predicted time, without the margin.
  double ratio(std::int32_t num_prefill_tokens) const { return blend(num_prefill_tokens).mean; }

 private:
  // What was learned of a kind.
  struct Ratio {
    double mean = 1;
    double deviation = 0;  // mean of |measured / (ratio * predicted) - 1|
    std::int64_t num_steps = 0;
  };
  static constexpr std::size_t kNumKinds = 33;
  static std::size_t kind_of(std::int32_t num_prefill_tokens);
  const Ratio& nearest(std::size_t kind) const;
  Ratio blend(std::int32_t num_prefill_tokens) const;

  std::array<Ratio, kNumKinds> ratios_;  // [0]: decodes only; [k]: 2^(k-1) tokens and more
  bool is_exact_ = true;               // every step took what was predicted
};

}  // namespace metronome
