// Executes plans on a cost model: a device that runs one step after another, and a host that needs
// its gap before each step.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "core/engine/decode_run.h"
#include "core/engine/executor.h"
#include "sim/cost/cost_model.h"

namespace metronome {

// A step reaches the device host_gap after it was planned and starts when the device is free. With
// one step in flight the gap lies between steps; with two it overlaps the previous step.
class SimExecutor final : public Executor {
 public:
  explicit SimExecutor(CostModel& cost_model) : cost_model_(cost_model) {}

  bool takes_runs() const override { return true; }
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override;
  std::size_t launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until,
                             std::span<StepTimes> times) override;
  const StepResult& collect() override;

 private:
  StepTimes take(const StepPlan& plan, TimeNs now);
  void note(std::int64_t step_index, const StepTimes& times);

  CostModel& cost_model_;
  TimeNs device_free_at_ = 0;
  std::array<StepResult, kNumResults> results_;
  StepPlan repeated_;   // scratch of launch_repeats()
  RunMembers members_;  // scratch of launch_repeats()
  std::int64_t num_launched_ = 0;
  std::int64_t num_collected_ = 0;
};

}  // namespace metronome
