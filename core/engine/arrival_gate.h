// SPDX-License-Identifier: Apache-2.0
// Before which plans an engine receives new requests: after a number of plans without prompts. An
// engine that has nothing to do looks all the time.
#pragma once

#include <cstdint>

namespace metronome {

struct ReceiveInterval {
  std::int64_t num_plans = 1;      // 1: requests are received before every plan
  std::int64_t prompts_count = 1;  // a plan with prompts counts as so many
};

class ArrivalGate {
 public:
  explicit ArrivalGate(const ReceiveInterval& interval) : interval_(interval) {}

  // Called before each plan: whether it receives requests. `had_prompts`: the plan before.
  bool receives(bool had_prompts) {
    if (interval_.num_plans == 1) return true;
    count_ += had_prompts ? interval_.prompts_count : 1;
    if (count_ < interval_.num_plans) return false;
    count_ = 0;
    return true;
  }

  // The engine has nothing to do: the next plan receives.
  void open() { count_ = interval_.num_plans; }

  // How many further plans receive nothing, if they have no prompts.
  std::int64_t num_closed() const { return interval_.num_plans - 1 - count_; }
  // So many plans without prompts were taken, and nothing arrived before those that receive.
  void skip(std::int64_t num_plans) { count_ = (count_ + num_plans) % interval_.num_plans; }

 private:
  ReceiveInterval interval_;
  std::int64_t count_ = 0;
};

}  // namespace metronome
