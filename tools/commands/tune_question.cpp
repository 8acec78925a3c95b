// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_question.h"

#include <algorithm>
#include <fmt/core.h>
#include <set>
#include <utility>

#include "core/base/json.h"
#include "core/base/names.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/fleet_groups.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "tools/commands/command_options.h"
#include "tools/commands/fleet_options.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/run_choice.h"

namespace metronome {
namespace {

constexpr const char* kTuneExamples =
    "examples:\n"
    "  metronome tune scenarios/quickstart.yaml\n"
    "  metronome tune scenarios/quickstart.yaml --variant budget-1024 --slo "
    "llama3.1-8b-interactive \\\n"
    "      --over variants.budget-1024.scheduler.max_num_batched_tokens=256:8192:x2\n"
    "  metronome tune scenarios/quickstart.yaml --load 8 --minimise p99_itl\n"
    "  metronome tune scenarios/slo.yaml --variant slo --variant unchunked --jobs 8\n"
    "\n"
    "The command finds the highest load within the SLO for each setting. It drops settings that\n"
    "meet the SLO for fewer of the same requests than the best, and measures the best on all\n"
    "requests. A load scales the times of the scenario's arrivals. With other requests of the\n"
    "same kind, the capacity lies beyond each end of its band with a probability of about 5 %.\n"
    "If the band of the best is wide, trials grow to some 50,000 requests, unless a trace limits\n"
    "them. The share within the SLO and the percentiles leave out the first fifth of the requests\n"
    "and pool all workloads. Among settings within 2 % of the highest load, the one with the\n"
    "lowest p99 ITL wins. Where fewer than 1 % of a setting's gaps hold most of its stalled time,\n"
    "the p99 misses them, and the longest gap takes its place. 'limit': the limit that the\n"
    "setting exceeds at a higher load. 'Pareto front': no other setting has both a higher goodput\n"
    "and a lower p99 ITL. 'SLO met only near idle': on average fewer than one request is in the\n"
    "system. Where a setting has drafts, mean TPOT takes the place of p99 ITL and longest gap.\n"
    "\n"
    "With --load all settings serve that load. The best is the one within the SLO with the lowest\n"
    "figure of --minimise.\n"
    "\n"
    "The results folder keeps all trials, also those of an interrupted search. A later command\n"
    "with the same folder reuses them.\n"
    "\n"
    "exit codes: 0 done, 1 no setting meets the SLO under load, 2 bad input, 130\n"
    "interrupted (129 by SIGHUP, 143 by SIGTERM)\n";

constexpr CommandText kTuneText = {
    .name = "tune",
    .arguments = "SCENARIO [OPTION...] | --command TEXT --gpu NAME [OPTION...]",
    .summary =
        "Finds the settings that carry the highest load within the scenario's SLO, or serve one\n"
        "load best, among its variants and the values of --over. Prints the vLLM and SGLang\n"
        "flags for them.\n",
    .examples = kTuneExamples,
    .file_name = "SCENARIO",
    .file_kind = "scenario file",
    .files = FileCount::AtMostOne};

OptionList option_list(TuneCommandOptions& options, FleetOptions& fleet,
                       ScenarioOptions& scenario) {
  OptionList list = {
      {"over KEY=A,B,C", &options.over,
       "settings to choose from, as in `metronome sweep`; several options make a grid; repeatable"},
      {"set KEY=VALUE", &options.request.assignments,
       "override a key of all settings; slo.ttft_ms, slo.tpot_ms, slo.itl_ms and slo.e2el_ms are "
       "the limits; repeatable"},
      {"slo PRESET", &options.slo, "limits of MLPerf Inference, as in slo.preset"},
      {"attainment SHARE", &options.attainment,
       "required share of requests within every limit (default: 0.99)", EmptyText::Refused,
       RealRange{0, 0.9999, "", true, true}},
      {"load RATE", &options.load,
       "find the best setting at this many requests per second, instead of the highest load",
       EmptyText::Refused, RealRange{1e-6, 1e6, "requests per second"}},
      {"minimise GOAL", &options.goal,
       "with --load: p99_itl (the default), ttft (its p99), tpot (its mean; the default where a "
       "setting has drafts), cost (of an hour: the key price_per_gpu_hour, times the GPUs) or "
       "gpus; "
       "the last two try settings from the cheapest on, until one keeps the SLO. Without --load: "
       "token_cost (of output tokens at each setting's own highest load, by price_per_gpu_hour)"},
      {"variant NAME", &options.request.variants, "choose from this variant; repeatable"},
      {"seed N", &options.seed_text, "override the scenario's seed"},
      {"seeds N", &options.num_seeds,
       "workloads to draw and evaluate together, with seeds that follow the scenario's; a trace is "
       "one workload (default: 3)",
       EmptyText::Refused, WholeRange{1, 100}},
      {"time-limit S", &options.time_limit_s,
       "end the search after so many seconds, with what it has found", EmptyText::Refused,
       RealRange{0, 1e7, "seconds", true}},
      {"jobs,j N", &options.num_jobs, "settings to try at once (default: one per CPU core)",
       EmptyText::Refused, kJobs},
      {"out DIR", &options.out,
       "folder for tune.json, best.yaml and trials.jsonl (default: that of `metronome run` with "
       "the suffix .tune)"},
      {"json", &options.wants_json, "print only tune.json on standard output"},
      {"quiet,q", &options.is_quiet, "print only errors"},
  };
  add_fleet_options(fleet, list);
  add_goal_options(options.goals, list);
  add_scenario_options(scenario, list);
  return list;
}

// Rejects "none", which the key allows, as it would leave no limit.
void check_preset(const std::string& name) {
  std::vector<std::string_view> known = slo_preset_names();
  std::erase(known, "none");
  if (std::find(known.begin(), known.end(), name) != known.end()) return;
  throw UsageError("--slo: no such preset: '" + printable(name) + "'" + did_you_mean(name, known) +
                   "; allowed: " + join_names(known));
}

void check_goal(const TuneCommandOptions& options, bool has_goal) {
  if (!has_goal) return;
  if (!options.load && options.goal != kTokenCost) {
    throw UsageError(
        "--minimise: has no effect; allowed: with --load, the load to serve, or token_cost");
  }
  if (!options.load) return;
  if (options.goal == kTokenCost) {
    throw UsageError(
        "--minimise: token_cost compares settings at their own highest loads; allowed: without "
        "--load, or cost");
  }
  if (std::find(std::begin(kTuneGoals), std::end(kTuneGoals), options.goal) ==
      std::end(kTuneGoals)) {
    throw UsageError("--minimise: no such goal: '" + printable(options.goal) + "'" +
                     did_you_mean(options.goal, kTuneGoals) +
                     "; allowed: " + join_names(kTuneGoals));
  }
}

// The settings to compare where no file names them: sizes of a step in powers of two and the
// command's own, and switches of the engine that decode between prompts.
void add_usual_settings(const Scenario& first, TuneCommandOptions& options) {
  constexpr std::int64_t kSmallest = 512;
  constexpr std::int64_t kLargest = 16384;
  const PolicyInfo& policy = *find_policy(first.scheduler.policy);
  const std::string_view size_key =
      policy.budget_key.empty() ? policy.chunk_key : policy.budget_key;
  if (!size_key.empty()) {
    const std::string key = "scheduler." + std::string(size_key);
    std::set<std::int64_t> sizes;
    for (std::int64_t size = kSmallest; size <= kLargest; size *= 2) sizes.insert(size);
    const Json own = first.value(key);
    if (own.is_number_integer() && own.get<std::int64_t>() > 0) {
      sizes.insert(own.get<std::int64_t>());
    }
    std::string over = key + "=";
    for (const std::int64_t size : sizes) {
      over += fmt::format("{}{}", over.ends_with('=') ? "" : ",", size);
    }
    options.over.push_back(std::move(over));
  }
  for (const Remedy& remedy : policy.remedies) {
    const std::string key = "scheduler." + std::string(remedy.key);
    const bool is_switch = remedy.value == "true" && remedy.only_from == "false";
    if (!is_switch || !remedy.only_key.empty() || first.value(key).dump() != "false") continue;
    options.over.push_back(key + "=false,true");
  }
}

// nullopt if help was requested and printed.
std::optional<TuneCommandOptions> parse_tune(const Arguments& arguments) {
  TuneCommandOptions options;
  FleetOptions fleet;
  ScenarioOptions scenario;
  const auto line = parse_command(kTuneText, option_list(options, fleet, scenario), arguments);
  if (!line) return std::nullopt;
  append_assignments(fleet, options.request.assignments);
  options.request.backend = kBackendNames[0];
  if (options.seed_text) options.request.seed = parse_seed(*options.seed_text);
  if (line->has("slo")) {  // replaces the scenario's limits; --set may add to them
    check_preset(options.slo);
    options.request.assignments.insert(options.request.assignments.begin(),
                                       "slo={preset: " + options.slo + "}");
  }
  for (std::string& goal : goal_assignments(options.goals)) {
    options.request.assignments.push_back(std::move(goal));
  }
  // The rate of a request without a file is the load to serve.
  if (scenario.request.rate && options.load) {
    throw UsageError("--rate: contradicts --load; allowed: one of them");
  }
  if (scenario.request.rate) options.load = scenario.request.rate;
  check_goal(options, line->has("minimise"));
  if (!line->has("jobs")) options.num_jobs = default_jobs();
  options.scenario = choose_scenario(kTuneText, *line, scenario, options.out);
  options.request.scenario = options.scenario.path;
  return options;
}

// At a given load, a limit need not be one that a queue exceeds.
void check_slo(const Scenario& scenario, bool has_load) {
  const SloConfig& slo = scenario.slo;
  const auto grows = [](const SloConfig& one) { return one.ttft_ms || one.e2el_ms; };
  for (const auto& [key, limit] :
       {std::pair("slo.output_throughput", slo.output_throughput),
        std::pair("slo.cost_per_million_output_tokens", slo.cost_per_million_output_tokens)}) {
    if (!limit || has_load) continue;
    throw UsageError(std::string(key) +
                     ": a low load breaks it, so there is no highest load that keeps it; allowed: "
                     "with --load, or null");
  }
  const bool has_class = std::any_of(slo.by_class.begin(), slo.by_class.end(), grows);
  if (grows(slo) || has_class || has_load) return;
  throw UsageError("tune: " + printable(scenario.name) +
                   " has no limit that a growing queue exceeds; allowed: --slo PRESET, or --set "
                   "slo.ttft_ms=500 or slo.e2el_ms=20000");
}

std::string_view default_goal(const TuneCandidates& candidates) {
  const bool has_drafts =
      std::any_of(candidates.plan.runs.begin(), candidates.plan.runs.end(),
                  [](const SweepRun& run) { return run.scenario.speculative.has_drafts(); });
  return has_drafts ? "tpot" : "p99_itl";
}

}  // namespace

std::optional<TuneQuestion> read_tune_question(const Arguments& arguments) {
  std::optional<TuneCommandOptions> parsed = parse_tune(arguments);
  if (!parsed) return std::nullopt;
  TuneCommandOptions& options = *parsed;
  const SweepRequest& request = options.request;
  ScenarioFile file =
      load_scenario(request.scenario, request.assignments, request.seed, request.backend);
  std::vector<Scenario> chosen = chosen_variants(file, request.variants);
  if (options.scenario.is_composed && options.over.empty()) {
    add_usual_settings(chosen.front(), options);
  }
  TuneCandidates candidates = find_candidates(request, options.over, file, options.num_jobs);
  if (options.goal.empty()) options.goal = default_goal(candidates);
  const Scenario& first = candidates.plan.runs.front().scenario;
  check_slo(first, options.load.has_value());
  check_alike(candidates.plan);
  auto workloads = std::make_unique<const TuneWorkloads>(first, options.num_seeds);
  return TuneQuestion{std::move(options), std::move(file), std::move(chosen), std::move(candidates),
                      std::move(workloads)};
}

std::vector<double> hourly_costs(const TuneCandidates& candidates, const TunedSettings& settings,
                                 const TuneCommandOptions& options) {
  std::vector<double> costs;
  for (std::size_t i = 0; i < candidates.names.size(); ++i) {
    const Scenario& scenario = *settings.scenarios[i];
    const ScenarioGpus gpus = gpus_of(scenario);
    if (options.goal == "gpus") {
      costs.push_back(static_cast<double>(gpus.count));
      continue;
    }
    const bool needs_price = options.goal == "cost" || options.goal == kTokenCost;
    if (needs_price && settings.has_price() && !gpus.price_per_hour) {
      throw UsageError("--minimise: " + printable(candidates.names[i]) +
                       " has no price_per_gpu_hour, but others have; allowed: a price for all, or "
                       "for none, which compares GPU-hours");
    }
    costs.push_back(gpus.price_per_hour.value_or(static_cast<double>(gpus.count)));
    if (options.goal == kTokenCost && costs.back() <= 0) {
      throw UsageError("--minimise: " + printable(candidates.names[i]) +
                       " costs nothing an hour, so its tokens are the cheapest; allowed: a "
                       "price_per_gpu_hour above 0");
    }
  }
  return costs;
}

}  // namespace metronome
