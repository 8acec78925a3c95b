// SPDX-License-Identifier: Apache-2.0
#include "sim/corrected/corrected_model.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "sim/cost/pass_cost.h"

namespace metronome {

const StepFactors::Range& StepFactors::range_of(const StepTokens& tokens) const {
  const std::vector<Range>& ranges = tokens.has_prompt() ? prompt : decode;
  const auto found =
      std::partition_point(ranges.begin(), ranges.end() - 1,
                           [&](const Range& range) { return range.max_tokens < tokens.all(); });
  return *found;
}

CorrectedCostModel::CorrectedCostModel(std::unique_ptr<CostModel> base, StepFactors factors)
    : base_(std::move(base)), factors_(std::move(factors)) {
  METRONOME_CHECK(!factors_.decode.empty() && !factors_.prompt.empty(),
                  "a correction has ranges of tokens");
}

StepCost CorrectedCostModel::step_cost(const StepPlan& plan) {
  const StepCost base = base_->step_cost(plan);
  const StepTokens tokens = tokens_of(plan);
  const StepFactors::Range& range = factors_.range_of(tokens);
  const StepFactors::Range& of_decodes = factors_.range_of({0, tokens.decode});
  const auto times = [](TimeNs ns, double factor) { return static_cast<double>(ns) * factor; };
  PassCost all;
  all.linear_ns = times(base.linear_ns, range.factor);
  all.comm_ns = times(base.comm_ns, factors_.link);
  all.overhead_ns = times(base.overhead_ns, range.factor);
  all.attention_ns = times(base.attention_ns, tokens.has_prompt() ? factors_.prompt_attention
                                                                  : factors_.decode_attention);
  PassCost decodes;
  const TimeNs rest_ns =
      base.decode_only_ns - base.decode_only_attention_ns - base.decode_only_comm_ns;
  decodes.linear_ns = times(rest_ns, of_decodes.factor);
  decodes.comm_ns = times(base.decode_only_comm_ns, factors_.link);
  decodes.attention_ns = times(base.decode_only_attention_ns, factors_.decode_attention);
  StepCost cost = step_cost_of(all, decodes);
  cost.is_extrapolated = base.is_extrapolated || range.num_steps == 0;
  return cost;
}

}  // namespace metronome
