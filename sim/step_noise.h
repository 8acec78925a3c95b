// Step times that scatter as measured ones did.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/fitted/fitted_model.h"

namespace metronome {

// A cost model whose step times are multiplied by draws from what was measured in the step's regime
// (of a regime that was not, from the nearest: smaller batches of decodes first). A draw depends on
// the seed, how often was drawn anew and the index of the step, and on nothing else; neighbouring
// steps are independent, which hiccups of real machines are not always.
class NoisyCostModel final : public CostModel {
 public:
  // `scatter` is ordered by regime and not empty.
  NoisyCostModel(std::unique_ptr<CostModel> exact, std::vector<StepScatter> scatter,
                 std::uint64_t seed);

  // Draws anew, for the n-th time; 0: as at first.
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
