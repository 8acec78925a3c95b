// One simulated run: scenario and workload in, events out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/model.h"
#include "core/scenario.h"
#include "core/workload.h"
#include "sim/cost_model.h"
#include "sim/hardware.h"

namespace metronome {

// A scenario with everything looked up: what will run, before it runs.
struct Simulation {
  ModelConfig model;
  HardwareSpec hardware;
  EngineSetup setup;
  std::unique_ptr<CostModel> cost_model;
  std::string warning;  // what is allowed but could not run on this hardware; empty: nothing
};

// Resolves names, cost model and KV capacity. Throws ConfigError.
Simulation prepare_simulation(const Scenario& scenario);

struct SimulationOutcome {
  bool completed = false;  // false: `progress` ended the run early
  // One per reason for which requests failed or were refused: the first such request and why.
  std::vector<std::string> messages;
};

// Runs the workload on a virtual clock that starts at 0. Every event goes to every sink, in order.
SimulationOutcome run_simulation(Simulation& simulation, const Workload& workload,
                                 std::span<EventSink* const> sinks,
                                 const ProgressFn& progress = {});

}  // namespace metronome
