// SPDX-License-Identifier: Apache-2.0
#include "fleet/gateway.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"

namespace metronome {

GatewayRules GatewayRules::of(const Scenario& scenario) {
  const GatewayConfig& config = scenario.fleet.gateway;
  GatewayRules rules = {.max_in_flight = config.max_in_flight,
                        .max_queue = config.max_queue,
                        .max_wait = {},
                        .order = config.order,
                        .classes = gateway_classes(scenario)};
  if (config.max_wait_ms) rules.max_wait = std::llround(*config.max_wait_ms * 1e6);
  return rules;
}

Gateway::Gateway(const GatewayRules& rules, std::span<const std::string> class_names)
    : rules_(rules), lanes_(class_names.size() + 1) {
  names_.emplace_back("none");
  names_.insert(names_.end(), class_names.begin(), class_names.end());
  for (const GatewayClass& one : rules.classes) {
    const auto found = std::find(names_.begin(), names_.end(), one.name);
    METRONOME_CHECK(found != names_.end(), "the classes were checked");
    Lane& lane = lanes_[static_cast<std::size_t>(found - names_.begin())];
    lane.share = one.share;
    lane.max_queue = one.max_queue;
    lane.importance = one.importance;
  }
}

void Gateway::put(const Waiting& request, TimeNs now, std::vector<Refused>& refused) {
  const std::size_t own = lane_of(request.spec);
  Lane& lane = lanes_[own];
  if (lane.max_queue && std::ssize(lane.waiting) >= *lane.max_queue) {
    refused.push_back({request, fmt::format("the gateway's queue holds max_queue = {} of class {}",
                                            *lane.max_queue, names_[own])});
    return;
  }
  if (rules_.max_queue && num_waiting_ >= *rules_.max_queue) {
    const std::string why =
        fmt::format("the gateway's queue holds max_queue = {}", *rules_.max_queue);
    const bool is_least =
        num_waiting_ == 0 || lane.importance <= lanes_[least_important()].importance;
    if (is_least) {
      refused.push_back({request, why});
      return;
    }
    const std::size_t victim = least_important();
    refused.push_back({remove(victim, lanes_[victim].waiting.rbegin()->first), why});
  }
  if (lane.waiting.empty()) lane.next_turn = std::max(lane.next_turn, turn_);
  const std::uint64_t age = num_put_++;
  const Place place = {rules_.order == GatewayOrder::Priority ? request.spec.priority : 0, age};
  lane.waiting.emplace(place, request);
  ++num_waiting_;
  if (rules_.max_wait) by_age_.emplace(age, Aged{now + *rules_.max_wait, own, place});
}

std::size_t Gateway::least_important() const {
  std::size_t least = lanes_.size();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].waiting.empty()) continue;
    if (least == lanes_.size() || lanes_[i].importance < lanes_[least].importance ||
        (lanes_[i].importance == lanes_[least].importance &&
         lanes_[least].waiting.rbegin()->first < lanes_[i].waiting.rbegin()->first)) {
      least = i;
    }
  }
  return least;
}

bool Gateway::comes_before(const Lane& one, const Lane& other) const {
  if (rules_.order == GatewayOrder::Fair) return one.next_turn < other.next_turn;
  return one.waiting.begin()->first < other.waiting.begin()->first;
}

Gateway::Waiting Gateway::take() {
  if (!returned_.empty()) {
    const Waiting first = returned_.front();
    returned_.pop_front();
    return first;
  }
  METRONOME_CHECK(num_waiting_ > 0, "a request waits");
  std::size_t first = lanes_.size();
  for (std::size_t i = 0; i < lanes_.size(); ++i) {
    if (lanes_[i].waiting.empty()) continue;
    if (first == lanes_.size() || comes_before(lanes_[i], lanes_[first])) first = i;
  }
  Lane& lane = lanes_[first];
  turn_ = lane.next_turn;
  lane.next_turn += 1 / lane.share;
  return remove(first, lane.waiting.begin()->first);
}

Gateway::Waiting Gateway::remove(std::size_t lane, const Place& place) {
  const Place own = place;  // `place` may be in the lane
  const auto found = lanes_[lane].waiting.find(own);
  Waiting request = std::move(found->second);
  lanes_[lane].waiting.erase(found);
  by_age_.erase(own.second);
  --num_waiting_;
  return request;
}

void Gateway::refuse_late(TimeNs now, std::vector<Refused>& refused) {
  while (next_deadline() <= now) {
    const Aged oldest = by_age_.begin()->second;
    refused.push_back({remove(oldest.lane, oldest.place),
                       fmt::format("it waited in the gateway's queue for max_wait_ms = {}",
                                   format_double(to_ms(*rules_.max_wait)))});
  }
}

}  // namespace metronome
