// SPDX-License-Identifier: Apache-2.0
#include "fleet/fleet_loop.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/base/error.h"
#include "sim/simulation.h"

namespace metronome {
namespace {

// The order in which the router looks at replicas.
std::vector<ReplicaId> drawn_order(std::size_t num_replicas, std::uint64_t seed) {
  std::vector<ReplicaId> order(num_replicas);
  std::iota(order.begin(), order.end(), 0);
  Rng rng(seed, "replica_order");
  for (std::size_t i = num_replicas; i > 1; --i) {
    std::swap(
        order[i - 1],
        order[static_cast<std::size_t>(rng.uniform_int(0, static_cast<std::int64_t>(i) - 1))]);
  }
  return order;
}

bool have_equal_blocks(std::span<const std::unique_ptr<Replica>> replicas) {
  const KvCacheManager& first = replicas.front()->engine().kv_cache();
  return std::all_of(replicas.begin(), replicas.end(), [&first](const auto& replica) {
    const KvCacheManager& cache = replica->engine().kv_cache();
    return cache.hash_unit() == first.hash_unit() &&
           cache.num_hash_lookahead_tokens() == first.num_hash_lookahead_tokens();
  });
}

}  // namespace

FleetLoop::FleetLoop(const FleetSetup& setup, const Workload& workload,
                     std::span<EventSink* const> sinks)
    : setup_(setup),
      workload_(workload),
      ends_cause_arrivals_(workload.has_sessions() || workload.mode == ArrivalMode::ClosedLoop),
      hasher_(nullptr),
      lots_(setup.router_seed, "router"),
      next_times_(setup.simulations.size()),
      sinks_(sinks.begin(), sinks.end()),
      gateway_(setup.gateway, workload.class_names),
      members_(setup.simulations.size(), setup.failures, setup.scaling) {
  if (workload.has_sessions()) {
    sessions_.emplace(workload);
  } else {
    single_.emplace(workload);
  }
  hasher_ = PrefixHasher(&prompts());
  std::copy_if(sinks.begin(), sinks.end(), std::back_inserter(followers_),
               [](const EventSink* sink) { return sink->follows_ends(); });
  for (Simulation* const simulation : setup.simulations) {
    const auto id = static_cast<ReplicaId>(replicas_.size());
    const ReplicaStart start = {
        .is_off = !members_.is_up(id),
        .may_fail = setup.may_delay(),
        .tells_first_tokens = !setup.router->is_blind || setup.scaling.slo_attainment_below};
    replicas_.push_back(std::make_unique<Replica>(id, *simulation, prompts(),
                                                  !workload.images.empty(), start, sinks));
  }
  METRONOME_CHECK(!setup.router->hears_blocks || have_equal_blocks(replicas_),
                  "a router hears of blocks of one size");
  RouterContext context = {.num_replicas = static_cast<std::int32_t>(replicas_.size()),
                           .seed = setup.router_seed,
                           .block_size = replicas_.front()->engine().kv_cache().hash_unit(),
                           .settings = setup.router_settings,
                           .caches = this};
  lanes_.resize(replicas_.front()->shares_sinks() ? 1
                                                  : static_cast<std::size_t>(setup.num_threads));
  if (lanes_.size() > 1) workers_.emplace(setup.num_threads);
  if (setup.shuffles_replicas) context.order = drawn_order(replicas_.size(), setup.router_seed);
  router_ = setup.router->make(context);
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    const auto id = static_cast<ReplicaId>(i);
    if (!members_.is_up(id)) router_->set_up(id, false);
  }
}

bool FleetLoop::run(const ProgressFn& progress) {
  constexpr std::uint32_t kTurnsPerProgress = 256;
  for (std::uint32_t turn = 1;; ++turn) {
    if (decides_ahead()) route_ahead();
    const TimeNs arrival = arrivals().next_time();
    const TimeNs change = std::min(members_.next_time(), gateway_.next_deadline());
    const TimeNs next = std::min(arrival, change);
    if (!advance_first(next)) {
      tell_events();
      const bool is_over = arrival == kNever && num_ended_ == num_received_;
      if (is_over || next == kNever) break;
      if (change <= arrival) {
        change_members(change);
      } else {
        if (setup_.report_interval > 0) report(next - next % setup_.report_interval);
        receive(next);
      }
    }
    const bool tells = progress && turn % kTurnsPerProgress == 0;
    if (tells && !progress({num_ended_, arrivals().num_total(), now_})) return false;
  }
  settle_all(kNever);
  tell_events();
  for (const std::unique_ptr<Replica>& replica : replicas_) {
    METRONOME_CHECK(!replica->engine().has_work(), "some requests can never be scheduled");
    METRONOME_CHECK(replica->engine().num_ended() == replica->engine().requests().size(),
                    "every request ended");
    replica->engine().check_integrity();
    now_ = std::max(now_, replica->engine().now());
  }
  METRONOME_CHECK(num_received_ == arrivals().num_total() && num_ended_ == num_received_,
                  "every request of the workload ended once");
  return true;
}

bool FleetLoop::advance_first(TimeNs until) {
  if (next_times_.first_time() >= until) return false;
  if (!ends_matter()) {
    settle_all(until);
    return true;
  }
  // Turn by turn: the next arrival may be the moment of an end.
  while (next_times_.first_time() < until && events_.empty()) {
    settle(next_times_.first(), next_times_.first_time() + 1);
  }
  tell_events();
  return true;
}

// The replica takes its turns before `until`.
void FleetLoop::settle(ReplicaId replica, TimeNs until) {
  next_times_.set(replica, at(replica).advance_to_change(until, events_));
}

void FleetLoop::settle_all(TimeNs until) {
  std::size_t num_due = 0;
  for (; next_times_.first_time() < until; ++num_due) {
    const ReplicaId replica = next_times_.first();
    lanes_[static_cast<std::size_t>(replica) % lanes_.size()].due.push_back(replica);
    next_times_.set(replica, kNever);
  }
  const auto advance = [this, until](std::size_t number) {
    Lane& lane = lanes_[number];
    for (const ReplicaId replica : lane.due) {
      lane.next.push_back(at(replica).advance_to_change(until, lane.events));
    }
  };
  constexpr std::size_t kWorthThreads =
      16;  // replicas; waking a thread takes as long as some turns
  if (workers_ && workers_->num_threads() == lanes_.size() && num_due >= kWorthThreads) {
    workers_->run(advance);
  } else {
    for (std::size_t number = 0; number < lanes_.size(); ++number) advance(number);
  }
  for (Lane& lane : lanes_) {
    for (std::size_t i = 0; i < lane.due.size(); ++i) next_times_.set(lane.due[i], lane.next[i]);
    events_.insert(events_.end(), lane.events.begin(), lane.events.end());
    lane.due.clear();
    lane.next.clear();
    lane.events.clear();
  }
}

// So many requests at once that each replica stays at work for long.
void FleetLoop::route_ahead() {
  constexpr std::uint32_t kRequestsPerReplica = 64;
  const std::uint32_t most =
      num_received_ + kRequestsPerReplica * static_cast<std::uint32_t>(replicas_.size());
  while (num_received_ < most) {
    const TimeNs next = arrivals().next_time();
    if (next == kNever) return;
    receive(next);
  }
}

void FleetLoop::tell_events() {
  if (!decides_ahead() || !followers_.empty()) {
    std::sort(events_.begin(), events_.end(), [](const ReplicaEvent& a, const ReplicaEvent& b) {
      return std::tie(a.time, a.replica, a.sequence) < std::tie(b.time, b.replica, b.sequence);
    });
  }
  for (const ReplicaEvent& event : events_) {
    now_ = std::max(now_, event.time);
    if (setup_.scaling.slo_attainment_below) judge(event);
    if (!event.has_ended) {
      router_->answered(event.request);
      continue;
    }
    for (EventSink* const sink : followers_) sink->on_replica_end(event.replica);
    router_->ended(event.request, event.replica);
    note_end(event.request, event.state, event.time);
    if (members_.is_up(event.replica)) {
      --num_in_flight_;
    } else if (router_->num_in_flight()[static_cast<std::size_t>(event.replica)] == 0) {
      set_state(event.replica, FleetMembers::State::Off);
      tell({event.time, FleetChange::Removed, event.replica});
    }
  }
  events_.clear();
  if (!gateway_.is_empty()) send_waiting(now_);
}

void FleetLoop::note_end(std::uint32_t number, RequestState state, TimeNs now) {
  ++num_ended_;
  if (sessions_) {
    Request request;
    request.state = state;
    sessions_->on_event({.time = now, .kind = EventKind::Ended, .request = RequestId{number}},
                        request);
  }
  arrivals().on_ended(now);
}

// Of several reports before the next decision, the router uses the last one.
void FleetLoop::report(TimeNs time) {
  if (time <= last_report_) return;
  last_report_ = time;
  reports_.clear();
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    replicas_[i]->advance(time, events_);
    settle(static_cast<ReplicaId>(i), time);
    reports_.push_back(replicas_[i]->report());
  }
  router_->reported(reports_);
}

void FleetLoop::receive(TimeNs now) {
  now_ = std::max(now_, now);
  while (const std::optional<RequestSpec> spec = arrivals().pop_due(now, 0)) {
    const Waiting request = {num_received_++, *spec};
    if (setup_.scaling.slo_attainment_below) {
      seen_.push_back({spec->arrival, 0, spec->class_number});
    }
    if (!setup_.may_delay()) {
      route(request, now);
    } else {
      take_in(request, now);
    }
  }
}

void FleetLoop::describe_prompt(std::uint32_t number, const RequestSpec& spec,
                                RoutedRequest& routed) {
  const RequestId id{number};
  runs_.clear();
  for (const PromptSegment& segment : prompts().prompt_segments(id)) {
    if (segment.num_tokens > 0) runs_.push_back({segment.content, 0, segment.num_tokens});
  }
  if (runs_.empty()) {
    for (const TokenId token : prompts().prompt_ids(id)) {
      runs_.push_back({static_cast<std::uint64_t>(value(token)), 0, 1});
    }
  }
  routed.prompt = runs_;
  if (!setup_.router->hears_blocks) return;
  chain_ = replicas_.front()->chain_of(hasher_, number, spec);
  blocks_.clear();
  for (const BlockHash hash : chain_) blocks_.push_back(static_cast<std::uint64_t>(hash));
  routed.blocks = blocks_;
}

void FleetLoop::route(const Waiting& request, TimeNs now) {
  const auto& [number, spec] = request;
  RoutedRequest routed = {
      .number = number, .now = now, .prompt = {}, .num_prompt_tokens = spec.num_prompt_tokens};
  if (sessions_) routed.session = std::uint64_t{sessions_->session_of(RequestId{number})} + 1;
  if (!setup_.router->is_blind) describe_prompt(number, spec, routed);
  const std::span<const ReplicaId> choices = router_->choose(routed);
  const std::int64_t last = std::ssize(choices) - 1;
  const ReplicaId chosen =
      choices[last == 0 ? 0 : static_cast<std::size_t>(lots_.uniform_int(0, last))];
  router_->sent(routed, chosen);
  ++num_in_flight_;
  at(chosen).send(number, spec, now);
  if (decides_ahead()) {
    next_times_.set(chosen, std::min(next_times_.time_of(chosen), now));
  } else {
    settle(chosen, now);
  }
}

// A replica whose turns were left out does nothing but decode. So its cache holds no prompt that it
// does not hold now, and lets blocks go.
void FleetLoop::count_cached(const RoutedRequest& request, std::span<std::int64_t> overlaps) {
  first_block_.assign(chain_.begin(), chain_.begin() + (chain_.empty() ? 0 : 1));
  for (std::size_t i = 0; i < replicas_.size(); ++i) {
    overlaps[i] = replicas_[i]->count_cached(first_block_);
    if (overlaps[i] == 0) continue;
    replicas_[i]->advance(request.now, events_);
    overlaps[i] = replicas_[i]->count_cached(chain_);
  }
}

}  // namespace metronome
