// SPDX-License-Identifier: Apache-2.0
// The scheduler that hands out a script: whole rounds, one behind the other, in a cache without
// room for two requests.
#include <vector>

#include "core/metrics/run_record.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "study/calibrate/scripted_policy.h"
#include "tests/catch.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Counts who has ended.
class Ended final : public EventSink {
 public:
  void on_event(const Event& event, const Request&) override {
    num_ended += event.kind == EventKind::Ended ? 1 : 0;
  }
  void on_step(const StepRecord&, std::span<const ScheduledChunk>, const RequestTable&) override {}
  std::size_t num_ended = 0;
};

// Requests of 8 tokens and 3 more, each alone in its round but for the last two, which take turns.
StepScript turns() {
  StepScript script;
  for (std::int32_t i = 0; i < 4; ++i) {
    script.requests.push_back({.num_prompt_tokens = 8, .max_output_tokens = 3});
    if (i < 3) script.round_begins.push_back(script.steps.size());
    script.steps.insert(script.steps.end(), {{{i, 5}}, {{i, 3}}, {{i, 0}}, {{i, 0}}});
  }
  script.round_begins.push_back(script.steps.size());
  return script;
}

struct Ran {
  RunRecord record;
  std::vector<std::size_t> num_ended;  // when a round was asked for
  std::vector<std::size_t> num_rounds;
  bool completed = false;
};

Ran run(std::size_t max_rounds, int async_depth) {
  const ScenarioFile file = parse_scenario(
      "model: llama-3.2-1b\nhardware: h200\n"
      "engine: {max_num_seqs: 4, max_model_len: 16, async_depth: " +
          std::to_string(async_depth) +
          "}\nkv_cache: {block_size: 4, num_blocks: 4}\n"
          "workload: {num_requests: 1, arrivals: {process: burst},\n"
          "  prompt_tokens: {distribution: fixed, value: 1},\n"
          "  output_tokens: {distribution: fixed, value: 1}}\n",
      "script.yaml", {});
  Simulation simulation = prepare_simulation(file.variants.front());
  const auto script = std::make_shared<const StepScript>(turns());
  Workload workload;
  workload.requests = script->requests;
  Ended ended;
  Ran ran;
  simulation.setup.make_policy = scripted_policy(script, std::make_shared<ScriptProgress>(),
                                                 [&](const ScriptProgress& progress, TimeNs) {
                                                   ran.num_ended.push_back(ended.num_ended);
                                                   ran.num_rounds.push_back(progress.num_rounds);
                                                   return progress.num_rounds < max_rounds;
                                                 });
  RunRecorder recorder;
  EventSink* const sinks[] = {&ended, &recorder};
  VirtualClock clock;
  ran.completed = simulation.run(workload, clock, sinks).completed;
  ran.record = recorder.finish();
  return ran;
}

TEST_CASE("a script is run step by step, and a round when the one before has ended",
          "[calibrate]") {
  for (const int async_depth : {1, 2}) {
    INFO("async_depth " << async_depth);
    const Ran ran = run(9, async_depth);
    REQUIRE(ran.completed);
    CHECK(ran.num_ended == std::vector<std::size_t>{1, 2});
    CHECK(ran.num_rounds == std::vector<std::size_t>{1, 2});
    REQUIRE(ran.record.steps.size() == 16);
    for (std::size_t i = 0; i < 16; ++i) {
      INFO("step " << i);
      CHECK(ran.record.steps[i].num_prefill_tokens == (i % 4 == 0 ? 5 : i % 4 == 1 ? 3 : 0));
      CHECK(ran.record.steps[i].num_decode_tokens == (i % 4 < 2 ? 0 : 1));
      CHECK(ran.record.steps[i].num_used_blocks == 3);  // of the four there are, from the start
    }
    for (const RequestRecord& request : ran.record.requests) {
      CHECK(request.reason == EndReason::Length);
      CHECK(request.num_output_tokens == 3);
      CHECK(request.num_preemptions == 0);
    }
  }
}

TEST_CASE("what is left of a script that ends early is refused", "[calibrate]") {
  const Ran ran = run(2, 2);
  REQUIRE(ran.completed);
  CHECK(ran.record.steps.size() == 8);
  REQUIRE(ran.record.requests.size() == 4);
  CHECK(ran.record.requests[1].reason == EndReason::Length);
  CHECK(ran.record.requests[2].reason == EndReason::NeverFits);
  CHECK(ran.record.requests[3].reason == EndReason::NeverFits);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
