// SPDX-License-Identifier: Apache-2.0
#include "sim/step_noise.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <utility>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/metrics/step_regime.h"
#include "sim/cost/pass_cost.h"

namespace metronome {
namespace {

// The quantile of the measured / fitted ratio at `share`: linear between known quantiles.
double quantile(const StepScatter& scatter, double share) {
  const auto* const begin = std::begin(StepScatter::kShares);
  const auto* const above = std::upper_bound(begin + 1, std::end(StepScatter::kShares) - 1, share);
  const auto i = static_cast<std::size_t>(above - begin);
  const double part = (share - *(above - 1)) / (*above - *(above - 1));
  return scatter.ratios[i - 1] + part * (scatter.ratios[i] - scatter.ratios[i - 1]);
}

}  // namespace

NoisyCostModel::NoisyCostModel(std::unique_ptr<CostModel> exact, std::vector<StepScatter> scatter,
                               std::uint64_t seed)
    : exact_(std::move(exact)),
      scatter_(std::move(scatter)),
      seed_(mix64(seed)),
      drawn_seed_(seed_) {
  METRONOME_CHECK(!scatter_.empty(), "there is scatter to draw from");
}

void NoisyCostModel::redraw(std::int32_t n) {
  drawn_seed_ = n == 0 ? seed_ : mix64(seed_ + mix64(static_cast<std::uint64_t>(n)));
}

double NoisyCostModel::ratio_of(const StepPlan& plan) const {
  const std::int32_t order = step_regime_order(tokens_of(plan));
  const auto behind =
      std::find_if(scatter_.begin(), scatter_.end(),
                   [&](const StepScatter& scatter) { return scatter.regime.order > order; });
  const StepScatter& scatter = behind == scatter_.begin() ? *behind : *(behind - 1);
  const std::uint64_t bits = mix64(drawn_seed_ + static_cast<std::uint64_t>(plan.step_index));
  return quantile(scatter, unit_of(bits));
}

StepCost NoisyCostModel::step_cost(const StepPlan& plan) {
  StepCost cost = exact_->step_cost(plan);
  const double ratio = ratio_of(plan);
  for (TimeNs* part : {&cost.linear_ns, &cost.attention_ns, &cost.comm_ns, &cost.overhead_ns,
                       &cost.decode_only_ns, &cost.decode_only_attention_ns, &cost.draft_ns}) {
    *part = std::llround(std::min(static_cast<double>(*part) * ratio, kMaxStepNs));
  }
  cost.total_ns = cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns;
  cost.decode_only_ns = std::min(cost.decode_only_ns, cost.total_ns);
  cost.draft_ns = std::min(cost.draft_ns, cost.decode_only_ns);
  return cost;
}

}  // namespace metronome
