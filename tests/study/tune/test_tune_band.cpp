// SPDX-License-Identifier: Apache-2.0
// The answer of a search with faster and slower steps, and by the cost of tokens.
#include <cmath>

#include "core/scenario/scenario.h"
#include "study/tune/tune_band.h"
#include "study/tune/tune_per_cost.h"
#include "study/tune/tune_run.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

TuneFinding found_for(TuneSetting& setting, const TuneOptions& options) {
  return tune(1, options,
              [&](std::size_t, double load, std::size_t num_requests) {
                TuneTrial trial = setting.run(load, num_requests);
                trial.num_requests = num_requests;
                return trial;
              })
      .findings.front();
}

}  // namespace

TEST_CASE("slower steps carry less, as the search itself finds", "[tune]") {
  const ScenarioFile file = parse_scenario(
      std::string(kSmallScenario) + "slo: {ttft_ms: 60, itl_ms: 20}\n", "small.yaml", {});
  const Scenario& scenario = file.variants.front();
  const TuneWorkloads workloads(scenario, 3);
  TuneSetting setting(scenario, workloads);
  TuneOptions options;
  options.first_load = workloads.given_load();
  options.num_requests = workloads.num_requests();
  const TuneFinding found = found_for(setting, options);
  REQUIRE(found.best_trial() != nullptr);
  const std::optional<TuneBand> band = capacity_band(scenario, workloads, found, options);
  REQUIRE(band.has_value());
  CHECK(band->fast_scale < 1);
  CHECK(band->slow_scale > 1);
  CHECK(band->slow < found.capacity);
  CHECK(band->fast > found.capacity);
  CHECK(contains(band->capacity_text(), " times as long it carries "));
  // A search with the slow steps finds the same, but for its tolerance.
  setting.scale_steps(band->slow_scale);
  const double slow = found_for(setting, options).capacity;
  CHECK(band->slow > 0.8 * slow);
  CHECK(band->slow < 1.25 * slow);
  // At the capacity, slower steps leave fewer requests within the SLO.
  setting.scale_steps(1);
  TuneTrial trial = setting.run(found.capacity, options.num_requests);
  trial.num_requests = options.num_requests;
  const std::optional<TuneBand> share = attainment_band(scenario, workloads, trial, options);
  REQUIRE(share.has_value());
  CHECK(share->fast >= trial.attainment);
  CHECK(share->slow < trial.attainment);
  options.is_over = [] { return true; };
  CHECK_FALSE(attainment_band(scenario, workloads, trial, options).has_value());
}

TEST_CASE("the cheapest tokens are those of the highest load for its cost", "[tune]") {
  const ScenarioFile file = parse_scenario(
      std::string(kSmallScenario) + "slo: {ttft_ms: 60, itl_ms: 20}\n", "small.yaml", {});
  const Scenario& scenario = file.variants.front();
  const TuneWorkloads workloads(scenario, 3);
  TuneSetting plain(scenario, workloads);
  TuneSetting fast(scenario, workloads);
  fast.scale_steps(0.5);
  TuneOptions options;
  options.first_load = workloads.given_load();
  options.num_requests = workloads.num_requests();
  const TuneRunFn run = [&](std::size_t setting, double load, std::size_t num_requests) {
    TuneTrial trial = (setting == 0 ? plain : fast).run(load, num_requests);
    trial.num_requests = num_requests;
    return trial;
  };
  const TuneResult by_load = tune(2, options, run);
  CHECK(by_load.findings.front().setting == 1);
  const auto capacity_of = [](const TuneResult& result, std::size_t setting) {
    for (const TuneFinding& finding : result.findings) {
      if (finding.setting == setting) return finding.capacity;
    }
    return 0.0;
  };
  const double gain = capacity_of(by_load, 1) / capacity_of(by_load, 0);
  REQUIRE(gain > 1.2);
  plain.lengthen(1.3 * gain);  // all serve the requests of the dearest
  // Dearer than its gain, it loses; at equal prices it wins. Capacities are requests/s in both.
  const TuneResult dear = tune_per_cost(2, {2, 2 * 1.3 * gain}, options, run);
  CHECK(dear.findings.front().setting == 0);
  CHECK(std::fabs(dear.findings.front().capacity / capacity_of(by_load, 0) - 1) < 0.06);
  plain.lengthen(0.7 * gain > 1 ? 0.7 * gain : 1);
  fast.lengthen(0.7 * gain > 1 ? 1 : 1 / (0.7 * gain));
  const TuneResult cheap = tune_per_cost(2, {2, 2 * 0.7 * gain}, options, run);
  CHECK(cheap.findings.front().setting == 1);
  CHECK(std::fabs(cheap.findings.front().capacity / capacity_of(by_load, 1) - 1) < 0.06);
  for (const TuneTrial& trial : cheap.findings.front().trials) CHECK(trial.load > 0);
}

}  // namespace TEST_FILE
