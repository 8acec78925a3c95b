// SPDX-License-Identifier: Apache-2.0
// Random scenarios of the engine: policies x caches x limits x failures x aborts x stop tokens.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/engine.h"
#include "core/workload/workload.h"

namespace metronome::testing {

struct RandomCase {
  EngineSetup setup;
  Workload workload;            // what the prompts are made of
  std::vector<int> gap_before;  // engine steps taken before each submission
  double abort_chance = 0;
  double failure_chance = 0;
  double stop_chance = 0;  // of each token
};

// The same seed gives the same case. Requests have no arrivals.
RandomCase draw_case(std::uint64_t seed);
// Policy vllm with a model that has recurrent states, cached or not.
RandomCase draw_state_case(std::uint64_t seed);
// The case of the seed with arrivals by time, by step or in a closed loop.
RandomCase draw_run(std::uint64_t seed);

}  // namespace metronome::testing
