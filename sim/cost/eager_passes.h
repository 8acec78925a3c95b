// SPDX-License-Identifier: Apache-2.0
// Step times where the host launches kernels one by one: passes that no CUDA graph has.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/model/model_config.h"
#include "sim/cost/cost_model.h"

namespace metronome {

struct CostModelConfig;

// A cost model that composes steps of kernels, with the host's part: a pass that no CUDA graph has
// takes no less than its launches. While the device is slower than the host, launches do not show.
// Steps take `step_factor` times their kernels, and prompts `prompt_factor` times that. The added
// time counts as overhead.
class EagerPasses final : public CostModel {
 public:
  struct Launches {
    double us_per_layer = 0;
    // The largest passes that run as graphs, in tokens: of decodes alone, and with prompts.
    std::int64_t max_graph_tokens = 0;
    std::int64_t max_prompt_graph_tokens = 0;
    double step_factor = 1;
    double prompt_factor = 1;
  };

  EagerPasses(std::unique_ptr<CostModel> kernels, const Launches& launches, std::int64_t n_layers);

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override { return kernels_->host_gap_ns(plan); }
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return kernels_->kv_capacity_blocks(block_tokens);
  }

 private:
  void scale(const StepPlan& plan, StepCost& cost) const;
  TimeNs missing_ns(std::int64_t num_tokens, std::int64_t max_graph_tokens,
                    TimeNs kernels_ns) const;

  std::unique_ptr<CostModel> kernels_;
  Launches launches_;
  TimeNs pass_ns_ = 0;  // launches of a pass
};

// `kernels` with the host's part, as `config` has it; `kernels` itself where it has none.
std::unique_ptr<CostModel> with_eager_passes(std::unique_ptr<CostModel> kernels,
                                             const ModelConfig& model,
                                             const CostModelConfig& config);

}  // namespace metronome
