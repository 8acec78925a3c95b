// SPDX-License-Identifier: Apache-2.0
#include "tools/commands/tune_output.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"
#include "core/metrics/goals.h"
#include "core/scenario/fleet_groups.h"
#include "core/scenario/scenario.h"
#include "reports/terminal/text.h"

namespace metronome {
namespace {

using Rows = std::vector<std::vector<std::string>>;

ComparedSetting compared(std::size_t setting, const TunedSettings& settings) {
  return {printable(settings.names[setting]), settings.scenarios[setting]};
}

// ", of 60 requests" where a setting was dropped after a short trial: figures of fewer requests
// look better than those of all, as a queue grows.
std::string short_text(const TuneTrial* trial, std::size_t most) {
  if (trial == nullptr || trial->num_requests >= most) return "";
  return ", of " + count_text(trial->num_simulated, "request");
}

std::string note_text(const TuneResult& result, std::size_t place, const TunedSettings& settings) {
  const TuneFinding& finding = result.findings[place];
  if (finding.is_cut_short) {
    return place == 0 && finding.best_trial() != nullptr ? "best so far" : "not finished";
  }
  if (is_never_within(finding)) return "never meets the SLO";
  if (is_only_near_idle(finding, settings)) return "SLO met only near idle";
  if (place == 0) {
    const auto num_equal =
        std::count_if(result.findings.begin(), result.findings.end(),
                      [](const TuneFinding& other) { return other.is_equal_to_best; });
    return num_equal > 1 ? fmt::format("best: steadiest of {} equals", num_equal) : "best";
  }
  if (finding.is_equal_to_best) return "equal";
  if (finding.may_equal_best) {
    return settings.is_by_cost ? "not significantly dearer" : "not significantly less";
  }
  if (finding.is_finalist) return "";
  return settings.is_by_cost ? "dropped: dearer tokens" : "dropped: lower load";
}

std::string band_text(const TuneFinding& finding) {
  if (!finding.is_finalist || finding.capacity == 0) return "-";
  return (finding.low > 0 ? rate_text(finding.low) + " to " : "up to ") + rate_text(finding.high);
}

Json or_null(double number) { return std::isfinite(number) ? Json(number) : Json(nullptr); }

Json to_json(const TuneTrial& trial, const Scenario& scenario, std::size_t most) {
  Json entry = {{"request_rate", trial.load},
                {"is_short", trial.num_requests < most},
                {"num_judged", trial.good.size()},
                {"num_simulated", trial.num_simulated}};
  const FigureValues values = figures_of(trial, scenario);
  for (const std::string_view key : figures_of(FigureList::Trial)) {
    entry[key] = or_null(values.number(key));
  }
  return entry;
}

// The figures of the list that these settings have.
std::vector<const Figure*> columns_of(FigureList list, const TunedSettings& settings) {
  std::vector<const Figure*> columns;
  for (const std::string_view key : figures_of(list)) {
    if (key == "mean_tpot_ms" && !settings.has_drafts()) continue;
    if (key == "cost_per_million_output_tokens" && !settings.has_price()) continue;
    columns.push_back(&figure(key));
  }
  return columns;
}

void append_titles(const std::vector<const Figure*>& columns, std::vector<std::string>& row) {
  for (const Figure* column : columns) row.push_back(column_title(*column));
}

// `trial`: nullptr or without requests: nothing is known.
void append_figures(const std::vector<const Figure*>& columns, const TuneTrial* trial,
                    const Scenario& scenario, std::vector<std::string>& row) {
  const bool is_known = trial != nullptr && !trial->good.empty();
  const FigureValues values = is_known ? figures_of(*trial, scenario) : FigureValues();
  for (const Figure* column : columns) {
    row.push_back(is_known ? value_text(*column, values.number(column->key)) : "-");
  }
}

// The cost of an hour, or the number of GPUs.
std::string size_text(const Scenario& scenario, bool has_price) {
  const ScenarioGpus gpus = gpus_of(scenario);
  if (!has_price) return std::to_string(gpus.count);
  return fixed_text(gpus.price_per_hour.value_or(std::nan("")), 2);
}

std::string load_note(const TuneLoadResult& result, std::size_t place) {
  const TuneLoadFinding& finding = result.findings[place];
  if (finding.is_cut_short) return "not finished";
  if (!finding.is_within) return "outside the SLO";
  if (place == 0) {
    if (is_any_cut_short(result.findings)) return "best so far";
    const auto num_equal =
        std::count_if(result.findings.begin(), result.findings.end(),
                      [](const TuneLoadFinding& other) { return other.is_equal_to_best; });
    return num_equal > 1 ? fmt::format("best of {} equals", num_equal) : "best";
  }
  if (finding.is_equal_to_best) return "equal";
  if (finding.may_equal_best) return "not significantly worse";
  return finding.is_dropped ? "dropped: worse" : "";
}

constexpr const char* kHiddenStalls =
    "Ordered by the longest gap: in a setting within the SLO fewer than 1 % of the gaps hold most "
    "of the stalled time, and the p99 ITL does not see them.";

void print_loads(std::ostream& out, const TuneLoadResult& result, const TunedSettings& settings) {
  const bool has_sizes = settings.has_price() || settings.has_different_sizes();
  const std::vector<const Figure*> columns = columns_of(FigureList::Load, settings);
  Rows rows = {{"setting"}};
  append_titles(columns, rows[0]);
  if (has_sizes) rows[0].emplace_back(settings.has_price() ? "per hour" : "GPUs");
  rows[0].insert(rows[0].end(), {"breaks", ""});
  const std::size_t most = most_requests(result.findings);
  for (std::size_t i = 0; i < result.findings.size(); ++i) {
    const TuneLoadFinding& finding = result.findings[i];
    const TuneTrial& trial = finding.trial;
    const Scenario& scenario = *settings.scenarios[finding.setting];
    const bool is_tried = !trial.good.empty();
    std::vector<std::string>& row = rows.emplace_back();
    row.push_back(printable(settings.names[finding.setting]));
    append_figures(columns, &trial, scenario, row);
    if (has_sizes) row.push_back(is_tried ? size_text(scenario, settings.has_price()) : "-");
    const bool is_outside = is_tried && !finding.is_within;
    row.emplace_back(
        is_outside ? to_string(binding_limit(trial, scenario.slo, settings.bounds[finding.setting]))
                   : "-");
    row.push_back(is_tried            ? load_note(result, i) + short_text(&trial, most)
                  : finding.is_pruned ? "not tried: costs more"
                                      : "not finished");
  }
  out << aligned_rows(rows);
}

}  // namespace

bool is_never_within(const TuneFinding& finding) {
  return !finding.is_cut_short && finding.capacity == 0;
}

bool TunedSettings::has_price() const {
  return std::any_of(scenarios.begin(), scenarios.end(), [](const Scenario* scenario) {
    return scenario->price_per_gpu_hour.has_value();
  });
}

bool TunedSettings::has_different_sizes() const {
  return std::any_of(scenarios.begin(), scenarios.end(), [this](const Scenario* scenario) {
    return gpus_of(*scenario).count != gpus_of(*scenarios.front()).count;
  });
}

bool TunedSettings::has_drafts() const {
  return std::any_of(scenarios.begin(), scenarios.end(),
                     [](const Scenario* scenario) { return scenario->speculative.has_drafts(); });
}

bool is_only_near_idle(const TuneFinding& finding, const TunedSettings& settings) {
  if (finding.is_cut_short) return false;  // it may carry more
  const TuneTrial* trial = finding.best_trial();
  return trial == nullptr || (trial->num_in_system < 1 && finding.capacity < settings.given_load);
}

TuneLimit limit_of(const TuneFinding& finding, const TunedSettings& settings) {
  const TuneTrial* failing = finding.failing_trial();
  if (failing == nullptr) return TuneLimit::None;
  return binding_limit(*failing, settings.scenarios[finding.setting]->slo,
                       settings.bounds[finding.setting]);
}

void print_capacities(std::ostream& out, const TuneResult& result, const TunedSettings& settings) {
  const std::vector<std::size_t> front = pareto_front(result.findings, settings.has_drafts());
  const std::vector<const Figure*> columns = columns_of(FigureList::Capacity, settings);
  Rows rows = {{"setting", "highest req/s", "90 % band"}};
  append_titles(columns, rows[0]);
  rows[0].insert(rows[0].end(), {"limit", ""});
  const std::size_t most = most_requests(result.findings);
  for (std::size_t i = 0; i < result.findings.size(); ++i) {
    const TuneFinding& finding = result.findings[i];
    std::string note = note_text(result, i, settings) + short_text(finding.best_trial(), most);
    const bool is_on_front = std::find(front.begin(), front.end(), i) != front.end();
    if (is_on_front && !is_only_near_idle(finding, settings)) {
      note += note.empty() ? "Pareto front" : ", Pareto front";
    }
    std::vector<std::string> row = {printable(settings.names[finding.setting])};
    const TuneTrial* trial = finding.best_trial();
    if (trial == nullptr) {
      row.insert(row.end(), {finding.is_cut_short ? "-" : "0", "-"});
    } else {
      row.insert(row.end(), {(finding.is_unbounded ? "over " : "") + rate_text(finding.capacity),
                             band_text(finding)});
    }
    append_figures(columns, trial, *settings.scenarios[finding.setting], row);
    row.emplace_back(to_string(limit_of(finding, settings)));
    row.push_back(note);
    rows.push_back(std::move(row));
  }
  out << aligned_rows(rows);
}

void print_never_within(std::ostream& out, const TuneResult& result, const TunedSettings& settings,
                        const NearestLimits& nearest) {
  Rows rows = {{"setting", "lowest req/s", "in SLO %", "breaks", "limits that hold there"}};
  for (const TuneFinding& finding : result.findings) {
    const TuneTrial* lowest = finding.failing_trial();
    if (!is_never_within(finding) || lowest == nullptr) continue;
    rows.push_back({printable(settings.names[finding.setting]), ms_text(lowest->load),
                    fixed_text(100 * lowest->attainment, 2),
                    std::string(to_string(limit_of(finding, settings))),
                    limits_text(nearest, finding.setting)});
  }
  if (rows.size() > 1) out << aligned_rows(rows);
}

std::string_view goal_text(TuneGoal goal) {
  switch (goal) {
    case TuneGoal::P99Ttft: return "p99 TTFT";
    case TuneGoal::MeanTpot: return "mean TPOT";
    case TuneGoal::Cost: return "cost of an hour";
    case TuneGoal::Gpus: return "number of GPUs";
    case TuneGoal::P99Itl: break;
  }
  return "p99 ITL";
}

void print_at_load(std::ostream& out, const TuneLoadResult& result, const TunedSettings& settings) {
  if (result.findings.size() < 2) return print_loads(out, result, settings);
  const bool is_by_longest = result.goal == TuneGoal::P99Itl && result.by == SteadyBy::Longest;
  out << "best        the "
      << (is_by_longest ? "shortest longest gap within the SLO, as the p99 ITL hides stalls"
                        : "lowest " + std::string(goal_text(result.goal)) + " within the SLO")
      << "\n\n";
  print_loads(out, result, settings);
  if (is_by_longest) out << '\n' << wrapped(kHiddenStalls, 0, output_columns());
}

std::string limits_text(const NearestLimits& nearest, std::size_t setting) {
  const auto found = nearest.find(setting);
  if (found == nearest.end()) return "-";
  return found->second ? slo_text(*found->second) : "none: requests do not complete";
}

std::string slo_text(const SloConfig& slo) {
  std::string text;
  const auto add = [&text](const char* name, const std::optional<double>& limit) {
    if (limit) text += std::string(text.empty() ? "" : ", ") + name + " " + ms_text(*limit) + " ms";
  };
  add("TTFT", slo.ttft_ms);
  add("TPOT", slo.tpot_ms);
  if (!slo.judges_gaps_of_run()) add("every ITL", slo.itl_ms);
  add("E2EL", slo.e2el_ms);
  const std::vector<Goal> of_run = run_goals_of(slo);
  if (!of_run.empty()) text += (text.empty() ? "" : "; ") + ("of a run " + goal_words(of_run));
  if (slo.by_class.empty()) return text;
  // Each class has its own limits, and those of all where it gives none.
  std::string classes;
  for (const SloConfig& own : slo.by_class) {
    const std::string limits = slo_text(own);
    if (limits.empty()) continue;
    classes += (classes.empty() ? "" : "; ") + printable(own.class_name) + " " + limits;
  }
  return classes.empty() ? text : classes;
}

Json to_json(const SloConfig& slo) {
  const auto or_null = [](const std::optional<double>& limit) {
    return limit ? Json(*limit) : Json(nullptr);
  };
  return {{"ttft_ms", or_null(slo.ttft_ms)},
          {"tpot_ms", or_null(slo.tpot_ms)},
          {"itl_ms", or_null(slo.itl_ms)},
          {"e2el_ms", or_null(slo.e2el_ms)}};
}

std::string cheapest_text(const TuneResult& result, const TunedSettings& settings) {
  if (!settings.has_price() || result.findings.size() < 2) return {};
  const Figure& cost = figure("cost_per_million_output_tokens");
  std::string text;
  double lowest = 0;
  for (const TuneFinding& finding : result.findings) {
    const TuneTrial* const trial = finding.best_trial();
    if (trial == nullptr || trial->good.empty()) continue;
    const double price = figures_of(*trial, *settings.scenarios[finding.setting]).number(cost.key);
    if (std::isnan(price) || (!text.empty() && price >= lowest)) continue;
    lowest = price;
    text = "\ncheapest a token: " + printable(settings.names[finding.setting]) + ", " +
           value_text(cost, price) + " per million output tokens at its highest load\n";
  }
  return text;
}

std::string near_idle_text(const TuneResult& result, const TunedSettings& settings) {
  const TuneFinding& best = result.findings.front();
  const Scenario& scenario = *settings.scenarios[best.setting];
  std::vector<ComparedSetting> others;
  bool is_any_under_load = false;
  for (const TuneFinding& finding : result.findings) {
    if (finding.is_cut_short) continue;
    is_any_under_load = is_any_under_load || !is_only_near_idle(finding, settings);
    others.push_back(compared(finding.setting, settings));
  }
  std::string text = is_any_under_load
                         ? "The setting with the highest load meets the SLO only near idle. "
                         : "No setting meets the SLO under load. ";
  if (const TuneTrial* trial = best.best_trial()) {
    text += "The best, " + printable(settings.names[best.setting]) + ", meets the SLO only up to " +
            rate_text(best.capacity) + " requests a second, where " +
            fixed_text(trial->num_in_system, 2) + " are in the system on average. ";
  }
  text += limit_advice(limit_of(best, settings), scenario.slo, settings.bounds[best.setting],
                       compared_remedies(scenario, others, "Compared, and no better"));
  return wrapped(text, 0, output_columns());
}

std::string outside_text(const TuneLoadResult& result, const TunedSettings& settings,
                         const NearestLimits& nearest) {
  const TuneLoadFinding& best = result.findings.front();
  const Scenario& scenario = *settings.scenarios[best.setting];
  const StepBounds& bounds = settings.bounds[best.setting];
  std::vector<ComparedSetting> others;
  for (const TuneLoadFinding& finding : result.findings) {
    if (!finding.is_cut_short) others.push_back(compared(finding.setting, settings));
  }
  const ComparedRemedies remedies =
      compared_remedies(scenario, others, "Compared, and outside the SLO, too");
  const TuneLimit limit = binding_limit(best.trial, scenario.slo, bounds);
  std::string advice = overload_advice(best.trial, limit, bounds, remedies);
  if (advice.empty()) advice = limit_advice(limit, scenario.slo, bounds, remedies);
  return wrapped("No setting meets the SLO at this load. The nearest is " +
                     printable(settings.names[best.setting]) + ", with " +
                     percent_text(best.trial.attainment, 2) + " of its requests within it. " +
                     advice + " Limits that hold there: " + limits_text(nearest, best.setting) +
                     ".",
                 0, output_columns());
}

Json to_json(const TuneFinding& finding, const TunedSettings& settings,
             const NearestLimits& nearest, std::size_t most) {
  const Scenario& scenario = *settings.scenarios[finding.setting];
  const StepBounds& bounds = settings.bounds[finding.setting];
  Json entry = {
      {"setting", settings.names[finding.setting]},
      {"highest_request_rate",
       finding.is_cut_short && finding.capacity == 0 ? Json(nullptr) : Json(finding.capacity)},
      {"is_unbounded", finding.is_unbounded},
      {"is_finalist", finding.is_finalist},
      {"is_cut_short", finding.is_cut_short},
      {"is_only_near_idle", is_only_near_idle(finding, settings)},
      {"limit", to_string(limit_of(finding, settings))},
      {"full_step_ms", bounds.full_step_ms},
      {"largest_budget_within_itl", bounds.fitting_tokens},
      {"num_requests", finding.num_requests},
      {"low", finding.is_finalist ? Json(finding.low) : Json(nullptr)},
      {"high", finding.is_finalist ? Json(finding.high) : Json(nullptr)},
      {"may_equal_best", finding.may_equal_best},
      {"is_equal_to_best", finding.is_equal_to_best},
      {"limits_at_lowest_load", nullptr},
      {"trials", Json::array()}};
  const auto limits = nearest.find(finding.setting);
  if (limits != nearest.end() && limits->second) {
    entry["limits_at_lowest_load"] = to_json(*limits->second);
  }
  for (const TuneTrial& trial : finding.trials) {
    entry["trials"].push_back(to_json(trial, scenario, most));
  }
  entry["config"] = scenario.resolved();
  return entry;
}

Json to_json(const TuneLoadFinding& finding, const TunedSettings& settings, std::size_t most) {
  const Scenario& scenario = *settings.scenarios[finding.setting];
  Json entry = {{"setting", settings.names[finding.setting]},
                {"is_within_slo", finding.is_within},
                {"is_dropped", finding.is_dropped},
                {"is_pruned", finding.is_pruned},
                {"is_cut_short", finding.is_cut_short},
                {"may_equal_best", finding.may_equal_best},
                {"is_equal_to_best", finding.is_equal_to_best}};
  if (!finding.trial.good.empty()) {
    entry["limit"] = finding.is_within ? "-"
                                       : to_string(binding_limit(finding.trial, scenario.slo,
                                                                 settings.bounds[finding.setting]));
    entry["trial"] = to_json(finding.trial, scenario, most);
  }
  entry["config"] = scenario.resolved();
  return entry;
}

}  // namespace metronome
