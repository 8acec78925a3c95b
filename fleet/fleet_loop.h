// SPDX-License-Identifier: Apache-2.0
// Several engines on one time, behind a router. They advance independently to the next instant at
// which something couples them: a request comes, or the router gets reports. What happened
// meanwhile is told in order of time, and of the replicas' numbers where times are equal.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "core/base/rng.h"
#include "core/engine/arrival_source.h"
#include "core/engine/drive.h"
#include "core/engine/kv/prefix_hash.h"
#include "core/workload/session_arrivals.h"
#include "core/workload/workload_arrivals.h"
#include "fleet/next_times.h"
#include "fleet/replica.h"
#include "fleet/router_registry.h"

namespace metronome {

struct FleetSetup {
  std::vector<Simulation*> simulations;  // by replica; those of equal replicas may be the same
  const RouterInfo* router = nullptr;
  PolicySettings router_settings;
  std::uint64_t router_seed = 0;
  bool shuffles_replicas = false;
  TimeNs report_interval = 0;  // 0: the router asks for no reports
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

 private:
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

  // Replicas take their turns before `until`; where ends cause arrivals, only up to the first
  // event. Returns whether one took any.
  bool advance_first(TimeNs until);
  void settle(ReplicaId replica, TimeNs until);
  void tell_events();
  void report(TimeNs at);
  void receive(TimeNs now);
  void route(std::uint32_t number, const RequestSpec& spec, TimeNs now);
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
  std::uint32_t num_received_ = 0;
  std::size_t num_ended_ = 0;
  TimeNs now_ = 0;
  TimeNs last_report_ = -1;
  // Of the request that is being routed.
  std::vector<ContentRun> runs_;
  HashChain chain_;
  std::vector<std::uint64_t> blocks_;
  std::vector<ReplicaReport> reports_;
};

}  // namespace metronome
