// SPDX-License-Identifier: Apache-2.0
#include "study/verify/verify.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <fmt/core.h>
#include <fstream>
#include <set>

#include "core/base/command_errors.h"
#include "core/base/count_text.h"
#include "core/base/distribution.h"
#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/number_text.h"
#include "engines/arguments/engine_settings.h"
#include "engines/log/log_dialect.h"
#include "reports/terminal/diagnosis.h"
#include "reports/terminal/log_facts.h"
#include "reports/terminal/log_gaps.h"

namespace metronome {
namespace {

// A folder, or JSON: no log begins with a brace.
bool is_result(const std::string& path) {
  if (is_folder(path)) return true;
  std::ifstream file = open_input(path, "a server's log, or results of a client");
  char first = ' ';
  while (file.get(first) && std::isspace(static_cast<unsigned char>(first)) != 0) {
  }
  return first == '{';
}

// ---- figures ----

using Values = std::map<std::string, double>;  // by the figure's key

void add_durations(const char* name, const Distribution& times, Values& values) {
  if (times.count == 0) return;
  values[std::string("p50_") + name + "_ms"] = times.p50_ms;
  values[std::string("p99_") + name + "_ms"] = times.p99_ms;
  values[std::string("max_") + name + "_ms"] = times.max_ms;
}

Values values_of(const EngineLog& log) {
  Distribution itl;
  diagnose(gaps_of(log), std::nullopt, 1, itl);
  Values values;
  add_durations("itl", itl, values);
  return values;
}

Values values_of(const ObservedRun& run) {
  std::vector<double> ttft, itl;
  double num_tokens = 0;
  for (const ObservedRequest& request : run.requests) {
    ttft.push_back(static_cast<double>(request.ttft_ns));
    for (const TimeNs gap : request.gaps) itl.push_back(static_cast<double>(gap));
    num_tokens += request.num_output_tokens;
  }
  Values values;
  add_durations("ttft", describe(ttft), values);
  add_durations("itl", describe(itl), values);
  const double seconds = static_cast<double>(run.duration_ns) / static_cast<double>(kNsPerSecond);
  if (seconds > 0) {
    values["output_throughput"] = num_tokens / seconds;
    values["request_throughput"] = static_cast<double>(run.requests.size()) / seconds;
  }
  return values;
}

// A client's figures go before those of the log, which has no clients.
Values values_of(const VerifiedSide& side, std::size_t turn) {
  Values values;
  if (turn < side.logs.size()) values = values_of(side.logs[turn]);
  if (turn < side.results.size()) {
    for (const auto& [key, value] : values_of(side.results[turn])) values[key] = value;
  }
  return values;
}

bool is_duration(const std::string& key) { return key.ends_with("_ms"); }

TurnMean mean_of(const std::vector<double>& values) {
  TurnMean mean;
  for (const double value : values) mean.mean += value / static_cast<double>(values.size());
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  mean.low = *low;
  mean.high = *high;
  return mean;
}

// The values of one figure in all turns; nullopt: one of them lacks it.
std::optional<std::vector<double>> column(const std::vector<Values>& turns,
                                          const std::string& key) {
  std::vector<double> values;
  for (const Values& turn : turns) {
    const auto found = turn.find(key);
    if (found == turn.end()) return std::nullopt;
    values.push_back(found->second);
  }
  return values;
}

void add_figures(const std::vector<Values>& before, const std::vector<Values>& after,
                 const VerifyOptions& options, Verification& verification) {
  const Advice& advice = options.advice;
  for (const std::string_view name : promised_figures()) {
    const std::string key(name);
    const auto promised = advice.promised.find(key);
    const auto first = column(before, key);
    auto second = column(after, key);
    if (!first || !second) {
      if (promised != advice.promised.end()) verification.not_measured.push_back(key);
      continue;
    }
    VerifiedFigure row;
    row.figure = &figure(key);
    row.before = mean_of(*first);
    row.after = mean_of(*second);
    for (std::size_t turn = 0; turn < verification.drifts.size() && is_duration(key); ++turn) {
      (*second)[turn] /= verification.drifts[turn].ratio;
    }
    row.without_drift = mean_of(*second);
    if (const auto found = advice.simulated_before.find(key);
        found != advice.simulated_before.end()) {
      row.simulated_before = found->second;
    }
    if (promised != advice.promised.end()) {
      row.promised = promised->second;
      row.error = *row.promised / row.without_drift.mean - 1;
      row.is_kept = is_duration(key)
                        ? row.without_drift.mean <= *row.promised * (1 + options.tolerance)
                        : row.without_drift.mean >= *row.promised * (1 - options.tolerance);
    }
    if (key == "max_itl_ms") verification.longest_ms = row.without_drift;
    verification.figures.push_back(row);
  }
}

// ---- settings ----

std::string name_of(const std::string& flag) { return flag.substr(0, flag.find(' ')); }

std::map<std::string, std::string> settings_of(const EngineLog& log) {
  const ServerArguments& server = *log.dialect->server;
  std::map<std::string, std::string> flags;
  for (const std::string& flag : scenario_settings(server, merged_arguments(log, {})).in_force()) {
    flags[name_of(flag)] = flag;
  }
  return flags;
}

std::string value_of(const std::map<std::string, std::string>& flags, const std::string& name) {
  const auto found = flags.find(name);
  if (found == flags.end()) return "(not in the log)";
  const std::string& flag = found->second;
  return flag.size() == name.size() ? "on" : flag.substr(name.size() + 1);
}

// The settings that differ, and whether the server after has the advised ones.
void compare_settings(const EngineLog& before, const EngineLog& after, const VerifyOptions& options,
                      Verification& verification) {
  const auto old = settings_of(before);
  const auto now = settings_of(after);
  std::set<std::string> names;
  for (const auto& [name, flag] : old) names.insert(name);
  for (const auto& [name, flag] : now) names.insert(name);
  std::set<std::string> advised;
  for (const std::string& flag : options.advice.flags) advised.insert(name_of(flag));
  for (const std::string& name : names) {
    const std::string from = value_of(old, name);
    const std::string to = value_of(now, name);
    if (from == to) continue;
    const bool is_unasked = !advised.empty() && !advised.contains(name);
    verification.settings.push_back(name + " " + from + " -> " + to +
                                    (is_unasked ? " (not advised)" : ""));
  }
  for (const std::string& flag : options.advice.flags) {
    const auto found = now.find(name_of(flag));
    if (found == now.end()) {
      verification.remarks.push_back("The log does not say whether " + flag +
                                     " was set, as advised.");
      continue;
    }
    if (found->second == flag) continue;
    const std::string difference =
        printable(after.path) + ": has " + found->second + ", but the advice is " + flag;
    if (!options.allows_differences) {
      throw ConfigError(difference +
                        "; allowed: the log of a server that was started as advised, or "
                        "--allow-differences");
    }
    verification.remarks.push_back(difference + ".");
  }
}

// ---- load ----

struct Load {
  std::int64_t num_prompt_tokens = 0;
  std::int64_t num_output_tokens = 0;
};

Load load_of(const VerifiedSide& side) {
  Load load;
  for (const ObservedRun& run : side.results) {
    for (const ObservedRequest& request : run.requests) {
      load.num_prompt_tokens += request.num_prompt_tokens;
      load.num_output_tokens += request.num_output_tokens;
    }
  }
  if (!side.results.empty()) return load;
  for (const EngineLog& log : side.logs) {
    for (const LogObservation& seen : log.observations) {
      load.num_prompt_tokens += seen.num_prefill_tokens;
      load.num_output_tokens += seen.num_decode_tokens;
    }
  }
  return load;
}

void compare_loads(const VerifiedSide& before, const VerifiedSide& after,
                   Verification& verification) {
  constexpr double kMostDifference = 0.02;  // of all tokens
  const Load first = load_of(before);
  const Load second = load_of(after);
  const auto differ = [](std::int64_t a, std::int64_t b) {
    return std::abs(static_cast<double>(a - b)) > kMostDifference * static_cast<double>(a);
  };
  if (!differ(first.num_prompt_tokens, second.num_prompt_tokens) &&
      !differ(first.num_output_tokens, second.num_output_tokens)) {
    return;
  }
  verification.remarks.push_back(
      "The loads differ: " + count_text(first.num_prompt_tokens, "prompt token") + " and " +
      count_text(first.num_output_tokens, "generated token") + " before, " +
      grouped_text(second.num_prompt_tokens) + " and " + grouped_text(second.num_output_tokens) +
      " after. Their figures are those of other requests.");
}

void describe_files(const VerifiedSide& side, std::vector<std::string>& lines) {
  for (const EngineLog& log : side.logs) {
    lines.push_back(printable(log.path) + ", " + log_text(log));
  }
  for (const ObservedRun& run : side.results) {
    lines.push_back(printable(run.path) + ", " + count_text(run.requests.size(), "request"));
  }
}

}  // namespace

VerifiedSide read_side(const std::string& option, const std::vector<std::string>& paths,
                       const std::optional<IterationRange>& iterations) {
  VerifiedSide side;
  for (const std::string& path : paths) {
    if (is_result(path)) {
      side.results.push_back(read_observed_run(path));
      continue;
    }
    side.logs.push_back(read_engine_log(path));
    if (iterations) keep_iterations(*iterations, side.logs.back());
  }
  if (!side.logs.empty() && !side.results.empty() && side.logs.size() != side.results.size()) {
    throw UsageError(
        fmt::format("{}: got {} and {} results; allowed: logs alone, results alone, or one result "
                    "for each log",
                    option, count_text(side.logs.size(), "log"), side.results.size()));
  }
  return side;
}

Verification verify(const VerifiedSide& before, const VerifiedSide& after,
                    const VerifyOptions& options) {
  METRONOME_CHECK(before.num_turns() == after.num_turns(), "turns are pairs");
  Verification verification;
  verification.tolerance = options.tolerance;
  verification.limit_ms = options.advice.limit_ms;
  describe_files(before, verification.before);
  describe_files(after, verification.after);
  std::vector<Values> first, second;
  for (std::size_t turn = 0; turn < before.num_turns(); ++turn) {
    first.push_back(values_of(before, turn));
    second.push_back(values_of(after, turn));
    if (turn >= before.logs.size() || turn >= after.logs.size()) continue;
    verification.drifts.push_back(step_drift(before.logs[turn], after.logs[turn]));
    if (turn == 0) compare_settings(before.logs[0], after.logs[0], options, verification);
  }
  const bool has_drift =
      std::any_of(verification.drifts.begin(), verification.drifts.end(),
                  [](const StepDrift& drift) { return drift.num_compositions > 0; });
  if (!has_drift) {
    verification.drifts.clear();
    verification.remarks.emplace_back(
        "No drift is taken out: it needs logs of both servers with iterations of equal work.");
  }
  compare_loads(before, after, verification);
  add_figures(first, second, options, verification);
  if (verification.figures.empty()) {
    throw ConfigError(verification.before.front() +
                      ": has no figures that both sides have; allowed: logs with the time of each "
                      "step, or results of clients");
  }
  return verification;
}

bool Verification::has_promises() const {
  return limit_ms.has_value() || !not_measured.empty() ||
         std::any_of(figures.begin(), figures.end(),
                     [](const VerifiedFigure& row) { return row.promised.has_value(); });
}

bool Verification::came_true() const {
  const bool has_measured =
      (limit_ms && longest_ms) ||
      std::any_of(figures.begin(), figures.end(),
                  [](const VerifiedFigure& row) { return row.promised.has_value(); });
  return has_measured && keeps_limit() &&
         std::all_of(figures.begin(), figures.end(),
                     [](const VerifiedFigure& row) { return row.is_kept; });
}

}  // namespace metronome
