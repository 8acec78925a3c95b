// SPDX-License-Identifier: Apache-2.0
// Several engines on one time, behind a router. They advance independently to the next instant at
// which something couples them: a request comes, or the router gets reports. What happened
// meanwhile is told in order of time, and of the replicas' numbers where times are equal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/engine/arrival_source.h"
#include "core/engine/drive.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/metrics/slo_config.h"
#include "core/workload/session_arrivals.h"
#include "core/workload/workload_arrivals.h"
#include "fleet/gateway.h"
#include "fleet/members.h"
#include "fleet/next_times.h"
#include "fleet/replica.h"
#include "fleet/router_registry.h"
#include "system/worker_group.h"

namespace metronome {

struct FleetSetup {
  std::vector<Simulation*> simulations;  // by replica; those of equal replicas may be the same
  const RouterInfo* router = nullptr;
  PolicySettings router_settings;
  std::uint64_t router_seed = 0;
  bool shuffles_replicas = false;
  TimeNs report_interval = 0;  // 0: the router asks for no reports
  GatewayRules gateway = {};
  ScalingRules scaling = {};
  std::vector<PlannedFailure> failures = {};
  SloConfig slo = {};  // of ScalingRules::slo_attainment_below
  // Replicas whose numbers are alike modulo this one share a thread, and may share a simulation.
  // The others of `simulations` are others then.
  std::int32_t num_threads = 1;

  // Whether requests may wait in front of the replicas, or leave them for others.
  bool may_delay() const { return gateway.max_in_flight || scaling.is_on() || !failures.empty(); }
};

class FleetLoop final : private CacheView {
 public:
  // `workload` and the sinks outlive it.
  FleetLoop(const FleetSetup& setup, const Workload& workload, std::span<EventSink* const> sinks);

  // Runs until every request has ended. Returns false when `progress` ended the run early.
  bool run(const ProgressFn& progress);

  std::span<const std::unique_ptr<Replica>> replicas() const { return replicas_; }
  std::size_t num_unsent() const { return workload_.requests.size() - arrivals().num_total(); }
  TimeNs now() const { return now_; }
  // The first request that the gateway refused, and why; empty: none.
  const std::string& first_refusal() const { return first_refusal_; }
  const std::string& first_loss() const { return first_loss_; }

 private:
  using Waiting = Gateway::Waiting;

  ArrivalSource& arrivals() {
    return sessions_ ? *sessions_ : static_cast<ArrivalSource&>(*single_);
  }
  const ArrivalSource& arrivals() const {
    return sessions_ ? *sessions_ : static_cast<const ArrivalSource&>(*single_);
  }
  const PromptSource& prompts() const {
    return sessions_ ? static_cast<const PromptSource&>(*sessions_) : workload_;
  }
  void count_cached(const RoutedRequest& request, std::span<std::int64_t> overlaps) override;

  // Whether the router decides ahead of what replicas do.
  bool decides_ahead() const {
    return setup_.router->is_blind && !ends_cause_arrivals_ && !setup_.may_delay();
  }
  // Whether the end of a request lets another one be sent.
  bool ends_matter() const { return ends_cause_arrivals_ || !gateway_.is_empty(); }
  // Replicas take their turns before `until`; where ends matter, only up to the first event.
  // Returns whether one took any.
  bool advance_first(TimeNs until);
  void settle(ReplicaId replica, TimeNs until);
  // All replicas that have something to do before `until` take their turns, on all threads.
  void settle_all(TimeNs until);
  void route_ahead();
  void tell_events();
  void report(TimeNs at);
  void receive(TimeNs now);
  void route(const Waiting& request, TimeNs now);
  // ---- In front of the replicas ----
  // Sends it, or lets it wait.
  void take_in(const Waiting& request, TimeNs now);
  // Sends requests that wait, as many as may be sent.
  void send_waiting(TimeNs now);
  void refuse(std::span<const Gateway::Refused> refused, TimeNs now);
  // A request ends there.
  void end_in_front(const Waiting& request, EndReason reason, TimeNs now);
  void note_end(std::uint32_t number, RequestState state, TimeNs now);
  // No replica will take requests again: those that wait are lost.
  void lose_stranded(TimeNs now);

  // ---- Replicas that come and go ----
  void change_members(TimeNs now);
  void set_state(ReplicaId replica, FleetMembers::State state);
  void fail(const FleetMembers::Change& change, TimeNs now);
  void look(TimeNs now);
  void judge(const ReplicaEvent& event);
  void tell(const FleetEvent& event);
  void describe_prompt(std::uint32_t number, const RequestSpec& spec, RoutedRequest& routed);
  Replica& at(ReplicaId replica) { return *replicas_[static_cast<std::size_t>(replica)]; }

  FleetSetup setup_;
  const Workload& workload_;
  std::optional<SessionArrivals> sessions_;
  std::optional<WorkloadArrivals> single_;
  bool ends_cause_arrivals_;
  PrefixHasher hasher_;
  std::vector<std::unique_ptr<Replica>> replicas_;
  std::unique_ptr<Router> router_;
  Rng lots_;
  NextTimes next_times_;
  std::vector<ReplicaEvent> events_;  // not told yet
  // The work of each thread in settle_all().
  struct Lane {
    std::vector<ReplicaId> due;
    std::vector<TimeNs> next;  // by place in `due`
    std::vector<ReplicaEvent> events;
  };
  std::vector<Lane> lanes_;
  std::optional<WorkerGroup> workers_;  // with more than one lane
  std::vector<EventSink*> sinks_;
  std::vector<EventSink*> followers_;  // those that follow ends
  Gateway gateway_;
  FleetMembers members_;
  std::int64_t num_in_flight_ = 0;  // at replicas that take requests
  std::int64_t num_front_events_ = 0;
  std::string first_refusal_, first_loss_;
  // For ScalingRules::slo_attainment_below: requests by number, and their ends since the last look.
  struct Seen {
    TimeNs arrival = 0;
    TimeNs first_token = 0;
    std::uint16_t class_number = 0;
  };
  std::vector<Seen> seen_;
  std::int64_t num_ended_since_look_ = 0;
  std::int64_t num_good_since_look_ = 0;
  std::uint32_t num_received_ = 0;
  std::size_t num_ended_ = 0;
  TimeNs now_ = 0;
  TimeNs last_report_ = -1;
  // Of the request that is being routed.
  std::vector<ContentRun> runs_;
  HashChain chain_;
  HashChain first_block_;
  std::vector<std::uint64_t> blocks_;
  std::vector<ReplicaReport> reports_;
};

}  // namespace metronome
