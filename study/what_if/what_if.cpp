// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/what_if.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/first_tokens.h"
#include "core/metrics/run_record.h"
#include "study/what_if/prefix_misses.h"
#include "study/what_if/replays.h"
#include "study/what_if/search.h"
#include "study/what_if/sides.h"
#include "study/what_if/sureness.h"

namespace metronome {
namespace {

// ---- the recorded requests ----

bool has_requests_of(const Workload& workload, const RunRecord& record) {
  if (workload.requests.size() != record.requests.size()) return false;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestSpec& spec = workload.requests[i];
    const RequestRecord& request = record.requests[i];
    const bool has_time = workload.mode == ArrivalMode::Timed;
    if (spec.num_prompt_tokens != request.num_prompt_tokens ||
        spec.max_output_tokens != request.max_output_tokens || spec.priority != request.priority ||
        (has_time && spec.arrival != request.arrival)) {
      return false;
    }
  }
  return true;
}

std::optional<Workload> drawn_again(const Scenario& scenario) {
  try {
    return make_workload(scenario);
  } catch (const ConfigError&) {  // the trace does not exist here
    return std::nullopt;
  }
}

// The scenario's workload if the record has the same requests: it also knows shared prefixes and
// closed-loop clients. Otherwise the requests of the record.
Workload recorded_workload(const Scenario& scenario, const RunRecord& record,
                           std::vector<std::string>& notes) {
  std::optional<Workload> drawn = drawn_again(scenario);
  Workload workload;
  if (drawn && has_requests_of(*drawn, record)) {
    workload = std::move(*drawn);
  } else {
    bool has_hits = false;
    for (const RequestRecord& request : record.requests) {
      workload.requests.push_back({request.arrival, std::max(1, request.num_prompt_tokens),
                                   std::max(1, request.max_output_tokens), request.priority});
      workload.requests.back().class_number = request.class_number;
      has_hits = has_hits || request.num_prefix_hit_tokens > 0;
    }
    std::stable_sort(workload.requests.begin(), workload.requests.end(),
                     [](const auto& a, const auto& b) { return a.arrival < b.arrival; });
    notes.push_back(
        drawn ? "Arrivals and lengths come from the record; the scenario now gives different ones."
              : "Arrivals and lengths come from the record; the trace cannot be read: " +
                    printable(scenario.workload.trace.file) + ".");
    if (scenario.workload.images.is_on()) {
      notes.push_back("Prompts have no images here, unlike in the run.");
    }
    if (has_hits) notes.push_back("Prompts share no prefixes here, unlike in the run.");
    return workload;
  }
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (request.reason != EndReason::Stop) continue;
    workload.requests[i].max_output_tokens = request.num_output_tokens;
  }
  return workload;
}

// ---- memory ----

// The share of memory that gives the chosen blocks, in hundredths; nullopt: none is known to.
std::optional<double> share_of(const WhatIf& what_if, const Replays& replays) {
  if (!what_if.chosen || what_if.cache.is_set) return std::nullopt;
  const Scenario& chosen = what_if.trials[*what_if.chosen].scenario;
  if (!chosen.kv_cache.num_blocks || what_if.cache.most_blocks == 0) return std::nullopt;
  const double now = what_if.baseline.scenario.cost_model.gpu_memory_utilization;
  for (auto percent = std::llround(100 * now);
       0.01 * static_cast<double>(percent) <= what_if.cache.most_share + 1e-9; ++percent) {
    const double share = 0.01 * static_cast<double>(percent);
    if (share > now && replays.blocks_of_share(share) >= *chosen.kv_cache.num_blocks) return share;
  }
  return std::nullopt;
}

// Whether the nearest replay, which may not be advised, is nearer than what is.
bool is_news(const Trial& nearest, const WhatIf& what_if) {
  if (!what_if.chosen) return true;
  const Trial& chosen = what_if.trials[*what_if.chosen];
  return !(chosen.keeps_all && chosen.counts()) && nearest.excess < chosen.excess;
}

// Requests whose own chunks alone take longer than the limit for first tokens.
std::vector<std::size_t> out_of_reach(const FirstTokens& tokens, const SloConfig& slo,
                                      const RunRecord& record) {
  std::vector<std::size_t> requests;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const std::optional<double>& limit = slo.of_class(record.requests[i].class_number).ttft_ms;
    if (!limit || !tokens.has_first_token(i)) continue;
    if (to_ms(tokens.parts()[i][FirstTokenPart::OwnPrefill]) > *limit) requests.push_back(i);
  }
  // With all of them out of reach, the limit is that of all.
  if (requests.size() == record.requests.size()) requests.clear();
  return requests;
}

// Whether requests lost their KV blocks, or waited for some for a good part of their TTFT.
bool lacks_blocks(const Trial& baseline, const FirstTokens& tokens) {
  constexpr double kMuch = 0.1;
  FirstTokenParts sum;
  tokens.beyond(-1, sum);
  return baseline.summary.num_preemptions > 0 || static_cast<double>(sum[FirstTokenPart::Blocks]) >
                                                     kMuch * static_cast<double>(sum.total_ns());
}

}  // namespace

std::optional<SizeRange> evidence_range(const WhatIf& what_if) {
  constexpr double kGrain = 64;
  if (!what_if.chosen || !what_if.next_failing || what_if.step_error <= 0) return std::nullopt;
  const std::vector<Setting>& changes = what_if.trials[*what_if.chosen].changes;
  if (changes.size() != 1 || !changes[0].value.is_number_integer()) return std::nullopt;
  const auto value = changes[0].value.get<std::int64_t>();
  const bool is_size = value >= static_cast<std::int64_t>(kGrain) &&
                       changes[0].key.starts_with("scheduler.") && value < *what_if.next_failing;
  if (!is_size) return std::nullopt;
  const double least = static_cast<double>(value) * (1 - what_if.step_error);
  const double most = static_cast<double>(*what_if.next_failing) * (1 + what_if.step_error);
  return SizeRange{static_cast<std::int64_t>(std::floor(least / kGrain) * kGrain),
                   static_cast<std::int64_t>(std::ceil(most / kGrain) * kGrain)};
}

WhatIf find_smallest_change(const StoredRun& run, const WhatIfOptions& options,
                            const std::function<void(const std::string&)>& start,
                            const ProgressFn& progress) {
  WhatIf what_if;
  const SloConfig slo = with_options(run.result.info.slo, options.goals);
  what_if.goals = goals_of(slo);
  what_if.engine = options.engine;
  what_if.recorded_itl = run.result.summary.itl;
  if (run.result.info.config.is_null()) {
    what_if.obstacle = "result.json has no config, so the settings to simulate are unknown";
    return what_if;
  }
  Replays replays(run, options.hardware);
  const Scenario scenario = replays.scenario_with({});
  if (!scenario.names_step_times()) {
    what_if.obstacle =
        "the run names no hardware to simulate; give one with --hardware (see "
        "`metronome list hardware`)";
    return what_if;
  }
  what_if.cache.is_set = scenario.kv_cache.num_blocks.has_value();
  what_if.cache.num_blocks = run.result.info.num_blocks;
  replays.keep_cache_size(scenario);
  replays.keep_host(scenario);
  what_if.fixed = replays.fixed();
  replays.take_workload(recorded_workload(scenario, run.record, what_if.notes));
  ReplayExtras extras;
  start("as recorded");
  what_if.baseline = replays.replay({}, progress, &extras);
  what_if.is_same_run = extras.digest == run.result.info.digest;
  const FirstTokens tokens(extras.record,
                           {what_if.baseline.scenario.engine.max_num_seqs, extras.num_blocks,
                            what_if.baseline.scenario.kv_cache.block_size});
  what_if.out_of_reach = out_of_reach(tokens, slo, extras.record);
  if (!what_if.out_of_reach.empty()) {
    replays.leave_out(what_if.out_of_reach);
    what_if.baseline = replays.replay({});
  }
  what_if.sides = sides_of(what_if.goals, what_if);
  judge(what_if.baseline, what_if);
  const bool has_guard = std::any_of(
      what_if.sides.begin(), what_if.sides.end(),
      [](const Side& side) { return side.is_guard && side.goal.side == GoalSide::Throughput; });
  constexpr double kLongest = 1.15;  // of the run's duration: more than a tenth is lost then
  if (has_guard) {
    replays.end_behind(
        static_cast<TimeNs>(kLongest * static_cast<double>(what_if.baseline.summary.duration_ns)));
  }
  what_if.misses = find_prefix_misses(what_if, replays, extras.record, tokens);
  const bool is_thrashing = what_if.misses && what_if.misses->working_set > 0;
  if (what_if.goals.empty() || !what_if.is_kept()) {
    Search(replays, options, start, progress, what_if)
        .run(is_thrashing || lacks_blocks(what_if.baseline, tokens));
  }
  if (what_if.nearest && !is_news(*what_if.nearest, what_if)) what_if.nearest.reset();
  what_if.cache.share = share_of(what_if, replays);
  if (what_if.cache.is_set) what_if.cache.default_blocks = replays.blocks_without_size();
  what_if.sureness = sureness_of(what_if, replays);
  if (what_if.sureness.accuracy) what_if.step_error = what_if.sureness.accuracy->mean_tpot_error;
  what_if.num_replays = replays.num_replays();
  return what_if;
}

}  // namespace metronome
