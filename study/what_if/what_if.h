// SPDX-License-Identifier: Apache-2.0
// Replays a recorded run in the simulator under other settings. Finds the smallest change that
// keeps every side of a goal, what it costs on each side, and the settings between which one
// chooses: the Pareto front of gaps against first tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/text_block.h"
#include "core/metrics/goals.h"
#include "core/metrics/summary.h"
#include "core/run/run.h"
#include "core/run/time_accuracy.h"
#include "core/scenario/scenario.h"
#include "engines/flags/server_flags.h"
#include "reports/files/result_reader.h"

namespace metronome {

class JsonText;

// Why a change does not count, although its gaps may be shorter.
enum class Loss : std::uint8_t {
  None,
  Service,    // of requests, of throughput, of first tokens, or of the time of an answer
  Goal,       // of a side that the run keeps
  NoSetting,  // it is no setting of the run's engine, or one that it refuses
};

// Whether changes begin with another policy.
inline bool is_other_policy(std::span<const Setting> changes) {
  return !changes.empty() && changes.front().key == "scheduler.policy";
}

// A side of the goal, or of what no advice may spend (`is_guard`).
struct Side {
  Goal goal;
  bool is_guard = false;
  double before = 0;  // the figure of the run

  bool was_kept() const { return goal.is_kept_by(before); }
};

// One replay.
struct Trial {
  std::vector<Setting> changes;  // empty: the run's own settings
  // All that is set in the run's scenario, or, with another policy, in what it resolved to: the
  // limits that the run's server chose, its host and its graphs stay then.
  std::vector<Setting> settings;
  Scenario scenario;
  Summary summary;
  // p99 of the TTFT of the requests that can meet the limit (WhatIf::out_of_reach).
  double reachable_ttft_ms = 0;
  std::int64_t num_prefix_hit_tokens = 0;
  std::vector<double> figures;  // of WhatIf::sides
  double excess = 0;            // of the goal's worst side; at most 1: all are kept
  double loss_excess = 0;       // of the worst side of all
  bool keeps_all = false;       // every side of the goal
  // It ended before its requests, as it lost more than a tenth of the throughput: it has no
  // figures.
  bool is_cut_short = false;
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

// The prompt tokens that the run computed although requests share prefixes, and their part of the
// time to first tokens. Hits of the run are those of its baseline.
struct PrefixMisses {
  std::int64_t hit_tokens = 0;
  // Hits of a cache that forgets nothing. The run evicted the rest.
  std::int64_t possible_tokens = 0;
  // Tokens that such a cache with the smallest blocks finds beyond: cut by the size of a block.
  std::int64_t cut_tokens = 0;
  double evicted_ms = 0;         // of own prefills before first tokens: the evicted tokens' share
  double cut_ms = 0;             // likewise
  double own_prefill_ms = 0;     // all of it
  std::int64_t working_set = 0;  // blocks with which the hits are nearly the possible; 0: unknown
  std::int64_t block_tokens = 0;
};

// Figures over several draws of what a log does not say of its requests.
struct DrawBand {
  struct Range {
    double low = 0, high = 0;  // in milliseconds
  };
  std::int64_t num_draws = 0;
  std::int64_t num_kept = 0;  // of these, that keep the goal
  Range p99_itl, p99_ttft;
};

// The reach of the answer.
struct Sureness {
  std::optional<TimeAccuracy> accuracy;  // of step times; nullopt: they were never compared
  // The advised change, or without one the run, with steps as fast and as slow as in nine of ten
  // measured runs like it.
  std::optional<Trial> fast, slow;
  // Another point of the front that keeps every side with such slow steps, where the change does
  // not: an index into trials.
  std::optional<std::size_t> safe;
  // Of the advised change, or without one of the run; nullopt: nothing was drawn.
  std::optional<DrawBand> draws;
};

struct WhatIf {
  std::vector<Goal> goals;
  std::vector<Side> sides;  // the goals, then the guards
  // Why there is no replay; all other fields are then empty.
  std::string obstacle;
  Distribution recorded_itl;  // of the run, or of the log given with a scenario
  // Empty: the requests are the run's. Else the scenario whose requests are used, as a log has
  // none.
  std::string scenario;
  bool is_rebuilt = false;  // that scenario was made of the log
  // The relative error of step times with prompts: the mean error of held-out steps, or of measured
  // runs like this one. 0: unknown.
  double step_error = 0;
  Sureness sureness = {};
  // "SGLang": whose flags alone are shown. Empty: also those of others, for comparison.
  std::string engine;
  Trial baseline;
  bool is_same_run = false;  // every decision of the baseline equals the recorded run's
  // Requests whose own prompts take longer than the limit for first tokens.
  std::vector<std::size_t> out_of_reach;
  // The differences from the recorded run.
  std::vector<std::string> notes;
  // For each tried setting: the value nearest to the run's that counts and keeps every side, else
  // the nearest to the limits. Those of the front and refinements follow.
  std::vector<Trial> trials;
  // Settings whose replays have the figures of the run are left out.
  // Index into trials: the smallest change that counts and keeps every side, or else the nearest to
  // the limits that breaks none that the run keeps.
  std::optional<std::size_t> chosen;
  // Indices into trials, at most three: points of the front of gaps and first tokens that count.
  // The chosen one is first.
  std::vector<std::size_t> front;
  std::string front_gap;  // the figure of gaps: a key of the table of figures
  // The next value of the chosen setting, which failed, and why; nullopt: none was tried.
  std::optional<std::int64_t> next_failing;
  std::string failing_text;
  // The first replay that kept every side of the goal and does not count; nullopt: there was none.
  std::optional<Trial> ruled_out;
  // The replay nearest to the limits, where another is advised, or none, as it breaks one that the
  // run keeps.
  std::optional<Trial> nearest;
  CacheSize cache;
  std::optional<PrefixMisses> misses;  // nullopt: prompts share nothing, or nothing is cached
  std::vector<Setting> fixed;          // of every replay
  std::int64_t num_replays = 0;        // including the baseline

  bool is_kept() const { return baseline.keeps_all; }  // by the run
};

struct WhatIfOptions {
  SloConfig goals;            // of options, in the place of those of the run's `slo` section
  std::string hardware = {};  // if not empty, it replaces the run's
  // If not empty, the only engine to set: other policies are not tried.
  std::string engine = {};
  int num_threads = 1;
  std::size_t max_replays = 200;
};

// Replays the run's requests on the simulator, with the recorded arrivals and lengths. The first
// replay has the run's settings; each further replay changes settings: first each setting of the
// engine alone (Candidates), its values in powers of two from the run's; if none keeps every side
// of the goal, the best few together with each other one.
//
// A change counts if it
//   - loses no request;
//   - keeps each side of the goal that the run keeps;
//   - where the goal has no such side, or the run breaks it: makes neither the p99 TTFT nor the
//     longest gap and p99 ITL more than twice as long, and lowers neither the throughput by more
//     than a tenth nor the rate of answers during prefill by more than half;
//   - is a setting of the run's engine, with which it starts;
//   - where fewer requests may run at once, and the run keeps no limit of first tokens: makes
//     neither the mean nor the p99 TTFT more than a tenth longer, as else gaps only become waits.
//
// The smallest change has the fewest keys. Among those, sizes of KV caches come first where the run
// lacks blocks, then sizes of a step, then other settings; then the nearest value. Bisection
// between it and the next value towards the run's, which failed, finds the nearest one that still
// works: for tokens, a multiple of 64, and of a page for SGLang's chunk.
//
// Calls `progress` during replays, and `start(name)` before some. Throws ConfigError for settings
// that cannot be simulated.
WhatIf find_smallest_change(const StoredRun& run, const WhatIfOptions& options,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress);

// The sizes between which the limit of the chosen change lies, as far as step times are known:
// multiples of 64 tokens. nullopt: they are not fitted, or the change is no size.
struct SizeRange {
  std::int64_t least = 0, most = 0;
};
std::optional<SizeRange> evidence_range(const WhatIf& what_if);

// The result of the search in sentences; and the price of the chosen change on every side, which
// requires `chosen`.
std::string conclusion_text(const WhatIf& what_if);
std::string price_text(const WhatIf& what_if);

// The finding, its cost, the flags of engines that change, the front, and all trials.
std::vector<TextBlock> what_if_blocks(const WhatIf& what_if);
// As text.
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
// The changed flags of the trial's own engine in one line, "" if it has none: "--max-num-seqs 64".
std::string own_flags_text(const Trial& trial, const WhatIf& what_if);

}  // namespace metronome
