// SPDX-License-Identifier: Apache-2.0
// Two simulated servers on one time, outside of the tree: requests go to them in turn, or, with a
// second argument, all to the first. Prints for each the requests, the steps and the mean TTFT.
// This program has no reader of models/, so it refuses scenarios that need one.
#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "core/metrics/run_record.h"
#include "core/metrics/summary.h"
#include "core/scenario/scenario.h"
#include "engines/engines.h"
#include "sim/sim_executor.h"
#include "sim/simulation.h"

using namespace metronome;

struct Server {
  explicit Server(const Scenario& scenario) : simulation(prepare_simulation(scenario)) {}

  Simulation simulation;
  SimExecutor device{*simulation.cost_model};
  RunRecorder recorder;
  EventSink* sinks[1] = {&recorder};
  Engine engine{simulation.setup, device, sinks};
};

void serve(const Scenario& scenario, bool is_shared) {
  Server servers[] = {Server(scenario), Server(scenario)};
  std::size_t next = 0;
  for (const RequestSpec& request : make_workload(scenario).requests) {
    for (Server& server : servers) server.engine.advance(request.arrival);
    servers[is_shared ? next++ % 2 : 0].engine.submit(request);
  }
  for (TimeNs now = 0; now != kNever;) {
    for (Server& server : servers) server.engine.advance(now + 1);
    now = std::min(servers[0].engine.next_time(), servers[1].engine.next_time());
  }
  for (Server& server : servers) {
    const Summary summary = summarize(server.recorder.finish(), {});
    std::printf("%lld %lld %.6f\n", static_cast<long long>(summary.completed),
                static_cast<long long>(summary.num_steps), summary.ttft.mean_ms);
  }
}

int main(int argc, char** argv) {
  register_engines();
  try {
    serve(load_scenario(argv[1], {}, {}).variants.at(0), argc <= 2);
  } catch (const ConfigError& error) {
    std::printf("%s\n", error.what());
    return 2;
  }
}
