// Time for an engine that serves: real, or simulated at the pace of real time.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "core/engine/clock.h"

namespace metronome {

// Both kinds stand at 0 until start(), so that a recorded run begins with its first request.
//
// For an engine that computes, now() is the time since then. For the simulator, now() is simulated
// time: a wait ends when as much real time has passed, but the clock then shows the very time that
// was waited for, not how late the thread woke up. So nothing that the simulator decides depends on
// the timers of this machine, only on when requests came; where simulating takes longer than what
// is simulated, the clock falls behind and catches up without waiting.
class ServeClock final : public Clock {
 public:
  // The time of an engine that computes.
  ServeClock() = default;
  // Simulated time, `speed` times as fast as real time.
  explicit ServeClock(double speed) : speed_(speed), is_simulated_(true) {}

  TimeNs now() const override { return is_simulated_ ? now_ : stamp(); }
  // A long wait ends early, by throwing Stopped, once stop() was called.
  void wait_until(TimeNs t) override;

  struct Stopped {};

  // The rest may be called from any thread.

  bool start();  // once: false for later calls, which do nothing
  // The time that something happens at now. 0 before start().
  TimeNs stamp() const;
  // The moment at which stamp() will be `t`; now before start().
  std::chrono::steady_clock::time_point when(TimeNs t) const;
  void stop() { is_stopped_ = true; }

  // By how much a simulated wait came too late at most since the last call: the simulator cannot
  // keep pace with what it simulates. Simulated time.
  TimeNs take_max_lag() { return max_lag_.exchange(0); }

 private:
  using Steady = std::chrono::steady_clock;

  double speed_ = 1;
  bool is_simulated_ = false;
  TimeNs now_ = 0;  // simulated; of the engine's thread alone
  std::atomic<bool> is_started_ = false;
  std::once_flag once_;
  Steady::time_point start_;
  std::atomic<bool> is_stopped_ = false;
  std::atomic<TimeNs> max_lag_ = 0;
};

}  // namespace metronome
