// SPDX-License-Identifier: Apache-2.0
// Step times of another cost model (the base), corrected by the step times of a measured run.
//
//   T(step) = rest(tokens) x rest_base + attention x attention_base + link x collectives_base
//
// `rest` has one factor per range of computed tokens, separately for decode-only steps and for
// steps with prompts. A server may use other matrix-product kernels than the profiled ones, chosen
// by the number of rows. `attention` has one factor for each of the two kinds of steps. Collectives
// have one, as a link is a fact of the host.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/engine/step_kind.h"
#include "sim/cost/cost_model.h"

namespace metronome {

// Factors that multiply the times of another model.
struct StepFactors {
  // Steps with at most `max_tokens` computed tokens, and more than in the previous range.
  struct Range {
    std::int64_t max_tokens = 0;
    double factor = 1;
    std::int64_t num_steps = 0;  // measured; 0: the factor follows from neighbouring ranges

    bool operator==(const Range&) const = default;
  };
  std::vector<Range> decode;  // decode-only steps; ascending, the last range has no upper bound
  std::vector<Range> prompt;
  double decode_attention = 1;
  double prompt_attention = 1;
  double link = 1;

  const Range& range_of(const StepTokens& tokens) const;

  bool operator==(const StepFactors&) const = default;
};

// A step is outside the calibration if the base says so or if no step of its token range was
// measured.
class CorrectedCostModel final : public CostModel {
 public:
  // `factors` has at least one range of each kind.
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
