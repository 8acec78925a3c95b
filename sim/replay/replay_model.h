// SPDX-License-Identifier: Apache-2.0
// Replays the step times of a recorded run for steps with the same composition.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cost/cost_model.h"

namespace metronome {

// A recorded step.
struct RecordedStep {
  std::uint64_t composition = 0;  // step_composition() of its plan; 0: not fully recorded
  TimeNs device_ns = 0;
  // Time from when the host could plan the step until it began; kNoTime: not recorded. The gap is
  // hidden if the previous step still ran at the end of it: the host was ready some time before.
  TimeNs gap_ns = kNoTime;
  bool is_gap_hidden = false;
  TimeNs decode_only_ns = kNoTime;  // StepResult::decode_only_ns

  bool operator==(const RecordedStep&) const = default;
};

// A hash of what a step's time depends on: the chunks of each pass by kind, first position, length
// and whether they sample. It ignores request ids and the order of chunks and passes. Never 0;
// requires passes.
std::uint64_t step_composition(const StepPlan& plan);

// A step takes the time of the recorded step with the same index, if the compositions match.
// Otherwise it takes the time of the nearest recorded step by index with that composition, the
// earlier of two. That time was measured in a similar state of the machine, and hiccups keep their
// frequency. A step whose composition was never recorded takes the time of `unseen` and is
// extrapolated.
class ReplayCostModel final : public CostModel {
 public:
  // With `has_own_gap` the host gap always comes from `unseen`.
  ReplayCostModel(std::vector<RecordedStep> steps, std::unique_ptr<CostModel> unseen,
                  bool has_own_gap);

  // The parts are those of `unseen`, scaled to the total.
  StepCost step_cost(const StepPlan& plan) override;
  TimeNs host_gap_ns(const StepPlan& plan) const override;
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return unseen_->kv_capacity_blocks(block_tokens);
  }

 private:
  struct Place {
    std::uint64_t composition;
    std::int64_t step;

    auto operator<=>(const Place&) const = default;
  };
  // nullptr if no recorded step has the plan's composition.
  const RecordedStep* find(const StepPlan& plan) const;

  std::vector<RecordedStep> steps_;
  std::vector<Place> places_;  // of steps with a composition, sorted
  std::unique_ptr<CostModel> unseen_;
  bool has_own_gap_;
};

}  // namespace metronome
