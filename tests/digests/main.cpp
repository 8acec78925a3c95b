// SPDX-License-Identifier: Apache-2.0
// Simulates scenarios and prints "SCENARIO VARIANT DIGEST" of each run, with nothing but core,
// engines and sim. Without arguments: all scenarios that travel inside the program.
#include <cstdio>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/metrics/digest.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/scenario.h"
#include "engines/engines.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"

using namespace metronome;

namespace {

std::string digest_of(const Scenario& scenario) {
  Simulation simulation = prepare_simulation(scenario);
  const Workload workload = make_workload(scenario);
  check_workload(scenario, simulation, workload);
  VirtualClock clock;
  EventDigest digest;
  EventSink* sinks[] = {&digest};
  simulation.run(workload, clock, sinks);
  return digest.hex();
}

void print_digests(const std::string& name) {
  try {
    for (const Scenario& variant : load_scenario(name, {}, {}).variants) {
      std::printf("%s %s %s\n", name.c_str(), variant.name.c_str(), digest_of(variant).c_str());
      std::fflush(stdout);
    }
  } catch (const ConfigError& error) {  // this program has no reader of models/
    std::printf("%s: %s\n", name.c_str(), error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  register_engines();
  std::vector<std::string> names(argv + 1, argv + argc);
  if (names.empty()) {
    for (const BuiltInScenario& scenario : built_in_scenarios()) names.emplace_back(scenario.name);
  }
  for (const std::string& name : names) print_digests(name);
}
