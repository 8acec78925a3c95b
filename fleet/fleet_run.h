// SPDX-License-Identifier: Apache-2.0
// A scenario with a fleet, simulated.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/run/run.h"
#include "fleet/fleet_loop.h"
#include "sim/simulation.h"

namespace metronome {

struct Scenario;

class FleetRun final : public PreparedRun {
 public:
  // Requires a fleet in the scenario. Throws ConfigError.
  FleetRun(const Scenario& scenario, std::int32_t num_threads);

  void check_workload(const Workload& workload) const override;
  void draw_noise(std::int32_t n) override;
  void scale_steps(double factor) override;
  std::optional<TimeAccuracy> accuracy(double num_in_system) const override;
  // Each sink gets the events of its replicas in their parts (EventSink::of_replica).
  RunOutcome run(const Workload& workload, Clock& clock, std::span<EventSink* const> sinks,
                 const ProgressFn& progress) override;
  // Nobody serves a fleet.
  void serve(RequestFeed& feed, Clock& clock, std::span<EventSink* const> sinks) override;

 private:
  std::vector<std::unique_ptr<Simulation>> simulations_;
  FleetSetup fleet_;
  SourceLocation classes_at_;  // of the gateway
};

// The simulator, for scenarios with or without a fleet.
class FleetBackend final : public Backend {
 public:
  // Fleets run on so many threads, with the same results for any number.
  explicit FleetBackend(std::int32_t num_threads = 1) : num_threads_(num_threads) {}
  std::string_view name() const override { return "sim"; }
  bool is_measured() const override { return false; }
  std::unique_ptr<PreparedRun> prepare(const Scenario& scenario) override;

 private:
  std::int32_t num_threads_;
};

}  // namespace metronome
