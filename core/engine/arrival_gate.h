// SPDX-License-Identifier: Apache-2.0
// Before which plans an engine receives new requests.
//
// SGLang's --scheduler-recv-interval, which its SchedulerRecvSkipper counts (0.5.23): requests are
// received after that many plans without prompts. A plan with prompts counts 1,000. An engine that
// has nothing to do looks all the time.
#pragma once

#include <cstdint>

namespace metronome {

class ArrivalGate {
 public:
  // 1: requests are received before every plan.
  explicit ArrivalGate(std::int32_t interval) : interval_(interval) {}

  // Called before each plan: whether it receives requests. `had_prompts`: the plan before.
  bool receives(bool had_prompts) {
    if (interval_ == 1) return true;
    count_ += had_prompts ? kPromptsCount : 1;
    if (count_ < interval_) return false;
    count_ = 0;
    return true;
  }

  // The engine has nothing to do: the next plan receives.
  void open() { count_ = interval_; }

  // How many further plans receive nothing, if they have no prompts.
  std::int64_t num_closed() const { return interval_ - 1 - count_; }
  // So many plans without prompts were taken, and nothing arrived before those that receive.
  void skip(std::int64_t num_plans) { count_ = (count_ + num_plans) % interval_; }

 private:
  static constexpr std::int64_t kPromptsCount = 1000;

  std::int64_t interval_;
  std::int64_t count_ = 0;
};

}  // namespace metronome
