#include "sim/corrected_model.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "sim/pass_cost.h"

namespace metronome {

const StepCorrection::Range& StepCorrection::range_of(std::int64_t num_prefill_tokens,
                                                      std::int64_t num_decode_tokens) const {
  const std::vector<Range>& ranges = num_prefill_tokens > 0 ? prompt : decode;
  const std::int64_t tokens = num_prefill_tokens + num_decode_tokens;
  const auto found =
      std::partition_point(ranges.begin(), ranges.end() - 1,
                           [&](const Range& range) { return range.max_tokens < tokens; });
  return *found;
}

CorrectedCostModel::CorrectedCostModel(std::unique_ptr<CostModel> base, StepCorrection correction)
    : base_(std::move(base)), correction_(std::move(correction)) {
  METRONOME_CHECK(!correction_.decode.empty() && !correction_.prompt.empty(),
                  "a correction has ranges of tokens");
}

StepCost CorrectedCostModel::step_cost(const StepPlan& plan) {
  const StepCost base = base_->step_cost(plan);
  const StepCorrection::Range& range =
      correction_.range_of(plan.num_prefill_tokens, plan.num_decode_tokens);
  const StepCorrection::Range& of_decodes = correction_.range_of(0, plan.num_decode_tokens);
  const auto times = [](TimeNs ns, double factor) { return static_cast<double>(ns) * factor; };
  const bool has_prompts = plan.num_prefill_tokens > 0;
  PassCost all;
  all.linear_ns = times(base.linear_ns, range.factor);
  all.comm_ns = times(base.comm_ns, range.factor);
  all.overhead_ns = times(base.overhead_ns, range.factor);
  all.attention_ns = times(
      base.attention_ns, has_prompts ? correction_.prompt_attention : correction_.decode_attention);
  PassCost decodes;
  decodes.linear_ns = times(base.decode_only_ns - base.decode_only_attention_ns, of_decodes.factor);
  decodes.attention_ns = times(base.decode_only_attention_ns, correction_.decode_attention);
  StepCost cost = step_cost_of(all, decodes);
  cost.is_extrapolated = base.is_extrapolated || range.num_steps == 0;
  return cost;
}

}  // namespace metronome
