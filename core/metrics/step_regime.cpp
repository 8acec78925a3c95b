// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/step_regime.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

namespace metronome {

namespace {

constexpr std::int32_t kPrefill = 1 << 30;  // after the decode regimes, whose orders are batch
                                            // sizes
constexpr std::int32_t kMixed = kPrefill + 1;
constexpr std::int32_t kSmallestBatch = 8;

}  // namespace

std::int32_t step_regime_order(const StepTokens& tokens) {
  switch (tokens.phase()) {
    case StepPhase::Prefill: return kPrefill;
    case StepPhase::Mixed: return kMixed;
    case StepPhase::Decode: break;
  }
  return kSmallestBatch << doubling_range(tokens.decode, kSmallestBatch);
}

StepRegime step_regime_of_order(std::int32_t order) {
  if (order == kPrefill) return {order, "prefill"};
  if (order == kMixed) return {order, "mixed"};
  const std::int32_t first = order == kSmallestBatch ? 1 : order / 2 + 1;
  return {order, fmt::format("decode {}-{}", first, order)};
}

StepRegime step_regime(const StepTokens& tokens) {
  return step_regime_of_order(step_regime_order(tokens));
}

void RegimeErrors::add(const StepRegime& regime, double measured_ns, double predicted_ns,
                       std::int64_t step) {
  for (Errors* list : {&regimes_[regime], &all_}) {
    list->errors.push_back(predicted_ns / measured_ns - 1);
    list->steps.push_back(step);
    list->sum_ns += measured_ns;
    list->predicted_ns += predicted_ns;
  }
}

std::vector<RegimeError> RegimeErrors::summaries() const {
  std::vector<RegimeError> result;
  for (const auto& [regime, list] : regimes_) result.push_back(list.summary(regime.name));
  if (!all_.errors.empty()) result.push_back(all_.summary("all"));
  return result;
}

RegimeError RegimeErrors::Errors::summary(const std::string& regime) const {
  RegimeError result;
  result.regime = regime;
  result.num_steps = static_cast<std::int64_t>(errors.size());
  const auto count = static_cast<double>(errors.size());
  result.mean_ms = sum_ns / 1e6 / count;
  result.total_error = predicted_ns / sum_ns - 1;
  std::vector<double> sizes;
  for (std::size_t i = 0; i < errors.size(); ++i) {
    result.mean_error += errors[i] / count;
    sizes.push_back(std::abs(errors[i]));
    result.mean_abs_error += sizes.back() / count;
    if (i > 0 && sizes.back() <= std::abs(result.worst_error)) continue;
    result.worst_error = errors[i];
    result.worst_step = steps[i];
  }
  std::sort(sizes.begin(), sizes.end());
  result.p95_abs_error = sizes[static_cast<std::size_t>(0.95 * (count - 1) + 0.5)];
  return result;
}

}  // namespace metronome
