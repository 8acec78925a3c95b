// SPDX-License-Identifier: Apache-2.0
// The question of `metronome tune`: its command line, the settings that it compares, and the
// requests.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/scenario/scenario.h"
#include "study/tune/tune_run.h"
#include "tools/commands/cli.h"
#include "tools/commands/scenario_choice.h"
#include "tools/commands/tune_candidates.h"
#include "tools/commands/tune_output.h"

namespace metronome {

// Names of --minimise, as TuneGoal has them.
constexpr std::string_view kTuneGoals[] = {"p99_itl", "ttft", "tpot", "cost", "gpus"};
// Of settings at their own highest loads, without --load.
constexpr std::string_view kTokenCost = "token_cost";

struct TuneCommandOptions {
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

struct TuneQuestion {
  TuneCommandOptions options;
  ScenarioFile file;
  std::vector<Scenario> chosen;  // variants of the file
  TuneCandidates candidates;
  std::unique_ptr<const TuneWorkloads> workloads;
};

// nullopt if help was requested and printed. Throws UsageError for wrong options, and ConfigError
// for scenarios that cannot be simulated.
std::optional<TuneQuestion> read_tune_question(const Arguments& arguments);

// The cost of an hour of each setting: its price, or without prices and for the goal gpus its GPUs.
std::vector<double> hourly_costs(const TuneCandidates& candidates, const TunedSettings& settings,
                                 const TuneCommandOptions& options);

}  // namespace metronome
