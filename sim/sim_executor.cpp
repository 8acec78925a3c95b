#include "sim/sim_executor.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {

void SimExecutor::launch(const StepPlan& plan, const RequestTable&, TimeNs now) {
  METRONOME_CHECK(num_launched_ - num_collected_ < kMaxInFlight, "too many steps in flight");
  const StepCost cost = cost_model_.step_cost(plan);
  StepResult& result = results_[static_cast<std::size_t>(num_launched_ % kNumResults)];
  result.step_index = plan.step_index;
  result.started_at = std::max(now + cost_model_.host_gap_ns(plan), device_free_at_);
  result.finished_at = result.started_at + cost.total_ns;
  result.decode_only_ns = cost.decode_only_ns;
  result.is_extrapolated = cost.is_extrapolated;
  device_free_at_ = result.finished_at;
  ++num_launched_;
}

const StepResult& SimExecutor::collect() {
  METRONOME_CHECK(num_collected_ < num_launched_, "no step is in flight");
  return results_[static_cast<std::size_t>(num_collected_++ % kNumResults)];
}

}  // namespace metronome
