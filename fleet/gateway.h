// SPDX-License-Identifier: Apache-2.0
// The queue in front of a router: requests wait there while the replicas have as many as they may,
// or while none takes any. A full queue refuses requests by class.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"
#include "core/scenario/fleet_config.h"
#include "core/scenario/fleet_rules.h"

namespace metronome {

struct GatewayRules {
  std::optional<std::int64_t> max_in_flight;  // for each replica that takes requests
  std::optional<std::int64_t> max_queue;
  std::optional<TimeNs> max_wait;
  GatewayOrder order = GatewayOrder::Fcfs;
  std::vector<GatewayClass> classes;  // those that differ

  // Throws ConfigError.
  static GatewayRules of(const Scenario& scenario);
};

class Gateway {
 public:
  struct Waiting {
    std::uint32_t number = 0;  // in the run
    RequestSpec spec;
  };
  // A request that leaves the queue without being sent.
  struct Refused {
    Waiting request;
    std::string why;
  };

  // `class_names` are the workload's: RequestSpec::class_number counts them from 1.
  Gateway(const GatewayRules& rules, std::span<const std::string> class_names);

  bool is_empty() const { return returned_.empty() && num_waiting_ == 0; }
  std::int64_t num_waiting() const { return num_waiting_ + std::ssize(returned_); }

  // Whether one more may be sent to `num_up` replicas that have so many requests.
  bool may_send(std::int64_t num_in_flight, std::int64_t num_up) const {
    return num_up > 0 && (!rules_.max_in_flight || num_in_flight < *rules_.max_in_flight * num_up);
  }

  // A request waits from `now` on. Appends to `refused` whoever has no place then.
  void put(const Waiting& request, TimeNs now, std::vector<Refused>& refused);
  // A request that a replica lost waits before all others, and is never refused.
  void put_back(const Waiting& request) { returned_.push_back(request); }
  // The next one. Requires that one waits.
  Waiting take();
  // When the next one has waited for too long; kNever: none will.
  TimeNs next_deadline() const {
    return by_age_.empty() ? kNever : by_age_.begin()->second.deadline;
  }
  // Appends those that have waited for too long.
  void refuse_late(TimeNs now, std::vector<Refused>& refused);

 private:
  // In a lane: by priority, if that is the order, then by age.
  using Place = std::pair<std::int32_t, std::uint64_t>;
  // The requests of a class; lane 0 has those of none.
  struct Lane {
    double share = 1;
    std::optional<std::int64_t> max_queue;
    std::int64_t importance = 0;
    std::map<Place, Waiting> waiting;
    double next_turn = 0;  // order fair: the least goes first
  };
  struct Aged {
    TimeNs deadline;
    std::size_t lane;
    Place place;
  };

  std::size_t lane_of(const RequestSpec& spec) const {
    return std::min<std::size_t>(spec.class_number, lanes_.size() - 1);
  }
  bool comes_before(const Lane& one, const Lane& other) const;
  // The lane whose newest request a full queue refuses.
  std::size_t least_important() const;
  Waiting remove(std::size_t lane, const Place& place);

  GatewayRules rules_;
  std::vector<Lane> lanes_;
  std::vector<std::string> names_;  // by lane
  std::int64_t num_waiting_ = 0;
  std::deque<Waiting> returned_;
  std::uint64_t num_put_ = 0;
  std::map<std::uint64_t, Aged> by_age_;  // with a limit of the wait
  double turn_ = 0;                       // of the last that left
};

}  // namespace metronome
