// SPDX-License-Identifier: Apache-2.0
// Step times that scatter as measured ones did.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>

#include "sim/step_noise.h"
#include "tests/catch.h"
#include "tests/command_line.h"

namespace metronome::testing::TEST_FILE {
namespace {

// 1 ms of projections, 0.3 of attention and 0.2 of launches a step; decodes alone 0.5.
class ConstantCost final : public CostModel {
 public:
  StepCost step_cost(const StepPlan&) override {
    return {.total_ns = 1'500'000,
            .linear_ns = 1'000'000,
            .attention_ns = 300'000,
            .comm_ns = 0,
            .overhead_ns = 200'000,
            .decode_only_ns = 500'000,
            .is_extrapolated = true};
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 77; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 99; }
};

// Ratios that rise evenly from `low` to `high` with the share.
StepScatter even_scatter(std::int64_t decodes, std::int64_t prefill, double low, double high) {
  StepScatter scatter{step_regime({prefill, decodes}), {}};
  for (const double share : StepScatter::kShares) {
    scatter.ratios.push_back(low + share * (high - low));
  }
  return scatter;
}

NoisyCostModel noisy(std::uint64_t seed) {
  return {std::make_unique<ConstantCost>(),
          {even_scatter(16, 0, 1, 2), even_scatter(64, 0, 3, 4), even_scatter(4, 8, 5, 6)},
          seed};
}

StepCost cost_of(NoisyCostModel& model, std::int64_t step, std::int32_t decodes,
                 std::int32_t prefill) {
  StepPlan plan;
  plan.step_index = step;
  plan.num_decode_tokens = decodes;
  plan.num_prefill_tokens = prefill;
  return model.step_cost(plan);
}

}  // namespace

TEST_CASE("drawn step times have the measured distribution", "[fitted]") {
  NoisyCostModel model = noisy(5);
  std::vector<double> ratios;
  constexpr std::size_t kNum = 20'000;
  for (std::size_t i = 0; i < kNum; ++i) {
    const StepCost cost = cost_of(model, static_cast<std::int64_t>(i), 10, 0);
    CHECK(cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns);
    ratios.push_back(static_cast<double>(cost.total_ns) / 1.5e6);
    CHECK(cost.decode_only_ns == Approx(5e5 * ratios.back()));
    CHECK(cost.is_extrapolated);
  }
  std::vector<double> sorted = ratios;
  std::sort(sorted.begin(), sorted.end());
  for (std::size_t i = 0; i < kNum; i += 500) {
    CHECK(sorted[i] == Approx(1 + static_cast<double>(i) / kNum).margin(0.015));
  }
  CHECK(sorted.front() >= 1);
  CHECK(sorted.back() <= 2);
  double correlation = 0;  // of neighbouring steps; uniform numbers have a variance of 1 / 12
  for (std::size_t i = 1; i < kNum; ++i) {
    correlation += (ratios[i] - 1.5) * (ratios[i - 1] - 1.5) * 12 / kNum;
  }
  CHECK(std::abs(correlation) < 0.03);
}

TEST_CASE("a draw depends on seed, step and regime alone", "[fitted]") {
  NoisyCostModel model = noisy(5);
  NoisyCostModel same = noisy(5);
  NoisyCostModel other = noisy(6);
  const TimeNs ns = cost_of(model, 12, 10, 0).total_ns;
  cost_of(same, 3, 10, 0);
  CHECK(cost_of(same, 12, 10, 0).total_ns == ns);
  CHECK(cost_of(same, 13, 10, 0).total_ns != ns);
  CHECK(cost_of(other, 12, 10, 0).total_ns != ns);
  const auto whole = [&](std::int32_t decodes, std::int32_t prefill) {
    return static_cast<int>(static_cast<double>(cost_of(model, 1, decodes, prefill).total_ns) /
                            1.5e6);
  };
  CHECK(whole(2, 0) == 1);   // smaller than any that was measured
  CHECK(whole(30, 0) == 1);  // between two: the smaller batches
  CHECK(whole(64, 0) == 3);
  CHECK(whole(900, 0) == 3);
  CHECK(whole(0, 100) == 3);  // no prefill alone was measured
  CHECK(whole(4, 100) == 5);
  CHECK(model.host_gap_ns({}) == 77);
  CHECK(model.kv_capacity_blocks(16) == 99);
}

TEST_CASE("noise drawn anew is another's, and the first comes back", "[fitted]") {
  NoisyCostModel model = noisy(5);
  const auto times = [](NoisyCostModel& of) {
    std::vector<TimeNs> list;
    for (std::int64_t step = 0; step < 50; ++step)
      list.push_back(cost_of(of, step, 10, 0).total_ns);
    return list;
  };
  const std::vector<TimeNs> first = times(model);
  std::vector<std::vector<TimeNs>> all = {first};
  for (const std::int32_t n : {1, 2, 3}) {
    model.redraw(n);
    all.push_back(times(model));
  }
  for (const std::uint64_t seed : {4u, 6u, 7u}) {
    NoisyCostModel other = noisy(seed);
    all.push_back(times(other));
  }
  std::sort(all.begin(), all.end());
  CHECK(std::adjacent_find(all.begin(), all.end()) == all.end());
  model.redraw(0);
  CHECK(times(model) == first);
}

TEST_CASE("noise needs a file that says how steps scatter", "[fitted]") {
  const ScratchFolder folder;
  const std::string scenario = folder.write("small.yaml", kSmallScenario);
  const CommandResult result =
      run_metronome("run '" + scenario + "' -q --set cost_model.noise=calibrated --out '" +
                    folder.path() + "/out'");
  CHECK(result.exit_code == 2);
  CHECK(result.err.find("cost_model.noise: calibrated needs") != std::string::npos);
}

}  // namespace metronome::testing::TEST_FILE
