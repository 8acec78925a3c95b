// SPDX-License-Identifier: Apache-2.0
// Decisions found again from a request log: runs pinned to the instants of tokens.
#include <map>

#include "reports/compare/validation.h"
#include "study/recorded/pinned_run.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/measured_run.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("a request log pins down every step", "[tools][pinned]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(1, 7));
  const int async_depth = GENERATE(1, 2);
  INFO("seed " << seed << ", async_depth " << async_depth);
  const MeasuredRun measured(seed, async_depth);
  const PinnedRun pinned = run_pinned(measured.scenario_with({}), measured.seen);
  for (const Contradiction& contradiction : pinned.contradictions) {
    FAIL_CHECK("step " << contradiction.step << " " << contradiction.what);
  }
  const DecisionComparison decisions = compare_decisions(
      measured.seen.stored->record, StepShape::Mixed, pinned.record, StepShape::Mixed);
  CHECK_FALSE(decisions.first_difference);
  CHECK(pinned.num_pinned() > 100);
  CHECK(compare_timestamps(measured.seen, pinned.record).num_violated == 0);

  // Without the pins the other GPU's decisions are others.
  const std::string free_out = measured.folder.path() + "/free";
  REQUIRE(run_metronome("run '" + measured.folder.path() + "/measured.yaml' -q --set hardware='" +
                        measured.folder.path() + "/slower.yaml' --out '" + free_out + "'")
              .exit_code == 0);
  CHECK(compare_decisions(measured.seen.stored->record, StepShape::Mixed,
                          read_result(free_out).record, StepShape::Mixed)
            .first_difference);
}

// While an engine launches a prompt behind a step, it does not hand out that step's tokens.
TEST_CASE("tokens that come late before a prompt contradict nothing", "[tools][pinned]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(11, 15));
  INFO("seed " << seed);
  MeasuredRun measured(seed, 2);
  const RunRecord& record = measured.seen.stored->record;
  std::map<TimeNs, TimeNs> late;  // by when a step ended
  for (std::size_t i = 0; i + 1 < record.steps.size(); ++i) {
    const StepEntry& step = record.steps[i];
    const StepEntry& next = record.steps[i + 1];
    const bool is_behind = next.planned_at < step.finished_at;
    if (step.num_prefill_tokens > 0 || next.num_prefill_tokens == 0 || !is_behind) continue;
    late[step.finished_at] = step.finished_at + (step.finished_at - step.started_at) * 7 / 10;
  }
  int num_late = 0;
  for (ObservedRequest& request : measured.seen.requests) {
    for (TimeNs* instant : {&request.first_token, &request.last_token}) {
      const auto found = late.find(*instant);
      if (found == late.end()) continue;
      *instant = found->second;
      ++num_late;
    }
  }
  CHECK(num_late >= 3);
  const PinnedRun pinned = run_pinned(measured.scenario_with({}), measured.seen);
  for (const Contradiction& contradiction : pinned.contradictions) {
    FAIL_CHECK("step " << contradiction.step << " " << contradiction.what);
  }
}

TEST_CASE("the first seconds of a request log pin down their steps", "[tools][pinned]") {
  const std::uint64_t seed = GENERATE(range<std::uint64_t>(21, 25));
  INFO("seed " << seed);
  MeasuredRun measured(seed, 2);
  const TimeNs until = 3000 * kNsPerMs;
  for (ObservedRequest& request : measured.seen.requests) {
    for (TimeNs* instant : {&request.scheduled, &request.first_token, &request.last_token}) {
      if (*instant > until) *instant = kNoTime;
    }
  }
  const PinnedRun pinned = run_pinned(measured.scenario_with({}), measured.seen);
  CHECK(pinned.contradictions.empty());
  const DecisionComparison decisions = compare_decisions(
      measured.seen.stored->record, StepShape::Mixed, pinned.record, StepShape::Mixed);
  if (decisions.first_difference) {
    const auto step = static_cast<std::size_t>(decisions.first_difference->step);
    CHECK(measured.seen.stored->record.steps.planned_at(step) > until);
  }
}

TEST_CASE("a scheduler that decides otherwise contradicts the log", "[tools][pinned]") {
  const MeasuredRun measured(1, 2);
  const Setting changes[] = {{"scheduler.max_num_batched_tokens", 384},
                             {"engine.max_num_seqs", 10},
                             {"engine.async_depth", 1},
                             {"scheduler.long_prefill_token_threshold", 256}};
  for (const Setting& change : changes) {
    INFO(change.text());
    const PinnedRun pinned = run_pinned(measured.scenario_with({change}), measured.seen);
    CHECK_FALSE(pinned.contradictions.empty());
  }
}

TEST_CASE("a host that needs longer than its log allows contradicts it", "[tools][pinned]") {
  const MeasuredRun measured(71, 1);
  for (const int gap_us : {8000, 30000}) {
    INFO(gap_us);
    const Scenario changed = measured.scenario_with({{"cost_model.host_gap_us", gap_us}});
    CHECK_FALSE(run_pinned(changed, measured.seen).contradictions.empty());
  }
}

TEST_CASE("a request log of other requests is refused", "[tools][pinned]") {
  const MeasuredRun measured(1, 1);
  const Scenario scenario = measured.scenario_with({});
  ObservedRun log = read_observed_run(measured.seen.path, {.from_queue = true});
  log.path = "log.jsonl";
  log.requests.pop_back();
  CHECK(error_of([&] { run_pinned(scenario, log); }) ==
        "log.jsonl: has 119 requests, but the simulated run has 120; allowed: the requests of "
        "the simulated run, in its order");
  log = read_observed_run(measured.seen.path, {.from_queue = true});
  log.path = "log.jsonl";
  log.requests[7].num_prompt_tokens += 1;
  CHECK(error_of([&] { run_pinned(scenario, log); }) ==
        "log.jsonl: request 7 has different token counts in the simulated run; allowed: the "
        "requests of the simulated run, in its order");
}

}  // namespace metronome::testing::TEST_FILE
