// SPDX-License-Identifier: Apache-2.0
// The search for the best setting, on attainments that are given by a formula.
#include <algorithm>
#include <cmath>
#include <mutex>
#include <set>
#include <stdexcept>

#include "core/base/command_errors.h"
#include "core/base/rng.h"
#include "study/tune/tune_search.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

// Requests that are good below a setting's capacity, all but some with a limit of their own that
// lies a little lower: request i is good up to capacity * (1 - spread * u_i).
struct Synthetic {
  std::vector<double> capacities;
  double spread = 0;
  std::uint64_t seed = 1;
  std::vector<double> noise;        // of each setting: how far its limits scatter on their own
  std::vector<double> itl_ms = {};  // of each setting: its p99 ITL

  TuneTrial operator()(std::size_t setting, double load, std::size_t num_requests) const {
    TuneTrial trial;
    trial.load = load;
    Rng rng(seed, "requests");
    Rng own(seed + setting + 1, "own");
    std::int64_t num_good = 0;
    for (std::size_t i = 0; i < num_requests; ++i) {
      double limit = capacities[setting] * (1 - spread * rng.uniform());
      if (!noise.empty()) limit *= 1 - noise[setting] * own.uniform();
      trial.good.push_back(load <= limit ? 1 : 0);
      num_good += trial.good.back();
    }
    trial.attainment = static_cast<double>(num_good) / static_cast<double>(num_requests);
    trial.goodput = load * trial.attainment;
    trial.num_simulated = num_requests;
    trial.summary.itl.p99_ms = itl_ms.empty() ? 10 : itl_ms[setting];
    return trial;
  }
};

TuneOptions options_for(std::size_t num_requests, int num_jobs = 2) {
  TuneOptions options;
  options.num_requests = num_requests;
  options.num_jobs = num_jobs;
  options.first_load = 3;
  return options;
}

}  // namespace

TEST_CASE("tune finds the setting of the highest capacity, and the capacity", "[tune]") {
  Synthetic model;
  const std::uint64_t seed = 77;
  INFO("seed " << seed);
  Rng rng(seed, "capacities");
  for (int i = 0; i < 40; ++i) model.capacities.push_back(std::exp(6 * rng.uniform() - 2));
  const TuneResult result = tune(40, options_for(3200), model);
  const std::vector<TuneFinding>& found = result.findings;
  REQUIRE(found.size() == 40);
  const auto best = std::max_element(model.capacities.begin(), model.capacities.end());
  CHECK(found[0].setting == static_cast<std::size_t>(best - model.capacities.begin()));
  std::set<std::size_t> settings;
  for (const TuneFinding& finding : found) {
    settings.insert(finding.setting);
    const double exact = model.capacities[finding.setting];
    const double tolerance = finding.is_finalist ? 0.01 : 0.05;
    CHECK((finding.num_requests == 3200 || !finding.is_finalist));
    CHECK_FALSE(finding.is_cut_short);
    CHECK(finding.capacity <= exact);
    CHECK(finding.capacity * (1 + tolerance) >= exact);
    REQUIRE(finding.best_trial() != nullptr);
    CHECK(finding.best_trial()->load == finding.capacity);
    REQUIRE(finding.failing_trial() != nullptr);
    CHECK(finding.failing_trial()->load > exact);
    CHECK(std::is_sorted(finding.trials.begin(), finding.trials.end(),
                         [](const auto& a, const auto& b) { return a.load < b.load; }));
  }
  CHECK(settings.size() == 40);
  CHECK(std::count_if(found.begin(), found.end(), [](const auto& f) { return f.is_finalist; }) <=
        4);
  // Less than a search of each setting among all requests would take: ten steps to bracket it, and
  // as many to find it to 1 %.
  CHECK(result.num_simulated < std::size_t{40} * 20 * 3200 / 6);
}

TEST_CASE("a search begins at what a setting can carry, where the first load is more", "[tune]") {
  Synthetic model;
  model.capacities = {2.6, 11.3, 1.4};
  TuneOptions options = options_for(3200);
  options.first_load = 900;
  const TuneResult blind = tune(3, options, model);
  // Half of the truth, and three times it.
  options.expected_capacities = {1.3, 34, 0.7};
  const TuneResult result = tune(3, options, model);
  CHECK(result.num_simulated < blind.num_simulated);
  CHECK(result.findings[0].setting == 1);
  for (const TuneFinding& finding : result.findings) {
    const double exact = model.capacities[finding.setting];
    CHECK(finding.capacity <= exact);
    CHECK(finding.capacity * 1.05 >= exact);
  }
  CHECK(blind.findings[0].setting == 1);
  // They do not move a search that begins lower.
  options.first_load = 0.3;
  CHECK(tune(3, options, model).findings[0].setting == 1);
  const TuneOptions low = options;
  options.expected_capacities.clear();
  CHECK(tune(3, low, model).num_simulated == tune(3, options, model).num_simulated);
}

TEST_CASE("tune's result does not depend on the number of jobs", "[tune]") {
  Synthetic model;
  for (int i = 0; i < 20; ++i) model.capacities.push_back(5 + (i * 7 % 20) * 0.5);
  model.spread = 0.3;
  const TuneResult single = tune(20, options_for(1000, 1), model);
  const TuneResult shared = tune(20, options_for(1000, 4), model);
  CHECK(single.num_trials == shared.num_trials);
  CHECK(single.num_simulated == shared.num_simulated);
  const std::vector<TuneFinding>& one = single.findings;
  const std::vector<TuneFinding>& four = shared.findings;
  REQUIRE(one.size() == four.size());
  for (std::size_t i = 0; i < one.size(); ++i) {
    CHECK(one[i].setting == four[i].setting);
    CHECK(one[i].capacity == four[i].capacity);
    CHECK(one[i].low == four[i].low);
    CHECK(one[i].high == four[i].high);
    CHECK(one[i].is_equal_to_best == four[i].is_equal_to_best);
  }
}

TEST_CASE("a setting that meets the SLO at no load, and one that meets it at any", "[tune]") {
  Synthetic model;
  model.capacities = {1e-9, 1e12, 2};
  const std::vector<TuneFinding> found = tune(3, options_for(100), model).findings;
  CHECK(found[0].setting == 1);
  CHECK(found[0].is_unbounded);
  CHECK(found[1].setting == 2);
  CHECK_FALSE(found[1].is_unbounded);
  CHECK(found[2].setting == 0);
  CHECK(found[2].capacity == 0);
  CHECK(found[2].best_trial() == nullptr);
}

namespace {

// Requests in clusters that are good or bad together: an engine that stalls now and then. In a run
// of `num_requests` a cluster of `cluster_size` neighbours has one limit for all of them, uniform
// between 0 and `capacity`; so an attainment of 70 % has a capacity of 0.3 * capacity.
struct Clustered {
  std::vector<double> capacities = {10};
  std::size_t cluster_size = 60;
  bool can_be_longer = true;
  std::uint64_t seed = 1;

  TuneTrial operator()(std::size_t setting, double load, std::size_t num_requests) const {
    TuneTrial trial;
    trial.load = load;
    trial.num_runs = 3;
    trial.num_in_system = static_cast<double>(cluster_size) / 4;
    trial.can_be_longer = can_be_longer;
    if (!can_be_longer) num_requests = std::min<std::size_t>(num_requests, 8000);
    Rng rng(seed, "clusters");
    std::int64_t num_good = 0;
    double limit = 0;
    for (std::size_t i = 0; i < num_requests; ++i) {
      if (i % cluster_size == 0) limit = capacities[setting] * rng.uniform();
      trial.good.push_back(load <= limit ? 1 : 0);
      num_good += trial.good.back();
    }
    trial.attainment = static_cast<double>(num_good) / static_cast<double>(num_requests);
    trial.num_simulated = num_requests;
    return trial;
  }
};

// How many of `num_rounds` bands hold the exact capacity of an attainment.
int num_covered(Clustered model, double attainment, int num_rounds) {
  int covered = 0;
  const double exact = (1 - attainment) * model.capacities[0];
  for (int round = 0; round < num_rounds; ++round) {
    model.seed = 1000 + static_cast<std::uint64_t>(round);
    CAPTURE(model.seed);
    TuneOptions options = options_for(1000);
    options.attainment = attainment;
    const TuneFinding found = tune(1, options, model).findings.front();
    CHECK(found.low <= found.capacity);
    CHECK(found.high >= found.capacity);
    CHECK(found.trials.front().load < found.capacity);
    CHECK(found.trials.back().load > found.capacity);
    if (model.can_be_longer) CHECK(found.low > 0);
    covered += found.low <= exact && exact <= found.high ? 1 : 0;
  }
  return covered;
}

}  // namespace

TEST_CASE("the band holds the capacity of all requests, though requests fail together", "[tune]") {
  constexpr int kRounds = 40;
  // 90 % of 40, and fewer than 31 by chance once in two hundred times.
  for (const std::size_t cluster_size : {std::size_t{1}, std::size_t{30}}) {
    for (const double attainment : {0.7, 0.9}) {
      CAPTURE(cluster_size, attainment);
      Clustered model;
      model.cluster_size = cluster_size;
      CHECK(num_covered(model, attainment, kRounds) >= 31);
    }
  }
  Clustered given;  // as a trace is
  given.can_be_longer = false;
  CHECK(num_covered(given, 0.7, kRounds) >= 31);
}

TEST_CASE("the more independent requests, the narrower the band", "[tune]") {
  const auto width = [](std::size_t num_requests, std::size_t cluster_size) {
    Clustered model;
    model.cluster_size = cluster_size;
    model.can_be_longer = false;
    TuneOptions options = options_for(num_requests);
    options.attainment = 0.7;
    double sum = 0;
    for (model.seed = 1; model.seed <= 10; ++model.seed) {
      const TuneFinding found = tune(1, options, model).findings.front();
      sum += (found.high - found.low) / 3 / 10;  // of the exact capacity
    }
    return sum;
  };
  const double few = width(2000, 1);  // 1.645 errors on either side: 2 * 1.645 * 0.0102 / 0.3
  CHECK(few > 0.08);
  CHECK(few < 0.16);
  CHECK(width(8000, 1) < 0.7 * few);
  CHECK(width(2000, 20) > 2 * few);
}

TEST_CASE("trials get longer while the band is wide", "[tune]") {
  Clustered model;
  model.cluster_size = 30;
  TuneOptions options = options_for(500);
  options.attainment = 0.9;
  const TuneFinding found = tune(1, options, model).findings.front();
  CHECK(found.num_requests > 5000);
  CHECK(found.high - found.low < 0.31 * found.capacity);
  model.can_be_longer = false;
  const TuneFinding given = tune(1, options, model).findings.front();
  CHECK(given.num_requests == 500);
  CHECK(given.low > 0);
  CHECK(given.high - given.low > 0.4 * given.capacity);
}

TEST_CASE("capacities far apart are never called equal, though bands are wide", "[tune]") {
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    Clustered model;
    model.capacities = {10, 6, 10.01};
    model.seed = seed;
    CAPTURE(seed);
    model.can_be_longer = seed % 2 == 0;
    if (!model.can_be_longer) model.cluster_size = 20;
    TuneOptions options = options_for(1500);
    options.attainment = 0.8;
    const std::vector<TuneFinding> found = tune(3, options, model).findings;
    CHECK(found[0].is_equal_to_best);
    CHECK(found[1].is_equal_to_best);
    CHECK(found[2].setting == 1);
    CHECK_FALSE(found[2].is_equal_to_best);
  }
}

TEST_CASE("settings that cannot be told apart are said to be equal", "[tune]") {
  Synthetic model;
  model.capacities = {10, 10.02, 7};
  model.spread = 0.5;
  model.noise = {0.2, 0.2, 0.2};
  TuneOptions options = options_for(1500);
  options.attainment = 0.9;
  const std::vector<TuneFinding> found = tune(3, options, model).findings;
  CHECK(found[0].is_equal_to_best);
  CHECK(found[1].is_equal_to_best);
  CHECK(found[2].setting == 2);
  CHECK_FALSE(found[2].is_equal_to_best);
}

TEST_CASE("the front keeps what no other beats", "[tune]") {
  const auto finding = [](double goodput, double itl_ms, double tpot_ms = 0) {
    TuneFinding f;
    f.is_finalist = true;
    f.capacity = goodput;
    TuneTrial trial;
    trial.load = goodput;
    trial.goodput = goodput;
    trial.summary.itl.p99_ms = itl_ms;
    trial.summary.tpot.mean_ms = tpot_ms;
    f.trials = {trial};
    return f;
  };
  std::vector<TuneFinding> findings = {finding(10, 50), finding(9, 20), finding(8, 30),
                                       finding(5, 10), finding(5, 10)};
  findings.emplace_back();  // one that meets the SLO at no load
  CHECK(pareto_front(findings, false) == std::vector<std::size_t>{0, 1, 3, 4});
  // With drafts by mean TPOT.
  findings = {finding(10, 20, 8), finding(10, 30, 5), finding(9, 10, 6)};
  CHECK(pareto_front(findings, true) == std::vector<std::size_t>{1});
}

TEST_CASE("what a trial throws ends the search", "[tune]") {
  Synthetic model;
  model.capacities = {1, 2, 3};
  const auto fails = [&](std::size_t setting, double load, std::size_t n) {
    if (setting == 1) throw std::runtime_error("broken");
    return model(setting, load, n);
  };
  CHECK_THROWS_WITH(tune(3, options_for(100), fails), "broken");
}

TEST_CASE("a search that ends after it has measured all finalists keeps what it measured",
          "[tune]") {
  Synthetic model;
  model.capacities = {10, 9.7, 10};
  model.spread = 0.5;
  TuneOptions options = options_for(600, 1);
  options.attainment = 0.9;
  options.expected_capacities = {40, 6, 0.7};
  const std::size_t num_all = tune(3, options, model).num_trials;
  std::size_t num_measured = 0;
  for (std::size_t most = 0; most < num_all; ++most) {
    CAPTURE(most);
    std::size_t num_begun = 0;
    options.is_over = [&] { return num_begun++ == most; };
    const std::vector<TuneFinding> found = tune(3, options, model).findings;
    const bool is_cut_short =
        std::any_of(found.begin(), found.end(), [](const auto& one) { return one.is_cut_short; });
    if (!is_cut_short) ++num_measured;
    CHECK((is_cut_short || found[0].is_equal_to_best));
    CHECK((is_cut_short == (num_measured == 0)));
    for (const TuneFinding& finding : found) {
      if (is_cut_short || !finding.is_finalist) continue;
      CHECK(finding.low <= finding.capacity);
      CHECK(finding.high >= finding.capacity);
    }
  }
  // The last trials are those that twins share.
  CHECK(num_measured > 0);
}

TEST_CASE("settings that differ are not tried at each other's loads", "[tune]") {
  // Each finalist has loads of its own, and other requests are good at each of them.
  const auto trials_of_one = [](std::size_t num_settings) {
    Synthetic model;
    model.spread = 0.5;
    for (std::size_t i = 0; i < num_settings; ++i) {
      model.capacities.push_back(10 + 0.001 * static_cast<double>(i));
      model.noise.push_back(0.3);
    }
    TuneOptions options = options_for(600);
    options.attainment = 0.9;
    const TuneResult result = tune(num_settings, options, model);
    const auto num_finalists =
        std::count_if(result.findings.begin(), result.findings.end(),
                      [](const TuneFinding& finding) { return finding.is_finalist; });
    CHECK(num_finalists > static_cast<std::ptrdiff_t>(num_settings) / 2);
    return static_cast<double>(result.num_trials) / static_cast<double>(num_settings);
  };
  const double of_few = trials_of_one(4), of_many = trials_of_one(32);
  CAPTURE(of_few, of_many);
  CHECK(of_many < 1.2 * of_few);
}

TEST_CASE("a trial that is interrupted ends the search with what it has found", "[tune]") {
  Synthetic model;
  model.capacities = {8, 30, 10};
  const std::size_t num_all = tune(3, options_for(3000), model).num_trials;
  for (std::size_t most = 0; most < num_all; ++most) {
    CAPTURE(most);
    std::size_t num_begun = 0;
    const auto interrupted = [&](std::size_t setting, double load, std::size_t n) {
      if (num_begun++ == most) throw Interrupted();
      return model(setting, load, n);
    };
    const TuneResult result = tune(3, options_for(3000, 1), interrupted);
    CHECK(num_begun == most + 1);  // none after it
    CHECK(result.num_trials == most);
    REQUIRE(result.findings.size() == 3);
    CHECK(result.findings[0].is_cut_short);
  }
}

TEST_CASE("among equals the steadiest wins", "[tune]") {
  Synthetic model;
  model.capacities = {10.001, 10, 9.999, 6};
  model.itl_ms = {60.8, 33.4, 45, 1};
  const std::vector<TuneFinding> found = tune(4, options_for(1500), model).findings;
  CHECK(found[0].setting == 1);
  CHECK(found[0].cadence_at_best_ms == 33.4);
  CHECK(found[1].setting == 0);
  CHECK(found[2].setting == 2);
  CHECK(found[3].setting == 3);
  for (const TuneFinding& finding : found) CHECK(finding.is_equal_to_best == (finding.setting < 3));

  // Where they are as steady, it is the one that carries more.
  model.itl_ms = {33.5, 33.4, 33.6, 1};
  CHECK(tune(4, options_for(1500), model).findings[0].setting == 0);
}

TEST_CASE("a setting that carries less is not put first because it is steadier", "[tune]") {
  Synthetic model;
  model.capacities = {10, 9.6};
  model.spread = 0.5;
  model.noise = {0.4, 0.4};
  model.itl_ms = {60, 20};
  TuneOptions options = options_for(300);
  options.attainment = 0.9;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    model.seed = seed;
    const std::vector<TuneFinding> found = tune(2, options, model).findings;
    CHECK(found[0].capacity * (1 + 2 * options.tolerance) >= found[1].capacity);
    CHECK(found[0].is_equal_to_best);
  }
}

TEST_CASE("settings that serve all requests alike have the same capacity and band", "[tune]") {
  // The first and the last differ only in what the search expects of them.
  Synthetic model;
  model.spread = 0.5;
  for (std::uint64_t seed = 1; seed <= 10; ++seed) {
    CAPTURE(seed);
    model.seed = seed;
    model.capacities = {10, 9.7, 10};
    TuneOptions options = options_for(600);
    options.attainment = 0.9;
    options.expected_capacities = {40, 6, 0.7};
    const TuneResult result = tune(3, options, model);
    std::vector<const TuneFinding*> twins;
    for (const TuneFinding& finding : result.findings) {
      if (finding.setting != 1) twins.push_back(&finding);
    }
    REQUIRE(twins.size() == 2);
    CHECK(twins[0]->capacity == twins[1]->capacity);
    CHECK(twins[0]->low == twins[1]->low);
    CHECK(twins[0]->high == twins[1]->high);
    CHECK(twins[0]->is_equal_to_best == twins[1]->is_equal_to_best);
  }
}

TEST_CASE("a search that is over gives what it has found", "[tune]") {
  Synthetic model;
  model.capacities = {8, 30, 10};
  std::size_t num_all = tune(3, options_for(3000), model).num_trials;
  for (std::size_t most = 0; most <= num_all; ++most) {
    CAPTURE(most);
    TuneOptions options = options_for(3000, 1);
    std::size_t num_asked = 0;
    options.is_over = [&num_asked, most] { return num_asked++ >= most; };
    const TuneResult result = tune(3, options, model);
    CHECK(result.num_trials == most);
    REQUIRE(result.findings.size() == 3);
    for (const TuneFinding& finding : result.findings) {
      // Never more than the setting carries.
      CHECK(finding.capacity <= model.capacities[finding.setting]);
    }
    // Finished settings are only those that were measured, or dropped as worse.
    const bool is_whole = most == num_all;
    CHECK(result.findings[0].is_cut_short == !is_whole);
  }
}

TEST_CASE("the requests that a search expects to simulate are right within a factor of two",
          "[tune]") {
  // From a third of the work on, for one setting or many, whose bands are narrow or not.
  for (std::size_t num_settings : {1u, 3u, 8u}) {
    for (const bool has_clusters : {false, true}) {
      CAPTURE(num_settings, has_clusters);
      Clustered clustered;
      Synthetic model;
      clustered.capacities.clear();
      for (std::size_t i = 0; i < num_settings; ++i) {
        model.capacities.push_back(5 + 2 * static_cast<double>(i));
        clustered.capacities.push_back(50 + 20 * static_cast<double>(i));
      }
      model.spread = 0.3;
      TuneOptions options = options_for(3000, 1);
      options.attainment = 0.9;
      std::vector<std::pair<double, double>> said;  // done, left
      options.report = [&said](const TuneProgress& progress) {
        said.emplace_back(static_cast<double>(progress.num_simulated), progress.num_left);
      };
      const TuneResult result = has_clusters ? tune(num_settings, options, clustered)
                                             : tune(num_settings, options, model);
      const auto all = static_cast<double>(result.num_simulated);
      REQUIRE(said.size() == result.num_trials);
      CHECK(said.back().first == all);
      for (const auto& [done, left] : said) {
        if (done < all / 3) continue;
        CAPTURE(done, left, all);
        CHECK(done + left < 2 * all);
        CHECK(done + left > all / 2);
      }
    }
  }
}

}  // namespace TEST_FILE
