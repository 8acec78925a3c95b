// SPDX-License-Identifier: Apache-2.0
// The choice of the best setting at a load, on trials that are given by a formula.
#include <cstddef>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "study/tune/tune_load.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// Every request of a setting is good, or none is. Its cost is that of TuneGoal::Cost.
struct Machine {
  std::vector<bool> is_good;
  std::vector<double> itl_ms;
  std::vector<double> tpot_ms = {};

  TuneTrial operator()(std::size_t setting, double load, std::size_t num_requests) const {
    TuneTrial trial;
    trial.load = load;
    trial.good.assign(num_requests, is_good[setting] ? 1 : 0);
    trial.attainment = is_good[setting] ? 1 : 0;
    trial.num_simulated = num_requests;
    trial.summary.itl.p99_ms = itl_ms[setting];
    trial.run_p99_itl_ms = {itl_ms[setting], itl_ms[setting] + 0.1, itl_ms[setting] + 0.2};
    if (tpot_ms.empty()) return trial;
    trial.summary.tpot.mean_ms = tpot_ms[setting];
    trial.run_mean_tpot_ms = {tpot_ms[setting], tpot_ms[setting] + 0.1, tpot_ms[setting] + 0.2};
    return trial;
  }
};

TuneOptions options_for(std::size_t num_requests) {
  TuneOptions options;
  options.num_requests = num_requests;
  options.num_jobs = 1;
  return options;
}

}  // namespace

TEST_CASE("a race at a load drops those outside the SLO, and the steadiest wins", "[tune]") {
  const Machine machine{{true, false, true, true}, {30, 10, 20, 40}};
  const TuneLoadResult result =
      tune_at_load(4, 5, TuneGoal::P99Itl, {}, options_for(3000), machine);
  REQUIRE(result.findings.size() == 4);
  CHECK(result.findings[0].setting == 2);
  CHECK(result.findings[0].is_equal_to_best);
  CHECK(result.findings[3].setting == 1);
  CHECK_FALSE(result.findings[3].is_within);
  CHECK_FALSE(result.is_cut_short);
  for (const TuneLoadFinding& finding : result.findings) CHECK_FALSE(finding.is_cut_short);
}

TEST_CASE("by mean TPOT, a setting with longer gaps of several tokens wins", "[tune]") {
  const Machine machine{{true, true, true}, {10, 14, 12}, {10, 5, 8}};
  TuneOptions options = options_for(3000);
  options.has_drafts = true;
  const TuneLoadResult result = tune_at_load(3, 5, TuneGoal::MeanTpot, {}, options, machine);
  CHECK(result.findings[0].setting == 1);
  CHECK(result.findings[1].setting == 2);
  CHECK_FALSE(result.findings[1].is_equal_to_best);
  CHECK(tune_at_load(3, 5, TuneGoal::P99Itl, {}, options, machine).findings[0].setting == 0);
  // Equal costs: the lower mean TPOT, as a setting has drafts; else the lower p99 ITL.
  const std::vector<double> costs = {2, 2, 2};
  CHECK(tune_at_load(3, 5, TuneGoal::Cost, costs, options, machine).findings[0].setting == 1);
  options.has_drafts = false;
  CHECK(tune_at_load(3, 5, TuneGoal::Cost, costs, options, machine).findings[0].setting == 0);
}

namespace {

// Three settings whose runs scatter so much that no test can tell them apart.
struct Scattered {
  std::vector<double> itl_ms, ttft_ms;
  std::vector<double> longest_ms = {};

  TuneTrial operator()(std::size_t setting, double load, std::size_t num_requests) const {
    TuneTrial trial;
    trial.load = load;
    trial.good.assign(num_requests, 1);
    trial.attainment = 1;
    trial.num_simulated = num_requests;
    trial.summary.ttft.p99_ms = ttft_ms[setting];
    trial.summary.itl.p99_ms = itl_ms[setting];
    const double wide = setting % 2 == 0 ? 90 : -90;
    trial.run_p99_itl_ms = {itl_ms[setting] - wide, itl_ms[setting], itl_ms[setting] + wide};
    trial.run_p99_ttft_ms = trial.run_mean_tpot_ms = trial.run_p99_itl_ms;
    if (longest_ms.empty()) return trial;
    trial.summary.itl = {.count = 1000,
                         .mean_ms = 40,
                         .p50_ms = 20,
                         .p90_ms = 20,
                         .p95_ms = 20,
                         .p99_ms = itl_ms[setting],
                         .max_ms = longest_ms[setting]};
    trial.run_max_itl_ms = {longest_ms[setting], longest_ms[setting] + 1, longest_ms[setting] + 2};
    return trial;
  }
};

}  // namespace

TEST_CASE("a second figure decides only between settings whose first is the same", "[tune]") {
  const Scattered machine{{96.9, 54.7, 55}, {100, 200, 150}};
  const TuneLoadResult result =
      tune_at_load(3, 5, TuneGoal::P99Itl, {}, options_for(3000), machine);
  // 55 is 54.7 with earlier first tokens.
  CHECK(result.findings[0].setting == 2);
  CHECK(result.findings[0].is_equal_to_best);
  CHECK(result.findings[1].setting == 1);
  CHECK(result.findings[1].is_equal_to_best);
  CHECK(result.findings[2].setting == 0);
  CHECK(result.findings[2].may_equal_best);
  CHECK_FALSE(result.findings[2].is_equal_to_best);
}

TEST_CASE("at a load, too, the p99 does not win by what it does not see", "[tune]") {
  // Fewer than 1 % of the gaps of the first hold most of its stalled time.
  const Scattered machine{{20, 800, 600}, {1, 1, 1}, {6000, 850, 2000}};
  const TuneLoadResult result =
      tune_at_load(3, 5, TuneGoal::P99Itl, {}, options_for(3000), machine);
  CHECK(result.by == SteadyBy::Longest);
  CHECK(result.findings[0].setting == 1);
  CHECK(result.findings[1].setting == 2);
  CHECK(result.findings[2].setting == 0);
}

TEST_CASE("the cheapest setting within the SLO is found, and dearer ones are not tried", "[tune]") {
  // Of the two that cost 3, the steadier one.
  const Machine machine{{false, true, true, false, true}, {10, 40, 30, 10, 5}};
  const std::vector<double> costs = {2, 3, 3, 1, 4};
  for (const TuneGoal goal : {TuneGoal::Cost, TuneGoal::Gpus}) {
    std::vector<int> num_trials(5);
    const auto counted = [&](std::size_t setting, double load, std::size_t n) {
      ++num_trials[setting];
      return machine(setting, load, n);
    };
    const TuneLoadResult result = tune_at_load(5, 5, goal, costs, options_for(3000), counted);
    CHECK(result.findings[0].setting == 2);
    CHECK(result.findings[1].setting == 1);
    // A short trial is enough to be outside for certain.
    CHECK(num_trials == std::vector<int>{1, 2, 2, 1, 0});
    for (const TuneLoadFinding& finding : result.findings) {
      CHECK(finding.is_pruned == (finding.setting == 4));
    }
  }
}

TEST_CASE("a race at a load that is interrupted says what is not finished", "[tune]") {
  const Machine machine{{true, true, true}, {30, 20, 40}};
  const std::vector<double> costs = {1, 1, 1};  // nobody is dropped
  const std::size_t num_all =
      tune_at_load(3, 5, TuneGoal::Cost, costs, options_for(3000), machine).num_trials;
  REQUIRE(num_all == 6);
  for (std::size_t most = 0; most < num_all; ++most) {
    CAPTURE(most);
    std::size_t num_begun = 0;
    const auto interrupted = [&](std::size_t setting, double load, std::size_t n) {
      if (num_begun++ == most) throw Interrupted();
      return machine(setting, load, n);
    };
    const TuneLoadResult result =
        tune_at_load(3, 5, TuneGoal::Cost, costs, options_for(3000), interrupted);
    CHECK(num_begun == most + 1);  // none after it
    CHECK(result.num_trials == most);
    CHECK(result.is_cut_short);
    std::size_t num_finished = 0;
    for (const TuneLoadFinding& finding : result.findings) {
      CHECK(finding.is_cut_short == (finding.trial.num_requests < 3000));
      CHECK_FALSE((finding.is_cut_short && finding.is_equal_to_best));
      num_finished += finding.is_cut_short ? 0 : 1;
    }
    CHECK(num_finished == (most < 3 ? 0 : most - 3));
    CHECK(result.findings[0].is_cut_short == (num_finished == 0));
  }
}

TEST_CASE("the requests that a race at a load expects are right within a factor of two", "[tune]") {
  for (std::size_t num_good = 0; num_good <= 6; ++num_good) {
    CAPTURE(num_good);
    Machine machine;
    for (std::size_t i = 0; i < 6; ++i) {
      machine.is_good.push_back(i < num_good);
      machine.itl_ms.push_back(10);
    }
    TuneOptions options = options_for(3000);
    std::vector<std::pair<double, double>> said;  // done, left
    options.report = [&said](const TuneProgress& progress) {
      said.emplace_back(static_cast<double>(progress.num_simulated), progress.num_left);
    };
    const TuneLoadResult result = tune_at_load(6, 5, TuneGoal::P99Itl, {}, options, machine);
    const auto all = static_cast<double>(result.num_simulated);
    REQUIRE(said.size() == result.num_trials);
    CHECK(said.back() == std::pair(all, 0.0));
    for (const auto& [done, left] : said) {
      CAPTURE(done, left, all);
      CHECK(done + left < 2.2 * all);  // one setting of six is left
      CHECK(done + left > all / 2);
    }
  }
}

}  // namespace TEST_FILE
