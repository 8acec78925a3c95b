// SPDX-License-Identifier: Apache-2.0
// Delays the first launch of an engine. The host loads kernels and fills caches meanwhile, and sees
// no arrivals.
#pragma once

#include "core/engine/executor.h"

namespace metronome {

class ColdStart final : public Executor {
 public:
  // `executor` outlives this object.
  ColdStart(Executor& executor, TimeNs first_launch_ns)
      : executor_(executor), first_launch_ns_(first_launch_ns) {}

  bool takes_runs() const override { return executor_.takes_runs(); }
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    host_free_at_ = now + first_launch_ns_;
    first_launch_ns_ = 0;
    executor_.launch(plan, requests, host_free_at_);
  }
  std::size_t launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until, TimeNs horizon,
                             std::span<StepTimes> times) override {
    return executor_.launch_repeats(plan, now, until, horizon, times);
  }
  TimeNs end_of_repeats(const StepPlan& plan, TimeNs now, std::size_t num_steps) override {
    return executor_.end_of_repeats(plan, now, num_steps);
  }
  TimeNs ready_at() const override { return executor_.ready_at(); }
  TimeNs host_free_at() const override { return host_free_at_; }
  const StepResult& collect() override { return executor_.collect(); }
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  Executor& executor_;
  TimeNs first_launch_ns_;
  TimeNs host_free_at_ = 0;
};

}  // namespace metronome
