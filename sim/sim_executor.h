// SPDX-License-Identifier: Apache-2.0
// Executes plans on a cost model: a device that runs one step after another, and a host that needs
// its gap before each step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/engine/decode_run.h"
#include "core/engine/executor.h"
#include "sim/cost/cost_model.h"
#include "sim/drafts/acceptance.h"
#include "sim/encoder_cost.h"

namespace metronome {

// A step reaches the device host_gap after it was planned and starts when the device is free. With
// one step in flight the gap lies between steps; with two it overlaps the previous step.
class SimExecutor final : public Executor {
 public:
  // All outlive the executor. `acceptance` draws the results of drafts; null: the policy plans
  // none. `encoder` prices images; null: plans have none. Steps take `step_scale` times the cost.
  explicit SimExecutor(CostModel& cost_model, const Acceptance* acceptance = nullptr,
                       const EncoderCost* encoder = nullptr, double step_scale = 1)
      : cost_model_(cost_model),
        acceptance_(acceptance),
        encoder_(encoder),
        step_scale_(step_scale) {}

  bool takes_runs() const override { return true; }
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  std::size_t launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until, TimeNs horizon,
                             std::span<StepTimes> times) override;
  TimeNs end_of_repeats(const StepPlan& plan, TimeNs now, std::size_t num_steps) override;
  TimeNs ready_at() const override {
    return results_[static_cast<std::size_t>(num_collected_ % kNumResults)].finished_at;
  }
  const StepResult& collect() override;

 private:
  // A chunk of a step in flight that samples.
  struct Sample {
    RequestId request;
    std::int32_t num_verified;  // its drafts without padding
    std::int32_t num_next;      // drafts that its request may have in the next step
  };

  StepCost cost_of(const StepPlan& plan) const;
  StepTimes take(const StepPlan& plan, TimeNs now, TimeNs& device_free_at) const;
  void begin_repeats(const StepPlan& plan, TimeNs now);
  void add_repeat();
  void note(std::int64_t step_index, const StepTimes& times);
  void note_drafts(const StepPlan& plan);
  void draw_drafts(StepResult& result, const std::vector<Sample>& samples) const;

  CostModel& cost_model_;
  const Acceptance* acceptance_;
  const EncoderCost* encoder_;
  double step_scale_;
  const RequestTable* requests_ = nullptr;                 // the engine's
  std::array<std::vector<Sample>, kMaxInFlight> samples_;  // by launch, in plan order
  TimeNs device_free_at_ = 0;
  std::array<StepResult, kNumResults> results_;
  // The repeats of a plan as far as they are computed, each as if none before it were the last.
  std::vector<StepTimes> repeats_;
  StepPlan repeated_;        // the plan, and later the last of them
  RunMembers members_;       // its run
  TimeNs planned_next_ = 0;  // when the host plans the next one
  TimeNs repeats_end_ = 0;   // when the device is free after them
  bool has_repeats_ = false;
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
};

}  // namespace metronome
