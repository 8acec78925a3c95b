// Step times of another cost model, corrected by how long the steps of a measured run took.
//
//   T(step) = rest(tokens) x (T_base - attention_base) + attention x attention_base
//
// What is not attention has a factor for each range of computed tokens, of steps of decodes alone
// and of steps with prompts: a server's matrix products may be other kernels than the profiled
// ones, chosen by the number of rows. Attention has one factor for each of the two.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/engine/step_kind.h"
#include "sim/cost/cost_model.h"

namespace metronome {

// What the times of another model are multiplied by.
struct StepFactors {
  // Of steps with up to `max_tokens` computed tokens, more than in the range before.
  struct Range {
    std::int64_t max_tokens = 0;
    double factor = 1;
    std::int64_t num_steps = 0;  // measured; 0: the factor is its neighbours'

    bool operator==(const Range&) const = default;
  };
  std::vector<Range> decode;  // steps of decodes alone; ascending, the last goes on for ever
  std::vector<Range> prompt;
  double decode_attention = 1;
  double prompt_attention = 1;

  const Range& range_of(const StepTokens& tokens) const;

  bool operator==(const StepFactors&) const = default;
};

// A step is outside of the calibration where the base says so, and where none of its range of
// tokens was measured.
class CorrectedCostModel final : public CostModel {
 public:
  // `factors` has at least one range of either kind.
  CorrectedCostModel(std::unique_ptr<CostModel> base, StepFactors factors);

  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override { return base_->host_gap_ns(plan); }
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return base_->kv_capacity_blocks(block_tokens);
  }

 private:
  std::unique_ptr<CostModel> base_;
  StepFactors factors_;
};

}  // namespace metronome
