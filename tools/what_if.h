// A recorded run once more, in the simulator, under other settings: the smallest change that
// removes its stalls, and what that costs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/run.h"
#include "core/scenario.h"
#include "core/summary.h"
#include "reports/result_reader.h"
#include "tools/engine_flags.h"

namespace metronome {

class JsonText;

// One replay.
struct Trial {
  std::vector<std::string> changes;  // as `--set` takes them; none: the run's own settings
  Scenario scenario;
  Summary summary;
  bool keeps_p99 = false;  // p99 ITL within the target
  bool keeps_all = false;  // and so is every other gap of a completed request
};

struct WhatIf {
  double target_ms = 0;
  // Why there is no replay; the rest is empty then.
  std::string obstacle;
  Trial baseline;
  bool is_same_run = false;  // the baseline repeats the recorded run, decision for decision
  // What is not as it was recorded.
  std::vector<std::string> notes;
  // For each setting that was tried, the value nearest to the run's that keeps every gap within
  // the target; else the nearest that keeps the p99; else the one with the shortest stall.
  std::vector<Trial> trials;
  // In trials: the smallest change, or the best there is, of those that an engine can be set to.
  std::optional<std::size_t> chosen;
};

// Replays the run's requests, with the arrivals and lengths of the record, on the simulator: first
// with the run's settings, then with one setting changed after the other. Tried first are smaller
// token budgets or chunks of the same policy, in powers of two, from the run's own value down; if
// none keeps the target, its other settings; if none does, other policies. The smallest change is
// the first of these groups that has one, then the fewest keys, then the nearest value. A change
// that loses requests or more than a tenth of the output throughput does not count.
// `hardware`, if not empty, is simulated in place of the run's. Calls `progress` during each
// replay, and `start(name)` before it. Throws ConfigError where settings cannot be simulated.
WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress);

// For people: what was found, its cost, and the flags of vLLM and SGLang that change.
std::string what_if_text(const WhatIf& what_if, const StoredRun& run, std::size_t columns);
// A value.
void append_what_if(const WhatIf& what_if, const StoredRun& run, JsonText& json);

// Flags of the changed settings that the engine does not have with the run's own, and its notes.
std::vector<EngineFlags> changed_flags(const Scenario& before, const Scenario& after);

}  // namespace metronome
