// One simulated run: scenario and workload in, events out.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/engine.h"
#include "core/model/model_config.h"
#include "core/request.h"
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

// Of the requests that failed or were refused for one reason: the first of them, and why.
struct FailureMessage {
  EndReason reason = EndReason::None;
  std::string text;  // "request 3: needs 900 prompt + 200 output tokens; max_model_len is 1024"
};

struct SimulationOutcome {
  bool completed = false;                // false: `progress` ended the run early
  std::vector<FailureMessage> messages;  // one a reason
};

// Runs the workload on a virtual clock that starts at 0. Every event goes to every sink, in order.
SimulationOutcome run_simulation(Simulation& simulation, const Workload& workload,
                                 std::span<EventSink* const> sinks,
                                 const ProgressFn& progress = {});

}  // namespace metronome
