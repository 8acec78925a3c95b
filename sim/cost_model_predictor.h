// SPDX-License-Identifier: Apache-2.0
// Predicts a step's time with a cost model before the step runs.
#pragma once

#include <memory>
#include <utility>

#include "core/engine/step_predictor.h"
#include "sim/cost/cost_model.h"

namespace metronome {

class CostModelPredictor final : public StepTimePredictor {
 public:
  explicit CostModelPredictor(std::unique_ptr<CostModel> cost_model)
      : cost_model_(std::move(cost_model)) {}

  TimeNs step_ns(const StepPlan& plan) override { return cost_model_->step_cost(plan).total_ns; }
  TimeNs host_gap_ns(const StepPlan& plan) const override { return cost_model_->host_gap_ns(plan); }

 private:
  std::unique_ptr<CostModel> cost_model_;
};

}  // namespace metronome
