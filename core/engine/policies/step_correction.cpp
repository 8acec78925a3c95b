// SPDX-License-Identifier: Apache-2.0
#include "core/engine/policies/step_correction.h"

#include <algorithm>
#include <cmath>

#include "core/engine/step_kind.h"

namespace metronome {
namespace {

constexpr double kWeight = 1.0 / 8;  // of a new step in the means
constexpr double kNumDeviations = 3;
// Beyond this ratio a prediction is unrelated to the device.
constexpr double kMaxRatio = 1e6;

}  // namespace

std::size_t StepCorrection::kind_of(std::int32_t num_prefill_tokens) {
  return doubling_range(std::int64_t{std::max(num_prefill_tokens, 0)} + 1, 1);
}

// Decode-only steps are different work: they are a fallback only where no other kind was seen.
const StepCorrection::Ratio& StepCorrection::nearest(std::size_t kind) const {
  if (ratios_[kind].num_steps > 0) return ratios_[kind];
  const Ratio* found = &ratios_[kind];
  std::size_t least = kNumKinds;
  for (std::size_t i = 0; i < kNumKinds; ++i) {
    if (ratios_[i].num_steps == 0) continue;
    const std::size_t distance = i > kind ? i - kind : kind - i;
    const bool is_other_work = (i == 0) != (kind == 0);
    const std::size_t cost = is_other_work ? kNumKinds - 1 : distance;
    if (cost >= least) continue;
    least = cost;
    found = &ratios_[i];
  }
  return *found;
}

StepCorrection::Ratio StepCorrection::blend(std::int32_t num_prefill_tokens) const {
  const std::size_t kind = kind_of(num_prefill_tokens);
  if (kind == 0) return nearest(0);
  // A kind's ratio applies at the middle of its range.
  const double begin = static_cast<double>(std::int64_t{1} << (kind - 1));
  const double place = num_prefill_tokens / begin;  // in [1, 2)
  const bool is_upper = place >= 1.5;
  const Ratio& below = nearest(is_upper ? kind : std::max<std::size_t>(kind - 1, 1));
  const Ratio& above = nearest(is_upper ? std::min(kind + 1, kNumKinds - 1) : kind);
  const double weight = is_upper ? (place - 1.5) / 1.5 : (place - 0.75) / 0.75;
  // In this form two equal values give exactly that value.
  Ratio blended;
  blended.mean = below.mean + weight * (above.mean - below.mean);
  blended.deviation = below.deviation + weight * (above.deviation - below.deviation);
  return blended;
}

TimeNs StepCorrection::corrected_ns(TimeNs predicted_ns, std::int32_t num_prefill_tokens) const {
  if (is_exact_) return predicted_ns;
  const Ratio ratio = blend(num_prefill_tokens);
  const double factor = ratio.mean * (1 + kNumDeviations * ratio.deviation);
  return std::llround(static_cast<double>(predicted_ns) * factor);
}

void StepCorrection::learn(TimeNs predicted_ns, TimeNs measured_ns,
                           std::int32_t num_prefill_tokens) {
  if (predicted_ns <= 0 || measured_ns <= 0) return;
  Ratio& ratio = ratios_[kind_of(num_prefill_tokens)];
  if (measured_ns != predicted_ns) is_exact_ = false;
  const double measured =
      std::clamp(static_cast<double>(measured_ns) / static_cast<double>(predicted_ns),
                 1 / kMaxRatio, kMaxRatio);
  // The first steps have equal weight, so the very first does not dominate for long.
  const double weight = std::max(kWeight, 1.0 / static_cast<double>(ratio.num_steps + 1));
  if (ratio.num_steps == 0) {
    ratio.mean = measured;
  } else {
    const double usual = std::clamp(measured, ratio.mean / 2, ratio.mean * 2);
    const double deviation = std::abs(usual / ratio.mean - 1);
    ratio.deviation += weight * (deviation - ratio.deviation);
    ratio.mean += weight * (usual - ratio.mean);
  }
  ++ratio.num_steps;
}

}  // namespace metronome
