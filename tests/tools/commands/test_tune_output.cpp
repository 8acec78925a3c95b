// SPDX-License-Identifier: Apache-2.0
// The tables of `metronome tune`.
#include <sstream>
#include <string>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"
#include "tools/commands/tune_output.h"
#include "tools/commands/tune_report.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

TuneTrial trial_at(double load) {
  TuneTrial trial;
  trial.load = load;
  trial.good.assign(100, 1);
  trial.attainment = 1;
  trial.goodput = load;
  trial.num_in_system = 5;
  trial.summary.output_throughput = 10 * load;
  trial.summary.ttft.p99_ms = 40;
  trial.summary.itl.p99_ms = 20;
  trial.summary.tpot.mean_ms = 10;
  return trial;
}

TuneFinding finding_of(std::size_t setting, double capacity) {
  TuneFinding finding;
  finding.setting = setting;
  finding.is_finalist = true;
  finding.trials = {trial_at(capacity)};
  finding.capacity = capacity;
  return finding;
}

// Two settings of one scenario.
struct Pair {
  Scenario scenario;
  TunedSettings settings = {.names = {"small", "large"},
                            .scenarios = {&scenario, &scenario},
                            .bounds = {{}, {}},
                            .given_load = 8,
                            .attainment = 0.99};
};

template <typename Result>
std::string table(void (*print)(std::ostream&, const Result&, const TunedSettings&),
                  const Result& result) {
  const Pair pair;
  std::ostringstream out;
  print(out, result, pair.settings);
  return out.str();
}

// A search of one setting with one trial, as far as a report needs it.
Json tuned_json() {
  return Json::parse(R"({"scenario": "case.yaml", "slo": {"ttft_ms": 500.0, "itl_ms": null},
    "settings": [{"setting": "base", "is_cut_short": false,
      "trials": [{"request_rate": 4.5, "num_simulated": 60, "p99_itl_ms": null}],
      "config": {"seed": 7, "model": "llama-3.2-1b", "hardware": "h200",
        "scheduler": {"policy": "token_budget"}, "cost_model": {"tensor_parallel_size": 2}}}]})");
}

}  // namespace

TEST_CASE("the search that a report reads is checked, and errors name the file and the key",
          "[tune]") {
  const ScratchFolder scratch;
  const auto read = [&scratch](const Json& json) {
    scratch.write("tune.json", json.dump());
    return read_tune_report(scratch.path());
  };
  const TuneReport report = read(tuned_json());
  REQUIRE(report.runs.size() == 1);
  CHECK(report.runs[0].name == "base at 4.50/s");
  const RunInfo& info = report.runs[0].result.info;
  CHECK(info.label == "base");
  CHECK(info.slo.ttft_ms == 500);
  CHECK_FALSE(info.slo.itl_ms);
  CHECK(info.tensor_parallel_size == 2);

  const std::string file = scratch.path() + "/tune.json: ";
  const std::string config = file + "settings[0]: config: ";
  const auto error_with = [&](const auto& damage) {
    Json json = tuned_json();
    damage(json, json["settings"][0]);
    return error_of([&] { read(json); });
  };
  using J = Json;
  CHECK(error_with([](J&, J& setting) { setting["config"] = J::object(); }) ==
        config + "model: is missing; allowed: a complete file");
  CHECK(error_with([](J&, J& setting) { setting["config"]["scheduler"] = 3; }) ==
        config + "scheduler: policy: is missing; allowed: a complete file");
  CHECK(error_with([](J&, J& setting) { setting["config"]["model"] = 3; }) ==
        config + "model: is not a string; allowed: a string");
  CHECK(error_with([](J&, J& setting) { setting["config"]["seed"] = "x"; }) ==
        config + "seed: is not a whole number; allowed: a whole number");
  CHECK(error_with([](J& json, J&) { json["slo"] = J::array(); }) ==
        file + "slo: is not an object; allowed: an object");
  CHECK(error_with([](J& json, J&) { json["slo"]["itl_ms"] = "x"; }) ==
        file + "slo: itl_ms: is not a number; allowed: a number");
  CHECK(error_with([](J&, J& setting) { setting["trials"][0]["p99_itl_ms"] = "x"; }) ==
        file + "settings[0]: trials[0]: p99_itl_ms: is not a number; allowed: a number");

  // A limit beyond all whole numbers stays as it is.
  Json json = tuned_json();
  json["slo"]["itl_ms"] = 1e300;
  CHECK(read(json).runs[0].result.info.slo.itl_ms == 1e300);
}

TEST_CASE("when the search was cut short, the best is the best so far", "[tune]") {
  TuneResult result;
  result.findings = {finding_of(0, 12), finding_of(1, 9)};
  CHECK(contains(table(print_capacities, result), "best, Pareto front"));
  CHECK(!contains(table(print_capacities, result), "so far"));
  for (TuneFinding& finding : result.findings) finding.is_cut_short = true;
  CHECK(contains(table(print_capacities, result), "best so far, Pareto front"));
  CHECK(contains(table(print_capacities, result), "not finished"));
  result.findings[0].trials.clear();
  result.findings[0].capacity = 0;
  CHECK(!contains(table(print_capacities, result), "so far"));
}

TEST_CASE("figures of a shorter trial say of how many requests", "[tune]") {
  Pair pair;
  TuneLoadResult at_load;
  at_load.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                      {.setting = 1, .trial = trial_at(8), .is_within = true, .is_dropped = true}};
  at_load.findings[0].trial.num_requests = 300;
  at_load.findings[1].trial.num_requests = 100;
  at_load.findings[1].trial.num_simulated = 1200;
  CHECK(contains(table(print_at_load, at_load), "dropped: worse, of 1,200 requests"));
  const std::size_t most = most_requests(at_load.findings);
  CHECK(to_json(at_load.findings[1], pair.settings, most)["trial"]["is_short"] == true);
  CHECK(to_json(at_load.findings[0], pair.settings, most)["trial"]["is_short"] == false);
  at_load.findings[1].trial.num_requests = 300;
  CHECK(!contains(table(print_at_load, at_load), "of 1,200"));

  TuneResult found;
  found.findings = {finding_of(0, 12), finding_of(1, 9)};
  found.findings[0].trials[0].num_requests = 300;
  found.findings[1].trials[0].num_requests = 100;
  found.findings[1].trials[0].num_simulated = 1;
  found.findings[1].is_finalist = false;
  CHECK(contains(table(print_capacities, found), "dropped: lower load, of 1 request"));

  const ScratchFolder scratch;
  Json json = tuned_json();
  json["settings"][0]["trials"][0]["is_short"] = true;
  json["refused_points"] = Json::array({"--over x: at the point x=0: x: 0 is out of range"});
  scratch.write("tune.json", json.dump());
  const TuneReport report = read_tune_report(scratch.path());
  CHECK(report.runs[0].name == "base at 4.50/s, of 60 requests");
  CHECK(report.refused.size() == 1);
}

TEST_CASE("tables have columns for drafts, prices and numbers of GPUs where settings have them",
          "[tune]") {
  Pair pair;
  TuneResult found;
  found.findings = {finding_of(0, 12), finding_of(1, 9)};
  TuneLoadResult at_load;
  at_load.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                      {.setting = 1, .trial = trial_at(8), .is_within = true}};
  const auto tables = [&] {
    std::ostringstream out;
    print_capacities(out, found, pair.settings);
    print_at_load(out, at_load, pair.settings);
    return out.str();
  };
  for (const char* column : {"TPOT mean ms", "per M out", "per hour", "GPUs"}) {
    INFO(column);
    CHECK(!contains(tables(), column));
  }
  Scenario drafted;
  drafted.speculative.method = SpeculativeMethod::Eagle;
  drafted.speculative.num_speculative_tokens = 3;
  drafted.cost_model.tensor_parallel_size = 2;
  pair.settings.scenarios[1] = &drafted;
  CHECK(contains(tables(), "TPOT mean ms"));
  CHECK(contains(tables(), "GPUs"));
  CHECK(!contains(tables(), "per hour"));
  pair.scenario.price_per_gpu_hour = drafted.price_per_gpu_hour = 1.5;
  CHECK(contains(tables(), "per hour"));
  CHECK(contains(tables(), " 3.00 "));  // two GPUs
  CHECK(contains(tables(), "per M out"));
}

TEST_CASE("at one load, too, the best may be the best so far", "[tune]") {
  TuneLoadResult result;
  result.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                     {.setting = 1, .trial = trial_at(8), .is_within = true}};
  CHECK(contains(table(print_at_load, result), "best"));
  CHECK(!contains(table(print_at_load, result), "so far"));
  result.findings[1].is_cut_short = true;
  CHECK(contains(table(print_at_load, result), "best so far"));
  CHECK(contains(table(print_at_load, result), "not finished"));
}

TEST_CASE("the figure that orders settings at one load is said", "[tune]") {
  TuneLoadResult result;
  result.findings = {{.setting = 0, .trial = trial_at(8), .is_within = true},
                     {.setting = 1, .trial = trial_at(8), .is_within = true}};
  const auto printed = [&] { return table(print_at_load, result); };
  const std::string hidden = "Ordered by the longest gap: ";
  CHECK(printed().starts_with("best        the lowest p99 ITL within the SLO\n\n"));
  CHECK(!contains(printed(), hidden));
  result.by = SteadyBy::Longest;
  CHECK(printed().starts_with(
      "best        the shortest longest gap within the SLO, as the p99 ITL hides stalls\n\n"));
  CHECK(contains(printed(), hidden));
  // It orders only by p99 ITL.
  result.goal = TuneGoal::Cost;
  CHECK(printed().starts_with("best        the lowest cost of an hour within the SLO\n\n"));
  CHECK(!contains(printed(), hidden));
  // One setting is not ordered.
  result.goal = TuneGoal::P99Itl;
  result.findings.pop_back();
  CHECK(printed().starts_with("setting"));
  CHECK(!contains(printed(), hidden));
}

}  // namespace TEST_FILE
