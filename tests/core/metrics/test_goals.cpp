// SPDX-License-Identifier: Apache-2.0
// The sides of a goal: where they come from, when they are kept, and what they are called.
#include <cmath>

#include "core/metrics/goals.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

TEST_CASE("each limit of the section is a side", "[metrics]") {
  SloConfig slo;
  slo.itl_ms = 50;
  slo.ttft_ms = 3000;
  slo.decode_rate = 20;
  const std::vector<Goal> goals = goals_of(slo);
  REQUIRE(goals.size() == 3);
  CHECK(goal_words(goals) ==
        "every gap within 50 ms, answers during prefill at 20 tok/s or more and the p99 TTFT "
        "within 3,000 ms");
  CHECK(goals[0].figure == "max_itl_ms");
  CHECK(goals[1].is_least);
  slo.itl_share = 0.99;
  slo.longest_gap_ms = 500;
  const std::vector<Goal> shares = goals_of(slo);
  CHECK(shares[0].figure == "p99_itl_ms");
  CHECK(goal_words(shares[0]) == "99 % of the gaps within 50 ms");
  CHECK(goal_words(shares[1]) == "every gap within 500 ms");
  CHECK(goals_of(SloConfig()).empty());
}

TEST_CASE("options come in the place of the section's limits", "[metrics]") {
  SloConfig slo;
  slo.itl_ms = 50;
  slo.ttft_ms = 3000;
  slo.by_class = {slo, slo};
  slo.by_class[0].class_name = "chat";
  slo.by_class[1].class_name = "batch";
  slo.by_class[1].ttft_ms = 60000;
  // Only the side in which classes differ is by class.
  const std::vector<Goal> goals = goals_of(slo);
  REQUIRE(goals.size() == 3);
  CHECK(goals[0].class_name.empty());
  CHECK(goal_words(goals[2]) == "the p99 TTFT of class 'batch' within 60,000 ms");
  SloConfig options;
  options.ttft_ms = 1500;
  const std::vector<Goal> given = goals_of(with_options(slo, options));
  REQUIRE(given.size() == 2);
  CHECK(given[0].limit == 50);
  CHECK(given[1].limit == 1500);
}

TEST_CASE("a figure keeps a limit, or is so many times as bad", "[metrics]") {
  Goal most;
  most.limit = 50;
  CHECK(most.is_kept_by(50));
  CHECK_FALSE(most.is_kept_by(50.1));
  CHECK(most.excess(75) == 1.5);
  CHECK(most.is_kept_by(std::nan("")));
  Goal least = most;
  least.is_least = true;
  CHECK(least.is_kept_by(50));
  CHECK_FALSE(least.is_kept_by(49));
  CHECK(least.excess(25) == 2);
  CHECK(std::isinf(least.excess(0)));
}

TEST_CASE("a class has figures of its own", "[metrics]") {
  Summary summary;
  summary.ttft.p99_ms = 10;
  summary.classes.resize(1);
  summary.classes[0].name = "chat";
  summary.classes[0].ttft.p99_ms = 3;
  summary.classes[0].longest_gap_ms = 7;
  Goal goal;
  goal.side = GoalSide::Ttft;
  goal.figure = "p99_ttft_ms";
  CHECK(goal_figure(goal, summary, {}) == 10);
  goal.class_name = "chat";
  CHECK(goal_figure(goal, summary, {}) == 3);
  goal.side = GoalSide::Gap;
  CHECK(goal_figure(goal, summary, {}) == 7);
  CHECK(is_known_share(0.95));
  CHECK_FALSE(is_known_share(0.98));
}

}  // namespace TEST_FILE
