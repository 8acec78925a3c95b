// SPDX-License-Identifier: Apache-2.0
// `metronome tune`: finds the settings that sustain the highest load within an SLO.
#include <algorithm>
#include <fmt/core.h>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string_view>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "reports/files/result_files.h"
#include "reports/files/result_folder.h"
#include "reports/files/result_names.h"
#include "reports/terminal/text.h"
#include "study/tune/tune_load.h"
#include "study/tune/tune_per_cost.h"
#include "study/tune/tune_run.h"
#include "study/tune/tune_search.h"
#include "system/progress.h"
#include "tools/commands/cli.h"
#include "tools/commands/refused_points.h"
#include "tools/commands/report_page.h"
#include "tools/commands/run_choice.h"
#include "tools/commands/scenario_choice.h"
#include "tools/commands/tune_candidates.h"
#include "tools/commands/tune_output.h"
#include "tools/commands/tune_question.h"
#include "tools/commands/tune_report.h"
#include "tools/commands/tune_trials.h"
#include "tools/commands/tune_winner.h"
#include "tools/commands/tune_work.h"

namespace metronome {
namespace {

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
  if (!costs.empty()) search.weigh(costs);
  const TunedSettings settings = search.settings();
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
  return static_cast<TuneGoal>(std::ranges::find(kTuneGoals, name) - std::begin(kTuneGoals));
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

Json head_json(const TuneCommandOptions& options, const SloConfig& slo,
               const TuneWorkloads& workloads, const TuneWork& search,
               const std::vector<std::string>& refused) {
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

void print_head(std::ostream& out, const TuneCommandOptions& options, const ScenarioFile& file,
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

void print_work(std::ostream& out, const TuneCommandOptions& options, const TuneWork& search) {
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

TuneAnswer find_best(TuneWork& search, const TuneCommandOptions& options,
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

TuneWords words_of(const TuneAnswer& answer, const TuneWork& search,
                   const TuneCommandOptions& options, const SloConfig& slo,
                   const TuneCandidates& candidates) {
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

void print_places(std::ostream& text, const TuneCommandOptions& options, const std::string& out) {
  if (options.scenario.is_composed) {
    text << "\nscenario: " << printable(options.scenario.path) << "\npage: " << printable(out)
         << '/' << kReportFile;
  }
  text << "\nresults: " << printable(out) << '\n';
}

}  // namespace

int tune_command(const Arguments& arguments) { return tune_command(arguments, {}); }

int tune_command(const Arguments& arguments, const TrialElsewhere& elsewhere) {
  const std::optional<TuneQuestion> asked = read_tune_question(arguments);
  if (!asked) return kExitDone;
  const auto& [options, file, chosen, candidates, workloads_owner] = *asked;
  const TuneWorkloads& workloads = *workloads_owner;
  const SweepRequest& request = options.request;
  const Scenario& first = candidates.plan.runs.front().scenario;
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
  TuneWork search(
      {options.attainment, options.num_jobs, options.time_limit_s, options.is_quiet, elsewhere},
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
