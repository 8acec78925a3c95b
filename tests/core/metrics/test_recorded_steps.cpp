// SPDX-License-Identifier: Apache-2.0
// Plans rebuilt from a record, against the plans themselves.
#include <algorithm>
#include <tuple>

#include "core/base/rng.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/recorded_steps.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Row = std::tuple<RequestId, std::int32_t, std::int32_t, ChunkKind, bool>;

std::vector<Row> rows_of(const std::vector<ScheduledChunk>& chunks, bool only_emitted_decodes) {
  std::vector<Row> rows;
  for (const ScheduledChunk& chunk : chunks) {
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (only_emitted_decodes && is_decode && chunk.num_emitted == 0) continue;
    rows.emplace_back(chunk.request, chunk.first_position, chunk.num_tokens, chunk.kind,
                      chunk.samples_token);
  }
  std::sort(rows.begin(), rows.end());
  return rows;
}

struct Counts {
  std::int64_t decodes = 0;
  std::int64_t missing = 0;
  std::int64_t preempted = 0;
  std::int64_t mixed = 0;
};

void check_case(const std::string& policy, std::uint64_t seed, Counts& counts) {
  Rng rng(seed, "recorded steps");
  EngineSetup setup = make_setup(policy);
  setup.kv_cache.num_blocks = draw(rng, 140, 400);  // some must be preempted
  setup.max_model_len = 2'000;
  setup.max_num_seqs = draw(rng, 2, 32);
  arrange_cache(setup);
  setup.async_depth = draw(rng, 1, 2);
  setup.step_shape = chance(rng, 0.3) ? StepShape::Separate : setup.step_shape;
  PrefixHasher unique_prompts;
  TestClock clock;
  CheckingExecutor executor;
  executor.block_size = setup.kv_cache.block_size;
  Journal journal;
  RunRecorder recorder;
  EventSink* sinks[] = {&journal, &recorder};
  BenchEngine engine(setup, executor, clock, sinks, &unique_prompts);
  for (int i = 0; i < 40; ++i) {
    engine.submit({clock.now(), draw(rng, 1, 900), draw(rng, 1, 120), 0});
  }
  engine.drain();
  const RunRecord record = recorder.finish();

  RecordedSteps steps(record, setup.step_shape);
  StepPlan plan;
  for (const Journal::Step& step : journal.steps) {
    REQUIRE(steps.next(plan));
    REQUIRE(rows_of(plan.chunks, false) == rows_of(step.chunks, true));
    REQUIRE(plan.num_prefill_tokens == step.record.num_prefill_tokens);
    REQUIRE(plan.num_decode_tokens + steps.num_missing_decodes() == step.record.num_decode_tokens);
    REQUIRE(plan.num_used_blocks == step.record.num_used_blocks);
    std::int32_t end = 0;
    for (const ForwardPass& pass : plan.passes) {
      REQUIRE(pass.begin == end);
      REQUIRE(pass.end > pass.begin);
      end = pass.end;
    }
    REQUIRE(end == static_cast<std::int32_t>(plan.chunks.size()));
    counts.decodes += plan.num_decode_tokens;
    counts.missing += steps.num_missing_decodes();
    counts.preempted += plan.num_preempted;
    counts.mixed += plan.num_decode_tokens > 0 && plan.num_prefill_tokens > 0 ? 1 : 0;
  }
  REQUIRE_FALSE(steps.next(plan));
}

}  // namespace

TEST_CASE("plans are rebuilt from a record", "[core][record]") {
  Counts counts;
  for (const PolicyInfo& policy : all_policies()) {
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
      CAPTURE(policy.name, seed);
      check_case(std::string(policy.name), seed, counts);
    }
  }
  CHECK(counts.decodes > 100'000);
  CHECK(counts.preempted > 1'000);
  CHECK(counts.mixed > 5'000);
  CHECK(counts.missing > 5);
}

}  // namespace metronome::testing::TEST_FILE
