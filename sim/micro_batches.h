// SPDX-License-Identifier: Apache-2.0
// Step times of an engine that computes a step in passes of a limited size (llama.cpp's n_ubatch).
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

#include "core/engine/step_plan.h"
#include "sim/cost/cost_model.h"

namespace metronome {

// Cuts the tokens of a step in order, decodes first: 64 tokens in passes of 24 are 24, 24 and 16.
// Each pass reads all weights. A chunk of several passes has its logits in the last one. A run of
// decodes stays in one pass.
class MicroBatches final : public CostModel {
 public:
  // `passes` prices them; pass_tokens >= 1.
  MicroBatches(std::unique_ptr<CostModel> passes, std::int64_t pass_tokens)
      : passes_(std::move(passes)), pass_tokens_(pass_tokens) {}

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override { return passes_->host_gap_ns(plan); }
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return passes_->kv_capacity_blocks(block_tokens);
  }

 private:
  void cut(const StepPlan& plan);

  std::unique_ptr<CostModel> passes_;
  std::int64_t pass_tokens_;
  StepPlan cut_;  // scratch
};

}  // namespace metronome
