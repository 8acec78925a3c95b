// Step times of one recorded run, given back when its steps are made again.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sim/cost/cost_model.h"

namespace metronome {

// A step as it was recorded.
struct RecordedStep {
  std::uint64_t composition = 0;  // step_composition() of its plan; 0: nobody recorded all of it
  TimeNs device_ns = 0;
  // From when the host could plan it until it began; kNoTime: nobody recorded it. Where the step
  // before still ran until then it is hidden: the host was ready some time before.
  TimeNs gap_ns = kNoTime;
  bool is_gap_hidden = false;
  TimeNs decode_only_ns = kNoTime;  // StepResult::decode_only_ns

  bool operator==(const RecordedStep&) const = default;
};

// A hash of what the time of a step depends on: the chunks of each pass by kind, first position,
// length and whether they sample. Not of whose they are, nor of the order of chunks and passes.
// Never 0; requires passes.
std::uint64_t step_composition(const StepPlan& plan);

// A step takes what the recorded step of the same index took, where that computed the same; else
// what the recorded step did that computed the same and is the nearest by index, the earlier of
// two: one that was measured, in a state of the machine like this one's, and hiccups stay as
// frequent as they were. A step that was never recorded takes what `unseen` says, and is
// extrapolated.
class ReplayCostModel final : public CostModel {
 public:
  // With `has_own_gap` the host's gap is always that of `unseen`.
  ReplayCostModel(std::vector<RecordedStep> steps, std::unique_ptr<CostModel> unseen,
                  bool has_own_gap);

  // The parts are those of `unseen`, in proportion.
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
  // nullptr: there is none.
  const RecordedStep* find(const StepPlan& plan) const;

  std::vector<RecordedStep> steps_;
  std::vector<Place> places_;  // of steps with a composition, in order
  std::unique_ptr<CostModel> unseen_;
  bool has_own_gap_;
};

}  // namespace metronome
