// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/eager_passes.h"

#include <algorithm>

#include "core/scenario/cost_model_config.h"
#include "sim/cost/pass_cost.h"

namespace metronome {

EagerPasses::EagerPasses(std::unique_ptr<CostModel> kernels, const Launches& launches,
                         std::int64_t n_layers)
    : kernels_(std::move(kernels)),
      launches_(launches),
      pass_ns_(round_ns(static_cast<double>(n_layers) * launches.us_per_layer * kNsPerMicro)) {}

// The host's time of a pass of so many tokens, beyond that of its kernels.
TimeNs EagerPasses::missing_ns(std::int64_t num_tokens, std::int64_t max_graph_tokens,
                               TimeNs kernels_ns) const {
  return num_tokens > max_graph_tokens ? std::max<TimeNs>(pass_ns_ - kernels_ns, 0) : 0;
}

// Multiplies the times of decodes and of prompts.
void EagerPasses::scale(const StepPlan& plan, StepCost& cost) const {
  const TimeNs of_all = cost.total_ns;
  const TimeNs of_decodes = cost.decode_only_ns;
  const double factor = launches_.step_factor;
  cost.decode_only_ns = round_ns(static_cast<double>(of_decodes) * factor);
  cost.total_ns = cost.decode_only_ns;
  if (plan.num_prefill_tokens > 0) {
    const auto of_prompts = static_cast<double>(of_all - of_decodes);
    cost.total_ns += round_ns(of_prompts * factor * launches_.prompt_factor);
  }
  cost.overhead_ns += cost.total_ns - of_all;
}

StepCost EagerPasses::step_cost(const StepPlan& plan) {
  StepCost cost = kernels_->step_cost(plan);
  if (launches_.step_factor != 1 || launches_.prompt_factor != 1) scale(plan, cost);
  const std::int64_t num_prompt_tokens = plan.num_prefill_tokens;
  const std::int64_t num_decode_tokens = plan.num_decode_tokens;
  TimeNs of_decodes = 0;
  if (num_decode_tokens > 0) {
    of_decodes = missing_ns(num_decode_tokens, launches_.max_graph_tokens, cost.decode_only_ns);
  }
  TimeNs of_step = of_decodes;
  if (num_prompt_tokens > 0 && plan.passes.size() > 1) {
    of_step += missing_ns(num_prompt_tokens, launches_.max_prompt_graph_tokens,
                          cost.total_ns - cost.decode_only_ns);
  } else if (num_prompt_tokens > 0) {
    of_step = missing_ns(num_prompt_tokens + num_decode_tokens, launches_.max_prompt_graph_tokens,
                         cost.total_ns);
  }
  cost.overhead_ns += of_step;
  cost.total_ns += of_step;
  cost.decode_only_ns = std::min(cost.decode_only_ns + of_decodes, cost.total_ns);
  return cost;
}

std::unique_ptr<CostModel> with_eager_passes(std::unique_ptr<CostModel> kernels,
                                             const ModelConfig& model,
                                             const CostModelConfig& config) {
  const EagerPasses::Launches launches = {
      config.eager_us_per_layer.value_or(0), config.max_graph_tokens.value_or(0),
      config.max_prompt_graph_tokens.value_or(0), config.step_factor, config.prompt_factor};
  const bool has_factor = launches.step_factor != 1 || launches.prompt_factor != 1;
  if (launches.us_per_layer == 0 && !has_factor) return kernels;
  return std::make_unique<EagerPasses>(std::move(kernels), launches, model.n_layers);
}

}  // namespace metronome
