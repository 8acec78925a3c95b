// SPDX-License-Identifier: Apache-2.0
// Replays a recorded run in the simulator under other settings. Finds the smallest change that
// removes its stalls, and the cost of that change.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/metrics/summary.h"
#include "core/run/run.h"
#include "core/scenario/scenario.h"
#include "engines/flags/server_flags.h"
#include "reports/files/result_reader.h"

namespace metronome {

class JsonText;

// Why a change does not count, although its gaps may be shorter.
enum class Loss : std::uint8_t {
  None,
  Service,      // of requests, of throughput, or of the time of an answer
  FirstTokens,  // they come too late
  NoSetting,    // it is no setting of the run's engine
};

// Whether changes begin with another policy.
inline bool is_other_policy(std::span<const Setting> changes) {
  return !changes.empty() && changes.front().key == "scheduler.policy";
}

// One replay.
struct Trial {
  std::vector<Setting> changes;  // empty: the run's own settings
  // All that is set in the run's scenario, or, with another policy, in what it resolved to: the
  // limits that the run's server chose, its host and its graphs stay then.
  std::vector<Setting> settings;
  Scenario scenario;
  Summary summary;
  bool keeps_p99 = false;  // p99 ITL within the target
  bool keeps_all = false;  // also every other gap of a completed request
  Loss loss = Loss::None;
  std::string loss_text;  // with its figures; empty: there is none

  bool counts() const { return loss == Loss::None; }
};

// The size of the KV cache in replays.
struct CacheSize {
  bool is_set = false;               // by the run's scenario
  std::int64_t num_blocks = 0;       // of the run
  std::int64_t most_blocks = 0;      // that the device has room for; 0: unknown, or not asked for
  double most_share = 0;             // of its memory, for most_blocks
  std::int64_t default_blocks = 0;   // without the scenario's number; 0: unknown, or none is set
  std::optional<double> share = {};  // of the chosen change, if the scenario sets no blocks
};

struct WhatIf {
  double target_ms = 0;
  // Why there is no replay; all other fields are then empty.
  std::string obstacle;
  Distribution recorded_itl;  // of the run, or of the log given with a scenario
  // Empty: the requests are the run's. Else the scenario whose requests are used, as a log has
  // none.
  std::string scenario;
  // "SGLang": whose settings alone were tried, and whose flags are shown. Empty: also other
  // policies and engines, which count if the run's policy is that of no engine.
  std::string engine;
  // p99 of the first tokens that a change may have: slo.ttft_ms, or 1.5 times that of the run.
  double ttft_limit_ms = 0;
  bool has_ttft_slo = false;
  Trial baseline;
  bool is_same_run = false;  // every decision of the baseline equals the recorded run's
  // The differences from the recorded run.
  std::vector<std::string> notes;
  // For each tried setting: the value nearest to the run's that counts and keeps every gap within
  // the target, else the nearest that keeps the p99, else the nearest to the limits. The last trial
  // is the refinement of one of them, if a value between powers of two is nearer.
  std::vector<Trial> trials;
  // Settings whose replays have the figures of the run are left out.
  // Index into trials: the smallest change that counts, or else the nearest to the limits that
  // breaks none that the run keeps.
  std::optional<std::size_t> chosen;
  // The next value of the chosen setting, which failed, and why; nullopt: none was tried.
  std::optional<std::int64_t> next_failing;
  std::string failing_text;
  // The first replay that kept every gap and does not count; nullopt: there was none.
  std::optional<Trial> ruled_out;
  // With a limit for first tokens: the replay nearest to both limits, where another is advised, or
  // none, as it breaks one that the run keeps.
  std::optional<Trial> nearest;
  CacheSize cache;
  std::vector<Setting> fixed;    // of every replay
  std::int64_t num_replays = 0;  // including the baseline

  bool keeps_ttft(const Trial& trial) const { return !(trial.summary.ttft.p99_ms > ttft_limit_ms); }
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
// value that still works: for tokens, a multiple of 64, and of a page for SGLang's chunk. So the
// number of replays grows with the logarithm of the values.
//
// A change does not count if it loses requests or more than a tenth of the output throughput, or if
// the p99 of the first tokens is above slo.ttft_ms; without that limit, above 1.5 times the run's.
// A policy that is not that of the run's engine does not count either.
//
// `hardware`, if not empty, replaces the run's hardware. `engine`, if not empty, is the only engine
// to set: other policies are not tried. Calls `progress` during each replay, and `start(name)`
// before it. Throws ConfigError for settings that cannot be simulated.
WhatIf find_smallest_change(const StoredRun& run, double target_ms, const std::string& hardware,
                            const std::string& engine,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress);

// As text: what was found, its cost, and the flags of engines that change.
std::string what_if_text(const WhatIf& what_if, std::size_t columns);
// Appends the result as one JSON value.
void append_what_if(const WhatIf& what_if, JsonText& json);

// The changes of each engine's flags. If the number of KV blocks stays, so does the cache size,
// although vLLM counts its null block and other policies have none.
std::vector<FlagChanges> changed_flags(const Scenario& before, const Scenario& after);
// The changed flags of a trial, without flags that the run's scenario leaves to its server, and
// with the source of its KV blocks.
std::vector<FlagChanges> flags_of(const Trial& trial, const WhatIf& what_if);
// The changed flags of the chosen trial. Requires `chosen`.
inline std::vector<FlagChanges> chosen_flags(const WhatIf& what_if) {
  return flags_of(what_if.trials[*what_if.chosen], what_if);
}

}  // namespace metronome
