// An engine's first launch keeps its host busy: it loads kernels and fills caches, and looks at no
// arrival meanwhile.
#pragma once

#include "core/engine/clock.h"
#include "core/engine/executor.h"

namespace metronome {

class ColdStart final : public Executor {
 public:
  // Both outlive it.
  ColdStart(Executor& executor, Clock& clock, TimeNs first_launch_ns)
      : executor_(executor), clock_(clock), first_launch_ns_(first_launch_ns) {}

  void launch(const StepPlan& plan, const RequestTable& requests, TimeNs now) override {
    if (first_launch_ns_ > 0) clock_.wait_until(now + first_launch_ns_);
    first_launch_ns_ = 0;
    executor_.launch(plan, requests, clock_.now());
  }
  const StepResult& collect() override { return executor_.collect(); }
  void forget_group(std::size_t group) override { executor_.forget_group(group); }

 private:
  Executor& executor_;
  Clock& clock_;
  TimeNs first_launch_ns_;
};

}  // namespace metronome
