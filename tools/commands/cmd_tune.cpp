// SPDX-License-Identifier: Apache-2.0
// `metronome tune`: finds the settings that sustain the highest load within an SLO.
#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <map>
#include <optional>
#include <set>
#include <sstream>
#include <string_view>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/fleet_groups.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/terminal/text.h"
#include "study/run/variant_run.h"
#include "study/sweep/sweep_plan.h"
#include "study/sweep/sweep_points.h"
#include "study/tune/tune_load.h"
#include "study/tune/tune_per_cost.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/command_options.h"
#include "tools/commands/fleet_options.h"
#include "tools/commands/goal_options.h"
#include "tools/commands/refused_points.h"
#include "tools/commands/report_page.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"
#include "tools/commands/tune_candidates.h"
#include "tools/commands/tune_output.h"
#include "tools/commands/tune_report.h"
#include "tools/commands/tune_winner.h"
#include "tools/commands/tune_work.h"

namespace metronome {
namespace {

// As TuneGoal.
constexpr std::string_view kGoals[] = {"p99_itl", "ttft", "tpot", "cost", "gpus"};
// Of settings at their own highest loads, without --load.
constexpr std::string_view kTokenCost = "token_cost";

struct CommandOptions {
  ChosenScenario scenario;
  SweepRequest request;
  SloConfig goals;  // of --target options
  std::optional<std::string> seed_text;
  std::vector<std::string> over;
  std::string slo;  // preset; empty: the scenario's
  std::string out;
  std::optional<double> load;  // requests/s; absent: find the highest
  std::string goal;            // empty: tpot where a setting has drafts, else p99_itl
  std::optional<double> time_limit_s;
  double attainment = 0.99;
  int num_seeds = 3;
  int num_jobs = 1;
  bool wants_json = false;
  bool is_quiet = false;
};

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

OptionList option_list(CommandOptions& options, FleetOptions& fleet, ScenarioOptions& scenario) {
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

void check_goal(const CommandOptions& options, bool has_goal) {
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
  if (std::find(std::begin(kGoals), std::end(kGoals), options.goal) == std::end(kGoals)) {
    throw UsageError("--minimise: no such goal: '" + printable(options.goal) + "'" +
                     did_you_mean(options.goal, kGoals) + "; allowed: " + join_names(kGoals));
  }
}

// The settings to compare where no file names them: sizes of a step in powers of two and the
// command's own, and switches of the engine that decode between prompts.
void add_usual_settings(const Scenario& first, CommandOptions& options) {
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
std::optional<CommandOptions> parse_tune(const Arguments& arguments) {
  CommandOptions options;
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

// The answer of a search, ready to print and write.
struct TuneAnswer {
  std::size_t best = 0;  // setting
  bool is_known = true;  // false: the search was cut short and nothing can be said of the best
  bool is_final = true;  // false: a setting whose search was cut short may be better
  std::string table, error, advice;  // error: why there is no best, advice: what would help
  std::string how_sure;              // empty: there is no best, or its times were never compared
  Json settings_json = Json::array();
};

constexpr const char* kNothingFound = "the search ended before it found a setting";

// `costs`: of an hour of each setting, to find the cheapest tokens; empty: the highest load.
TuneAnswer best_capacity(TuneWork& search, const std::vector<double>& costs) {
  const TunedSettings settings = search.settings();
  if (!costs.empty()) search.weigh(costs);
  const TuneOptions tuning = search.tuning();
  const TuneRunFn run = search.run_fn();
  const TuneResult result = costs.empty() ? tune(search.size(), tuning, run)
                                          : tune_per_cost(search.size(), costs, tuning, run);
  const TuneFinding& best = result.findings.front();
  const std::vector<std::size_t> front = pareto_front(result.findings, tuning.has_drafts);
  TuneAnswer answer;
  answer.best = best.setting;
  answer.is_final = !is_any_cut_short(result.findings);
  std::map<std::size_t, const TuneTrial*> lowest;  // of settings that never meet the SLO
  for (const TuneFinding& finding : result.findings) {
    if (is_never_within(finding) && finding.failing_trial() != nullptr) {
      lowest[finding.setting] = finding.failing_trial();
    }
  }
  const NearestLimits nearest = search.nearest_limits(lowest);
  std::ostringstream table;
  if (lowest.size() < result.findings.size()) print_capacities(table, result, settings);
  if (!lowest.empty() && !table.view().empty()) table << '\n';
  print_never_within(table, result, settings, nearest);
  answer.table = table.str() + cheapest_text(result, settings);
  for (std::size_t i = 0; i < result.findings.size(); ++i) {
    Json entry = to_json(result.findings[i], settings, nearest, most_requests(result.findings));
    entry["is_on_front"] = std::find(front.begin(), front.end(), i) != front.end();
    answer.settings_json.push_back(std::move(entry));
  }
  if (best.is_cut_short && best.best_trial() == nullptr) {
    answer.is_known = false;
    answer.error = kNothingFound;
  } else if (is_only_near_idle(best, settings)) {
    answer.advice = near_idle_text(result, settings);
    answer.error = best.capacity == 0 ? "no setting meets the SLO at any load"
                                      : "no setting meets the SLO under load";
  } else if (const auto band = search.capacity_band(best)) {
    answer.how_sure = band->capacity_text();
  }
  return answer;
}

TuneGoal goal_named(std::string_view name) {
  return static_cast<TuneGoal>(std::ranges::find(kGoals, name) - std::begin(kGoals));
}

TuneAnswer best_at_load(TuneWork& search, double load, std::string_view goal_name,
                        const std::vector<double>& costs) {
  const TunedSettings settings = search.settings();
  const TuneOptions tuning = search.tuning();
  const TuneRunFn run = search.run_fn();
  const TuneGoal goal = goal_named(goal_name);
  const TuneLoadResult result = tune_at_load(search.size(), load, goal, costs, tuning, run);
  const TuneLoadFinding& best = result.findings.front();
  TuneAnswer answer;
  answer.best = best.setting;
  answer.is_final = !is_any_cut_short(result.findings);
  std::ostringstream table;
  print_at_load(table, result, settings);
  answer.table = table.str();
  for (const TuneLoadFinding& finding : result.findings) {
    answer.settings_json.push_back(to_json(finding, settings, most_requests(result.findings)));
  }
  if (result.is_cut_short && !best.is_within) {
    answer.is_known = false;
    answer.error = kNothingFound;
  } else if (!best.is_within) {
    const NearestLimits nearest = search.nearest_limits({{best.setting, &best.trial}});
    answer.advice = outside_text(result, settings, nearest);
    answer.error = "no setting keeps the SLO at this load";
  } else if (const auto band = search.attainment_band(best)) {
    answer.how_sure = band->attainment_text();
  }
  return answer;
}

Json head_json(const CommandOptions& options, const SloConfig& slo, const TuneWorkloads& workloads,
               const TuneWork& search, const std::vector<std::string>& refused) {
  Json json = {{std::string(kResultSchemaKey), kResultSchema},
               {"scenario", options.request.scenario},
               {"slo", to_json(slo)},
               {"attainment", options.attainment},
               {"num_requests", workloads.num_requests()},
               {"num_seeds", workloads.num_seeds()},
               {"num_trials", search.num_trials()},
               {"num_trials_reused", search.num_reused()},
               {"num_requests_simulated", search.num_simulated()},
               {"is_cut_short", search.is_over()},
               {"refused_points", refused},
               {"notes", options.scenario.notes}};
  if (options.load) json["load"] = *options.load;
  if (options.load || options.goal == kTokenCost) json["minimise"] = options.goal;
  json["settings"] = Json::array();
  return json;
}

void print_head(std::ostream& out, const CommandOptions& options, const ScenarioFile& file,
                const SloConfig& slo, const TuneCandidates& candidates,
                const TuneWorkloads& workloads) {
  out << "scenario    " << wrapped(one_line(file.path), 12, output_columns()) << "slo         "
      << slo_text(slo) << ", of " << fixed_text(100 * options.attainment, 1) << " % of requests\n"
      << "settings    " << candidates.names.size();
  if (!candidates.plan.invalid.empty()) out << " (" << refused_text(candidates.plan) << ')';
  out << ", each with ";
  if (options.load) {
    out << "up to " << count_text(workloads.num_requests(), "request") << " or more at "
        << rate_text(*options.load) << " per second\n"
        << (candidates.names.size() > 1 ? "" : "\n") << std::flush;
    return;
  }
  out << count_text(workloads.num_requests(), "request") << " ("
      << count_text(workloads.num_seeds(), "workload") << ") or more, from "
      << rate_text(workloads.given_load()) << " per second up and down\n\n"
      << std::flush;
}

void print_work(std::ostream& out, const CommandOptions& options, const TuneWork& search) {
  out << '\n'
      << count_text(search.num_simulated(), "request") << " simulated in "
      << count_text(search.num_trials() - search.num_reused(), "trial");
  if (search.num_reused() > 0) {
    out << ", " << count_text(search.num_reused(), "trial") << " reused from the folder of results";
  }
  out << '\n';
  if (search.is_over()) {
    const std::string cause = interrupting_signal() != 0
                                  ? "A signal"
                                  : "The time limit of " + ms_text(*options.time_limit_s) + " s";
    out << wrapped(cause +
                       " ended the search: the settings 'not finished' may be better or worse. "
                       "The same command again goes on from here.",
                   0, output_columns());
  }
}

// The cost of an hour of each setting: its price, or without prices and for the goal gpus its GPUs.
std::vector<double> hourly_costs(const TuneCandidates& candidates, const TunedSettings& settings,
                                 const CommandOptions& options) {
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
  }
  return costs;
}

TuneAnswer find_best(TuneWork& search, const CommandOptions& options,
                     const TuneCandidates& candidates) {
  const bool has_costs = options.load || options.goal == kTokenCost;
  const std::vector<double> costs =
      has_costs ? hourly_costs(candidates, search.settings(), options) : std::vector<double>();
  return options.load ? best_at_load(search, *options.load, options.goal, costs)
                      : best_capacity(search, costs);
}

// The answer in words.
struct TuneWords {
  std::string text;                // the best setting, or why there is none
  Scenario fitting;                // the best setting, of a length that the engine starts with
  std::vector<EngineFlags> flags;  // of it; empty: there is none
  Json json;                       // of all
};

TuneWords words_of(const TuneAnswer& answer, const TuneWork& search, const CommandOptions& options,
                   const SloConfig& slo, const TuneCandidates& candidates) {
  TuneWords words;
  std::string length_note;
  words.fitting = search.with_fitting_length(answer.best, length_note);
  if (answer.error.empty()) {
    words.flags = winner_flags(words.fitting, length_note, options.scenario.engine_version);
    words.text =
        (answer.is_final ? "best: " : "best so far: ") + printable(candidates.names[answer.best]);
  } else {
    words.text = answer.error + ". " + answer.advice;
  }
  std::string question = "Which of " + count_text(candidates.names.size(), "setting");
  question += options.load
                  ? fmt::format(" has the lowest {} at {} requests/s",
                                goal_text(goal_named(options.goal)), rate_text(*options.load))
              : options.goal == kTokenCost ? " has the cheapest output tokens"
                                           : " carries the highest load";
  question += fmt::format(" within the SLO ({}, of {} % of requests)?", slo_text(slo),
                          fixed_text(100 * options.attainment, 1));
  const std::string router = words.flags.empty() ? "" : router_command(words.fitting);
  words.json = tune_answer_json(question, words.text, answer.how_sure, words.flags, router);
  return words;
}

void print_places(std::ostream& text, const CommandOptions& options, const std::string& out) {
  if (options.scenario.is_composed) {
    text << "\nscenario: " << printable(options.scenario.path) << "\npage: " << printable(out)
         << '/' << kReportFile;
  }
  text << "\nresults: " << printable(out) << '\n';
}

}  // namespace

int tune_command(const Arguments& arguments) {
  std::optional<CommandOptions> parsed = parse_tune(arguments);
  if (!parsed) return kExitDone;
  CommandOptions& options = *parsed;
  const SweepRequest& request = options.request;
  const ScenarioFile file =
      load_scenario(request.scenario, request.assignments, request.seed, request.backend);
  const std::vector<Scenario> chosen = chosen_variants(file, request.variants);
  if (options.scenario.is_composed && options.over.empty()) {
    add_usual_settings(chosen.front(), options);
  }
  const TuneCandidates candidates = find_candidates(request, options.over, file, options.num_jobs);
  if (options.goal.empty()) options.goal = default_goal(candidates);
  const Scenario& first = candidates.plan.runs.front().scenario;
  check_slo(first, options.load.has_value());
  check_alike(candidates.plan);
  const TuneWorkloads workloads(first, options.num_seeds);
  const std::string out = !options.out.empty()
                              ? options.out
                              : default_folder(request.scenario, *make_backend(request.backend),
                                               chosen, request.variants.empty()) +
                                    ".tune";
  catch_signals();
  ResultFolder folder(out);
  std::ostream& text = text_stream(options.is_quiet, options.wants_json);
  print_choice(text, options.scenario);
  print_head(text, options, file, first.slo, candidates, workloads);
  print_refused(candidates.plan, "warning");
  for (const std::string& remark : candidates.plan.remarks)
    std::cerr << "warning: " << remark << '\n';
  TuneWork search({options.attainment, options.num_jobs, options.time_limit_s, options.is_quiet},
                  candidates, workloads, out + "/" + std::string(kTrialsFile));
  const TunedSettings settings = search.settings();
  const TuneAnswer answer = find_best(search, options, candidates);
  if (search.num_trials() == 0) throw_if_interrupted();
  Json json = head_json(options, first.slo, workloads, search, candidates.plan.invalid);
  json["settings"] = answer.settings_json;
  const TuneWords words = words_of(answer, search, options, first.slo, candidates);
  json["answer"] = words.json;
  const std::string json_text = json.dump(2) + "\n";
  folder.write(kTuneFile, json_text);
  if (answer.is_known)
    folder.write(kBestFile, with_absolute_paths(*settings.scenarios[answer.best]).to_json() + "\n");
  folder.write(kTrialsFile, search.trials_text());
  folder.commit();
  if (search.num_trials() > 0) write_report_page({out}, out + "/" + std::string(kReportFile));
  if (options.wants_json) std::cout << json_text;
  text << answer.table;
  print_work(text, options, search);
  const bool is_interrupted = search.is_over() && interrupting_signal() != 0;
  if (!answer.advice.empty()) text << '\n' << answer.advice;
  if (answer.error.empty()) {
    text << '\n' << words.text << '\n';
    if (!answer.how_sure.empty()) {
      text << wrapped("how sure: " + answer.how_sure, 2, output_columns());
    }
    print_yaml(text, words.fitting);
    print_flags(text, words.flags);
    print_places(text, options, out);
  } else if (!is_interrupted) {
    throw std::runtime_error(answer.error + "; see " + printable(out));
  }
  if (!is_interrupted) return kExitDone;
  std::cerr << "metronome: interrupted; the trials so far are in " << printable(out)
            << ", and the same command continues from there\n";
  return kExitSignal + interrupting_signal();
}

}  // namespace metronome
