// SPDX-License-Identifier: Apache-2.0
// Step times with the scatter of measured step times.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/fitted/fitted_model.h"

namespace metronome {

// A cost model whose step times are multiplied by ratios drawn from the measurements of the step's
// regime. A regime without measurements uses the nearest: smaller batches of decodes first. A draw
// depends only on the seed, the redraw number and the step index. Neighbouring steps are
// independent; hiccups of real machines are not always.
class NoisyCostModel final : public CostModel {
 public:
  // `scatter` is ordered by regime and not empty.
  NoisyCostModel(std::unique_ptr<CostModel> exact, std::vector<StepScatter> scatter,
                 std::uint64_t seed);

  // Starts the n-th series of draws; 0: the initial series.
  void redraw(std::int32_t n);

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override { return exact_->host_gap_ns(plan); }
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return exact_->kv_capacity_blocks(block_tokens);
  }

 private:
  double ratio_of(const StepPlan& plan) const;

  std::unique_ptr<CostModel> exact_;
  std::vector<StepScatter> scatter_;
  std::uint64_t seed_;
  std::uint64_t drawn_seed_;
};

}  // namespace metronome
