// Replays a recorded run in the simulator under other settings. Finds the smallest change that
// removes its stalls, and the cost of that change.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/metrics/summary.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "reports/files/result_reader.h"
#include "study/run/engine_flags.h"

namespace metronome {

class JsonText;

// One replay.
struct Trial {
  std::vector<std::string> changes;  // in the form of `--set`; empty: the run's own settings
  Scenario scenario;
  Summary summary;
  bool keeps_p99 = false;  // p99 ITL within the target
  bool keeps_all = false;  // also every other gap of a completed request
};

struct WhatIf {
  double target_ms = 0;
  // Why there is no replay; all other fields are then empty.
  std::string obstacle;
  Distribution recorded_itl;  // of the run, or of the log given with a scenario
  // Empty: the requests are the run's. Else the scenario whose requests are used, as a log has
  // none.
  std::string scenario;
  // "SGLang": whose settings alone were tried, and whose flags are shown. Empty: of both engines,
  // and other policies.
  std::string engine;
  Trial baseline;
  bool is_same_run = false;  // every decision of the baseline equals the recorded run's
  // The differences from the recorded run.
  std::vector<std::string> notes;
  // For each tried setting: the value nearest to the run's that keeps every gap within the target,
  // else the nearest that keeps the p99, else the one with the shortest stall. The last trial is
  // the refinement of one of them, if a value between powers of two is nearer.
  std::vector<Trial> trials;
  // Index into trials: the smallest change, or else the best one, among those an engine can be set
  // to.
  std::optional<std::size_t> chosen;
  // The next value of the chosen setting, which failed; nullopt: none was tried.
  std::optional<std::int64_t> next_failing;
  std::int64_t num_replays = 0;  // including the baseline
};

// Replays the run's requests on the simulator, with the recorded arrivals and lengths. The first
// replay has the run's settings; each further replay changes settings. The order is:
//   - If the run preempts requests: more KV blocks, or (sglang) larger reserves for outputs.
//   - Smaller token budgets or chunks of the same policy, in powers of two down from the run's
//     value.
//   - If none keeps the target: other settings of the policy.
//   - If none does: other policies.
//   - If none does and the run preempts: each of these together with more KV blocks.
//
// The smallest change is in the first group that has one; within it, the fewest keys, then the
// nearest value. Bisection between it and the next larger value, which failed, finds the nearest
// value that still works: for tokens, a multiple of 64 and of the KV block. So the number of
// replays grows with the logarithm of the values. A change does not count if it loses requests or
// more than a tenth of the output throughput.
//
// `hardware`, if not empty, replaces the run's hardware. `engine`, if not empty, is the only engine
// to set: other policies are not tried. Calls `progress` during each replay, and `start(name)`
// before it. Throws ConfigError for settings that cannot be simulated.
WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::string& engine,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress);

// As text: what was found, its cost, and the flags of vLLM and SGLang that change.
std::string what_if_text(const WhatIf& what_if, std::size_t columns);
// Appends the result as one JSON value.
void append_what_if(const WhatIf& what_if, JsonText& json);

// The changes of each engine's flags. If the number of KV blocks stays, so does the cache size,
// although vLLM counts its null block and other policies have none.
std::vector<FlagChanges> changed_flags(const Scenario& before, const Scenario& after);

}  // namespace metronome
