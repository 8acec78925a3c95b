// SPDX-License-Identifier: Apache-2.0
#include "fleet/members.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/config/config_reader.h"
#include "core/scenario/scenario.h"

namespace metronome {

ScalingRules ScalingRules::of(const Scenario& scenario) {
  const ScalingConfig& config = scenario.fleet.scaling;
  return {.min_replicas = config.min_replicas,
          .interval = std::llround(config.interval_s * 1e9),
          .start_up = std::llround(config.start_up_s * 1e9),
          .step = config.step,
          .queue_above = config.queue_above,
          .kv_use_above = config.kv_use_above,
          .slo_attainment_below = config.slo_attainment_below,
          .queue_below = config.queue_below,
          .kv_use_below = config.kv_use_below,
          .hold = std::llround(config.hold_s * 1e9)};
}

FleetMembers::FleetMembers(std::size_t num_replicas, std::span<const PlannedFailure> failures,
                           const ScalingRules& rules)
    : rules_(rules), states_(num_replicas, State::Up), ready_at_(num_replicas, kNever) {
  for (const PlannedFailure& failure : failures) {
    planned_.emplace(failure.at, Change{Turn::Fails, failure.replica, failure.retries});
    if (failure.until == kNever) continue;
    planned_.emplace(failure.until, Change{Turn::Recovers, failure.replica});
  }
  num_up_ = rules.is_on() ? rules.min_replicas : std::ssize(states_);
  if (!rules.is_on()) return;
  std::fill(states_.begin() + rules.min_replicas, states_.end(), State::Off);
  planned_.emplace(rules.interval, Change{});
}

void FleetMembers::set(ReplicaId replica, State state) {
  State& own = states_[static_cast<std::size_t>(replica)];
  if (own == State::Up) --num_up_;
  own = state;
  if (own == State::Up) ++num_up_;
  if (own != State::Starting && own != State::Failed) {
    ready_at_[static_cast<std::size_t>(replica)] = kNever;
  }
}

void FleetMembers::start(ReplicaId replica, TimeNs now) {
  set(replica, State::Starting);
  const TimeNs ready_at = now + rules_.start_up;
  ready_at_[static_cast<std::size_t>(replica)] = ready_at;
  planned_.emplace(ready_at, Change{Turn::IsReady, replica});
}

bool FleetMembers::is_ready(ReplicaId replica, TimeNs now) const {
  return state_of(replica) == State::Starting &&
         ready_at_[static_cast<std::size_t>(replica)] == now;
}

bool FleetMembers::failed_at_start(ReplicaId replica) const {
  return state_of(replica) == State::Failed &&
         ready_at_[static_cast<std::size_t>(replica)] != kNever;
}

bool FleetMembers::may_come_up() const {
  if (count(State::Starting) > 0) return true;
  if (rules_.is_on() && count(State::Off) + count(State::Draining) > 0) return true;
  return std::any_of(planned_.begin(), planned_.end(),
                     [](const auto& planned) { return planned.second.turn == Turn::Recovers; });
}

std::int64_t FleetMembers::count(State state) const {
  return std::count(states_.begin(), states_.end(), state);
}

FleetMembers::Change FleetMembers::take() {
  METRONOME_CHECK(!planned_.empty(), "a change is planned");
  const auto [at, change] = *planned_.begin();
  planned_.erase(planned_.begin());
  if (change.turn == Turn::Look) planned_.emplace(at + rules_.interval, Change{});
  return change;
}

std::string FleetMembers::cause_to_add(const FleetLook& seen, std::int64_t num_present) const {
  if (num_present < rules_.min_replicas) {
    return fmt::format("{} are there, and min_replicas is {}", num_present, rules_.min_replicas);
  }
  const auto num_up = static_cast<double>(num_up_or_one());
  const double queue = static_cast<double>(seen.num_waiting) / num_up;
  if (rules_.queue_above && queue > *rules_.queue_above) {
    return fmt::format("{} requests wait for each replica, and queue_above is {}",
                       fixed_text(queue, 1), format_double(*rules_.queue_above));
  }
  if (rules_.kv_use_above && seen.kv_use > *rules_.kv_use_above) {
    return fmt::format("KV use is {}, and kv_use_above is {}", fixed_text(seen.kv_use, 2),
                       format_double(*rules_.kv_use_above));
  }
  if (!rules_.slo_attainment_below || seen.num_ended == 0) return {};
  const double share = static_cast<double>(seen.num_good) / static_cast<double>(seen.num_ended);
  if (share >= *rules_.slo_attainment_below) return {};
  return fmt::format("{} of requests were within the SLO, and slo_attainment_below is {}",
                     fixed_text(share, 2), format_double(*rules_.slo_attainment_below));
}

std::string FleetMembers::cause_to_remove(const FleetLook& seen) const {
  const double queue = static_cast<double>(seen.num_waiting) / static_cast<double>(num_up_or_one());
  if (rules_.queue_below && !(queue < *rules_.queue_below)) return {};
  if (rules_.kv_use_below && !(seen.kv_use < *rules_.kv_use_below)) return {};
  std::string cause;
  if (rules_.queue_below) {
    cause = fmt::format("{} requests wait for each replica, and queue_below is {}",
                        fixed_text(queue, 1), format_double(*rules_.queue_below));
  }
  if (rules_.kv_use_below) {
    cause += fmt::format("{}KV use is {}, and kv_use_below is {}", cause.empty() ? "" : "; ",
                         fixed_text(seen.kv_use, 2), format_double(*rules_.kv_use_below));
  }
  return cause;
}

FleetMembers::Decision FleetMembers::look(TimeNs now, const FleetLook& seen) {
  Decision decision;
  const std::int64_t num_starting = count(State::Starting);
  const std::int64_t num_present = num_up() + num_starting;
  decision.cause = cause_to_add(seen, num_present);
  if (!decision.cause.empty()) {
    low_since_ = kNever;
    for (std::size_t r = 0; r < states_.size(); ++r) {
      if (std::ssize(decision.added) == rules_.step) break;
      if (states_[r] != State::Off) continue;
      const auto replica = static_cast<ReplicaId>(r);
      decision.added.push_back(replica);
      start(replica, now);
    }
    return decision;
  }
  decision.cause = cause_to_remove(seen);
  if (decision.cause.empty()) {
    low_since_ = kNever;
    return decision;
  }
  low_since_ = std::min(low_since_, now);
  if (num_starting > 0 || num_present <= rules_.min_replicas || now - low_since_ < rules_.hold) {
    return decision;
  }
  const auto last = std::find(states_.rbegin(), states_.rend(), State::Up);
  decision.removed = static_cast<ReplicaId>(states_.rend() - last) - 1;
  low_since_ = now;  // the next one goes after as long a time again
  return decision;
}

}  // namespace metronome
