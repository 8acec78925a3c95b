// A recorded run once more, in the simulator, under other settings: the smallest change that
// removes its stalls, and what that costs.
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
  Distribution recorded_itl;  // of the run, or of the log that stands beside a scenario
  // Empty: the requests are the run's. Else those of this scenario, because a log has none.
  std::string scenario;
  Trial baseline;
  bool is_same_run = false;  // the baseline repeats the recorded run, decision for decision
  // What is not as it was recorded.
  std::vector<std::string> notes;
  // For each setting that was tried, the value nearest to the run's that keeps every gap within
  // the target; else the nearest that keeps the p99; else the one with the shortest stall. Last the
  // refinement of one of them, where there is a nearer value than the power of two.
  std::vector<Trial> trials;
  // In trials: the smallest change, or the best there is, of those that an engine can be set to.
  std::optional<std::size_t> chosen;
  // The value of the chosen setting next to the chosen one, which failed; no value: none was tried.
  std::optional<std::int64_t> next_failing;
  std::int64_t num_replays = 0;  // the baseline is one
};

// Replays the run's requests, with the arrivals and lengths of the record, on the simulator: first
// with the run's settings, then with one setting changed after the other. Tried first are smaller
// token budgets or chunks of the same policy, in powers of two, from the run's own value down; if
// none keeps the target, its other settings; if none does, other policies. Where the run preempts
// requests, more KV blocks are tried before all of these and, if none keeps the target, together
// with each. The smallest change is the first of these groups that has one, then the fewest keys,
// then the nearest value. Between it
// and the value above, which failed, bisection finds the nearest that still works: of tokens a
// multiple of 64 and of the KV block. So the number of replays grows with the logarithm of the
// values. A change that loses requests or more than a tenth of the output throughput does not
// count. `hardware`, if not empty, is simulated in place of the run's. Calls `progress` during each
// replay, and `start(name)` before it. Throws ConfigError where settings cannot be simulated.
WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress);

// For people: what was found, its cost, and the flags of vLLM and SGLang that change.
std::string what_if_text(const WhatIf& what_if, std::size_t columns);
// A value.
void append_what_if(const WhatIf& what_if, JsonText& json);

// What to do to the flags of each engine. The KV cache is as large as before where its blocks
// are, although vLLM counts its null block and other policies have none.
std::vector<FlagChanges> changed_flags(const Scenario& before, const Scenario& after);

}  // namespace metronome
