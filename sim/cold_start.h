// SPDX-License-Identifier: Apache-2.0
// Delays the first launch of an engine. The host loads kernels and fills caches meanwhile, and sees
// no arrivals.
#pragma once

#include "core/engine/clock.h"
#include "core/engine/executor.h"

namespace metronome {

class ColdStart final : public Executor {
 public:
  // `executor` and `clock` outlive this object.
  ColdStart(Executor& executor, Clock& clock, TimeNs first_launch_ns)
      : executor_(executor), clock_(clock), first_launch_ns_(first_launch_ns) {}

  bool takes_runs() const override { return executor_.takes_runs(); }
  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    if (first_launch_ns_ > 0) clock_.wait_until(now + first_launch_ns_);
    first_launch_ns_ = 0;
    executor_.launch(plan, requests, clock_.now());
  }
  std::size_t launch_repeats(const StepPlan& plan, TimeNs now, TimeNs until,
                             std::span<StepTimes> times) override {
    return executor_.launch_repeats(plan, now, until, times);
  }
  const StepResult& collect() override { return executor_.collect(); }
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  Executor& executor_;
  Clock& clock_;
  TimeNs first_launch_ns_;
};

}  // namespace metronome
