// SPDX-License-Identifier: Apache-2.0
// Holds back the ends of requests until they are safely recorded: no answer is completed before.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "serve/server/live_engine.h"

namespace metronome {

class DurableEnds {
 public:
  // `num_recorded`: how many ends, in the order of the engine, are recorded. Empty: nothing is
  // recorded, and no end waits.
  explicit DurableEnds(std::function<std::int64_t()> num_recorded)
      : num_recorded_(std::move(num_recorded)) {}

  bool records() const { return static_cast<bool>(num_recorded_); }
  // Takes the events that follow those of the last call. Gives `see` the ends that are recorded by
  // now, and then the events, but for ends that are not.
  void pass(std::vector<LiveEvent>& events, const std::function<void(const LiveEvent&)>& see);
  // Whether an end of the request of this number is held.
  bool holds(std::uint64_t number) const { return num_held_.contains(number); }

 private:
  std::function<std::int64_t()> num_recorded_;
  std::int64_t num_ends_ = 0;                                 // that have come
  std::deque<std::pair<std::int64_t, LiveEvent>> held_;       // the latest of them, counted from 1
  std::unordered_map<std::uint64_t, std::int32_t> num_held_;  // by number of the request
};

}  // namespace metronome
