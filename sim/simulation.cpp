#include "sim/simulation.h"

#include "core/engine_setup.h"
#include "core/error.h"
#include "core/model/model_catalogue.h"
#include "sim/hardware_catalogue.h"
#include "sim/roofline.h"
#include "sim/sim_executor.h"
#include "sim/virtual_clock.h"

namespace metronome {

namespace {

// A block count given by hand may exceed what the device has memory for beside the weights: a
// what-if, but not a silent one.
std::string memory_warning(const Scenario& scenario, const Simulation& simulation) {
  if (!scenario.kv_cache.num_blocks) return {};
  const KvCacheLayout& cache = simulation.setup.kv_cache;
  const std::int64_t capacity = simulation.cost_model->kv_capacity_blocks(cache.block_size);
  if (cache.num_blocks <= capacity) return {};
  return "kv_cache.num_blocks: " + std::to_string(cache.num_blocks) + " are more than the " +
         std::to_string(capacity) + " that " + simulation.hardware.name + " has memory for";
}

}  // namespace

Simulation prepare_simulation(const Scenario& scenario) try {
  Simulation simulation;
  simulation.model = find_model(scenario.model, scenario.location_of("model"));
  simulation.hardware = find_hardware(scenario.hardware, scenario.location_of("hardware"));
  simulation.cost_model = std::make_unique<RooflineCostModel>(simulation.model, simulation.hardware,
                                                              scenario.cost_model);
  simulation.setup = make_engine_setup(scenario, simulation.model, [&](std::int64_t block_tokens) {
    return simulation.cost_model->kv_capacity_blocks(block_tokens);
  });
  simulation.warning = memory_warning(scenario, simulation);
  return simulation;
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

SimulationOutcome run_simulation(Simulation& simulation, const Workload& workload,
                                 std::span<EventSink* const> sinks, const ProgressFn& progress) {
  VirtualClock clock;
  SimExecutor executor(*simulation.cost_model);
  const PrefixHasher hasher(&workload);
  Engine engine(simulation.setup, executor, clock, sinks, &hasher);
  ArrivalSource arrivals(workload);
  SimulationOutcome outcome;
  outcome.completed = engine.run(arrivals, progress);
  for (const EndReason reason :
       {EndReason::NeverFits, EndReason::QueueFull, EndReason::StepFailed}) {
    const std::string& message = engine.first_message(reason);
    if (!message.empty()) outcome.messages.push_back({reason, message});
  }
  return outcome;
}

}  // namespace metronome
