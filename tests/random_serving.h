// SPDX-License-Identifier: Apache-2.0
// Random serving on real arithmetic, for every backend that computes: models x policies x caches x
// limits x sampling x failures x aborts. The batch must not change what a request gets: its logits,
// KV and tokens are those it has when it is served alone in a slotted cache, to the bit.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/engine/policies/registry.h"
#include "tests/lab.h"

namespace metronome::testing {

struct RandomServing {
  Family family = Family::Llama;
  const PolicyInfo* policy = nullptr;
  LabSettings settings;
  std::vector<LabPrompt> prompts;
  std::set<int> failing_passes;                // counted from 1
  std::map<std::int64_t, RequestId> abort_at;  // by number of steps
};

// Differences between backends.
struct ServingLimits {
  // LabRun::kv can be compared where window layers have block tables of their own.
  bool has_window_kv = false;
  // LabRun::kv has every request that completed.
  bool keeps_all_kv = true;
};

RandomServing draw_serving(Rng& rng, Family family, std::int64_t vocab_size);
std::string describe(const RandomServing& random);

// How often the cases reached what: the test notices when they stop reaching it.
using Coverage = std::map<std::string, std::int64_t>;

// Serves the prompts with the settings, and returns what the run left behind.
using ServeFn = std::function<LabRun(const LabSettings&, const std::vector<LabPrompt>&)>;

// Runs one case by `together`, and each of its requests by `alone`; compares them.
void check_serving(const RandomServing& random, const ServingLimits& limits,
                   const ServeFn& together, const ServeFn& alone, Coverage& coverage);

// Checks the cases of seeds [begin, end), or the one of METRONOME_PROPERTY_SEED where that is set.
// Each of `least` must be reached so often in 100 cases.
void check_random_servings(std::uint64_t begin, std::uint64_t end, const Coverage& least,
                           const std::function<void(std::uint64_t seed, Coverage&)>& check);

// The tokens of a step, under the key that each engine has for it.
void set_own_budget(SchedulerConfig& config, std::int32_t budget, std::int32_t chunk_unit);

}  // namespace metronome::testing
