// SPDX-License-Identifier: Apache-2.0
// The clock of a serving engine: real time, or simulated time at the pace of real time.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>

#include "core/engine/clock.h"

namespace metronome {

// Both kinds stay at 0 until start(), so that a recorded run begins with its first request.
//
// For an engine that computes, now() is the real time since start(). For the simulator, now() is
// simulated time. A wait ends when as much real time has passed, but the clock then shows exactly
// the requested time, not the late wake-up. So the simulator's decisions depend only on arrival
// times, not on this machine's timers. If simulating takes longer than the simulated time, the
// clock falls behind and catches up without waiting.
class ServeClock final : public Clock {
 public:
  // Real time, for an engine that computes.
  ServeClock() = default;
  // Simulated time, `speed` times as fast as real time.
  explicit ServeClock(double speed) : speed_(speed), is_simulated_(true) {}

  TimeNs now() const override { return is_simulated_ ? now_ : stamp(); }
  // A long wait throws Stopped after stop() was called.
  void wait_until(TimeNs t) override;

  struct Stopped {};

  // The following functions are thread-safe.

  bool start();  // once; later calls do nothing and return false
  // The time of an event that happens now; 0 before start(). It stops at 146 years.
  TimeNs stamp() const;
  // How long so much of the engine's time takes.
  double real_seconds(TimeNs time) const { return to_seconds(time) / speed_; }
  // The real time at which stamp() will be `t`; now before start().
  std::chrono::steady_clock::time_point when(TimeNs t) const;
  void stop() { is_stopped_ = true; }
  // From now on simulated time passes without waits: requests that were aborted end at once.
  void hurry() { is_hurried_ = true; }

  // The maximum delay of a simulated wait since the last call, in simulated time. If it is large,
  // the simulator cannot keep pace.
  TimeNs drain_max_lag() { return max_lag_.exchange(0); }

 private:
  using Steady = std::chrono::steady_clock;

  double speed_ = 1;
  bool is_simulated_ = false;
  TimeNs now_ = 0;  // simulated; used only by the engine's thread
  std::atomic<bool> is_started_ = false;
  std::once_flag once_;
  Steady::time_point start_;
  std::atomic<bool> is_stopped_ = false;
  std::atomic<bool> is_hurried_ = false;
  std::atomic<TimeNs> max_lag_ = 0;
};

}  // namespace metronome
