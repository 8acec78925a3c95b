// SPDX-License-Identifier: Apache-2.0
// The replicas of a fleet that take requests: planned failures, and a rule that adds and removes
// replicas by what it sees of them from time to time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/scenario/fleet_rules.h"
#include "fleet/router.h"

namespace metronome {

// ScalingConfig with times in nanoseconds; see there.
struct ScalingRules {
  std::int64_t min_replicas = 0;  // 0: the number is fixed
  TimeNs interval = 0;
  TimeNs start_up = 0;
  std::int64_t step = 1;
  std::optional<double> queue_above, kv_use_above, slo_attainment_below;
  std::optional<double> queue_below, kv_use_below;
  TimeNs hold = 0;

  static ScalingRules of(const Scenario& scenario);
  bool is_on() const { return min_replicas > 0; }
};

// A fleet as the rule sees it.
struct FleetLook {
  std::int64_t num_waiting = 0;  // in the gateway, and in the engines that take requests
  double kv_use = 0;             // the mean of those engines
  // Of the requests that ended since the last look.
  std::int64_t num_ended = 0;
  std::int64_t num_good = 0;
};

class FleetMembers {
 public:
  enum class State : std::uint8_t { Off, Starting, Up, Draining, Failed };
  enum class Turn : std::uint8_t { Fails, Recovers, IsReady, Look };
  struct Change {
    Turn turn = Turn::Look;
    ReplicaId replica = 0;
    bool retries = false;  // Fails
  };

  FleetMembers(std::size_t num_replicas, std::span<const PlannedFailure> failures,
               const ScalingRules& rules);

  State state_of(ReplicaId replica) const { return states_[static_cast<std::size_t>(replica)]; }
  bool is_up(ReplicaId replica) const { return state_of(replica) == State::Up; }
  std::int64_t num_up() const { return num_up_; }
  void set(ReplicaId replica, State state);
  // A replica that is off, or that failed, starts: it is ready after its start-up time.
  void start(ReplicaId replica, TimeNs now);
  // Whether a start-up ends now. One that a failure ended does not.
  bool is_ready(ReplicaId replica, TimeNs now) const;
  // Whether the replica failed before it was ready.
  bool failed_at_start(ReplicaId replica) const;

  // When something changes, or the rule looks; kNever: nothing does.
  TimeNs next_time() const { return planned_.empty() ? kNever : planned_.begin()->first; }
  // Whether a replica may take requests later, if none does now and none has requests.
  bool may_come_up() const;
  // Takes it from the plan. Requires that there is one.
  Change take();

  // The replicas to add, each of which is ready later, or the one to remove, and why.
  struct Decision {
    std::vector<ReplicaId> added;
    std::optional<ReplicaId> removed;
    std::string cause;
  };
  // After take() gave a look. Those that it adds are starting.
  Decision look(TimeNs now, const FleetLook& seen);

 private:
  std::int64_t count(State state) const;
  std::int64_t num_up_or_one() const { return std::max<std::int64_t>(num_up(), 1); }
  // Why it adds; empty: it does not.
  std::string cause_to_add(const FleetLook& seen, std::int64_t num_present) const;
  // Why it removes one, if that lasts; empty: it does not.
  std::string cause_to_remove(const FleetLook& seen) const;

  ScalingRules rules_;
  std::vector<State> states_;
  std::vector<TimeNs> ready_at_;  // of the last start-up; kNever: it has ended, or there was none
  std::int64_t num_up_ = 0;
  std::multimap<TimeNs, Change> planned_;  // those of one time in the order of their planning
  TimeNs low_since_ = kNever;              // cause_to_remove() holds since then
};

}  // namespace metronome
