// SPDX-License-Identifier: Apache-2.0
// Changes in front of the replicas of a fleet, and of them: requests that wait, are refused or
// lost; replicas that fail, come and go.
#include <algorithm>
#include <fmt/core.h>
#include <utility>

#include "fleet/fleet_loop.h"

namespace metronome {

void FleetLoop::take_in(const Waiting& request, TimeNs now) {
  if (gateway_.is_empty() && gateway_.may_send(num_in_flight_, members_.num_up())) {
    route(request, now);
    return;
  }
  std::vector<Gateway::Refused> refused;
  gateway_.put(request, now, refused);
  refuse(refused, now);
  lose_stranded(now);
}

void FleetLoop::send_waiting(TimeNs now) {
  while (!gateway_.is_empty() && gateway_.may_send(num_in_flight_, members_.num_up())) {
    route(gateway_.take(), now);
  }
}

void FleetLoop::refuse(std::span<const Gateway::Refused> refused, TimeNs now) {
  for (const auto& [request, why] : refused) {
    if (first_refusal_.empty()) first_refusal_ = fmt::format("request {}: {}", request.number, why);
    end_in_front(request, EndReason::QueueFull, now);
  }
}

void FleetLoop::end_in_front(const Waiting& waiting, EndReason reason, TimeNs now) {
  const RequestSpec& spec = waiting.spec;
  Request request;
  request.id = RequestId{waiting.number};
  request.state = RequestState::Failed;
  request.end_reason = reason;
  request.arrival = spec.arrival;
  request.num_prompt_tokens = spec.num_prompt_tokens;
  request.max_output_tokens = spec.max_output_tokens;
  request.priority = spec.priority;
  request.class_number = spec.class_number;
  const Event event = {now, num_front_events_++, EventKind::Ended, reason, request.id};
  for (EventSink* const sink : sinks_) sink->on_event(event, request);
  now_ = std::max(now_, now);
  if (setup_.scaling.slo_attainment_below) ++num_ended_since_look_;
  note_end(waiting.number, RequestState::Failed, now);
}

void FleetLoop::lose_stranded(TimeNs now) {
  if (members_.num_up() > 0 || members_.may_come_up()) return;
  while (!gateway_.is_empty()) {
    const Waiting request = gateway_.take();
    if (first_loss_.empty()) {
      first_loss_ = fmt::format("request {}: no replica takes requests", request.number);
    }
    end_in_front(request, EndReason::Errored, now);
  }
}

void FleetLoop::tell(const FleetEvent& event) {
  for (EventSink* const sink : sinks_) sink->on_fleet_event(event);
}

void FleetLoop::set_state(ReplicaId replica, FleetMembers::State state) {
  using enum FleetMembers::State;
  const bool was_up = members_.is_up(replica);
  members_.set(replica, state);
  if (was_up == (state == Up)) return;
  const std::int64_t own = router_->num_in_flight()[static_cast<std::size_t>(replica)];
  num_in_flight_ += state == Up ? own : -own;
  router_->set_up(replica, state == Up);
}

void FleetLoop::change_members(TimeNs now) {
  now_ = std::max(now_, now);
  if (gateway_.next_deadline() <= now) {
    std::vector<Gateway::Refused> refused;
    gateway_.refuse_late(now, refused);
    refuse(refused, now);
    return;
  }
  using enum FleetMembers::Turn;
  using State = FleetMembers::State;
  const FleetMembers::Change change = members_.take();
  const State state = members_.state_of(change.replica);
  switch (change.turn) {
    case Fails: fail(change, now); break;
    case Recovers:
      if (state != State::Failed) break;
      if (members_.failed_at_start(change.replica)) {
        members_.start(change.replica, now);
        break;
      }
      set_state(change.replica, State::Up);
      tell({now, FleetChange::Recovered, change.replica});
      break;
    case IsReady:
      if (!members_.is_ready(change.replica, now)) break;
      at(change.replica).restart();
      settle(change.replica, now);
      set_state(change.replica, State::Up);
      tell({now, FleetChange::Ready, change.replica});
      break;
    case Look: look(now); break;
  }
  send_waiting(now);
  lose_stranded(now);
}

void FleetLoop::fail(const FleetMembers::Change& change, TimeNs now) {
  using State = FleetMembers::State;
  const State state = members_.state_of(change.replica);
  if (state == State::Off || state == State::Failed) return;
  at(change.replica).advance(now, events_);
  tell_events();
  std::vector<Replica::Interrupted> requests = at(change.replica).fail();
  settle(change.replica, now);
  for (const Replica::Interrupted& request : requests) {
    router_->ended(request.number, change.replica);
    if (members_.is_up(change.replica)) --num_in_flight_;
  }
  set_state(change.replica, State::Failed);
  FleetEvent event = {now, FleetChange::Failed, change.replica, "planned"};
  (change.retries ? event.num_retried : event.num_lost) = std::ssize(requests);
  tell(event);
  if (state == State::Draining) {  // it was to go
    set_state(change.replica, State::Off);
    tell({now, FleetChange::Removed, change.replica});
  }
  for (const Replica::Interrupted& request : requests) {
    if (change.retries) {
      gateway_.put_back({request.number, request.spec});
      continue;
    }
    if (first_loss_.empty()) {
      first_loss_ = fmt::format("request {}: replica {} failed", request.number, change.replica);
    }
    end_in_front({request.number, request.spec}, EndReason::Errored, now);
  }
}

void FleetLoop::judge(const ReplicaEvent& event) {
  Seen& seen = seen_[event.request];
  if (!event.has_ended) {
    seen.first_token = event.time;
    return;
  }
  ++num_ended_since_look_;
  if (event.state != RequestState::Finished) return;
  const SloConfig& slo = setup_.slo.of_class(seen.class_number);
  const std::int64_t num_gaps = event.num_output_tokens - 1;
  const double tpot_ms =
      num_gaps > 0 ? to_ms(event.time - seen.first_token) / static_cast<double>(num_gaps) : 0;
  const bool is_good = (!slo.ttft_ms || to_ms(seen.first_token - seen.arrival) <= *slo.ttft_ms) &&
                       (!slo.tpot_ms || tpot_ms <= *slo.tpot_ms) &&
                       (!slo.e2el_ms || to_ms(event.time - seen.arrival) <= *slo.e2el_ms);
  if (is_good) ++num_good_since_look_;
}

void FleetLoop::look(TimeNs now) {
  FleetLook seen = {.num_waiting = gateway_.num_waiting(),
                    .num_ended = std::exchange(num_ended_since_look_, 0),
                    .num_good = std::exchange(num_good_since_look_, 0)};
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const auto id = static_cast<ReplicaId>(i);
    if (!members_.is_up(id)) continue;
    replicas_[i]->advance(now, events_);
    settle(id, now);
    const ReplicaReport report = replicas_[i]->report();
    seen.num_waiting += report.num_waiting;
    seen.kv_use += report.kv_usage;
  }
  seen.kv_use /= static_cast<double>(std::max<std::int64_t>(members_.num_up(), 1));
  const FleetMembers::Decision decision = members_.look(now, seen);
  for (const ReplicaId replica : decision.added) {
    tell({now, FleetChange::Added, replica, decision.cause});
  }
  if (!decision.removed) return;
  const ReplicaId leaving = *decision.removed;
  set_state(leaving, FleetMembers::State::Draining);
  tell({now, FleetChange::Draining, leaving, decision.cause});
  if (router_->num_in_flight()[static_cast<std::size_t>(leaving)] > 0) return;
  set_state(leaving, FleetMembers::State::Off);
  tell({now, FleetChange::Removed, leaving});
}

}  // namespace metronome
