// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of the nano_vllm policy from engine_semantics. A block is 4
// tokens in all of them.
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Steps = std::vector<Planned>;

EngineSetup nano_setup(std::int64_t num_blocks, std::int32_t budget,
                       std::int32_t max_num_seqs = 8) {
  EngineSetup setup = make_setup("nano_vllm");
  setup.kv_cache = {.num_blocks = num_blocks, .block_size = 4};
  setup.scheduler.max_num_batched_tokens = budget;
  setup.max_num_seqs = max_num_seqs;
  arrange_cache(setup);
  return setup;
}

// The steps made from now on, until all requests have ended.
Steps rest_of(Bench& bench) {
  Steps steps;
  while (bench.engine.has_work()) steps.push_back(step(bench));
  return steps;
}

}  // namespace

TEST_CASE("nano_vllm: only the first prompt of a step is chunked", "[core][policies]") {
  // Budget 16. Step 0: 16 tokens of 0. Step 1: its last 4, all 10 of 1; 2 tokens are left, and 2
  // needs 6. Nobody decodes while prompts can run. 3 is no more than what is left.
  Bench bench(nano_setup(100, 16));
  for (const auto& [prompt, output] : {std::pair{20, 2}, {10, 1}, {6, 2}, {10, 1}}) {
    bench.submit(prompt, output);
  }
  CHECK(rest_of(bench) == Steps{{{0, 16}}, {{0, 4}, {1, 10}}, {{2, 6}, {3, 10}}, {{0, 1}, {2, 1}}});
}

TEST_CASE("nano_vllm: the first prompt takes all of its blocks at once", "[core][policies]") {
  // 7 blocks; 0 takes 5 of them with its first chunk, 1 needs 3.
  Bench bench(nano_setup(7, 8));
  bench.submit(20, 1);
  bench.submit(9, 1);
  step(bench);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 5);
  CHECK(rest_of(bench) == Steps{{{0, 8}}, {{0, 4}}, {{1, 8}}, {{1, 1}}});
}

TEST_CASE("nano_vllm: max_num_seqs limits a step, not who runs", "[core][policies]") {
  Bench bench(nano_setup(100, 16, 2));
  bench.submit(2, 3);
  bench.submit(2, 3);
  bench.submit(2, 2);
  // 2 joins as a third. The first two decode until they end.
  CHECK(rest_of(bench) ==
        Steps{{{0, 2}, {1, 2}}, {{2, 2}}, {{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}, {{2, 1}}});
}

TEST_CASE("nano_vllm: the preempted come back with what is left of their blocks",
          "[core][policies]") {
  // 5 blocks. Step 0: 0 takes blocks 0, 1 and 1 takes 2, 3. Step 1: the 9th token of 1 takes block
  // 4. Step 2: the 9th of 0 finds none: 1 gives back 4, 3, 2 in this order, 0 takes 4. 1 needs 3
  // blocks for its 8 + 2 tokens: it finds two again, but with them 2 are free only. 0 ends in step
  // 5 and gives back 4, 1, 0. Step 6: 1 hits 2 and 3, takes 4, and computes its last 2 tokens.
  Bench bench(nano_setup(5, 64));
  bench.submit(7, 6);
  const RequestId victim = bench.submit(8, 3);
  CHECK(step(bench) == Planned{{0, 7}, {1, 8}});
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == std::vector{1});
  const RequestId late = bench.submit(1, 2);  // has room, but stands behind the preempted one
  for (int i = 0; i < 3; ++i) CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{1, 2}, {2, 1}});
  const ScheduledChunk& chunk = bench.executor.plans.back().chunks.front();
  CHECK(chunk.first_position == 8);
  CHECK(chunk.kind == ChunkKind::Prefill);
  CHECK(bench[late].block_table == BlockTable{BlockId{1}});
  CHECK(bench[victim].state == RequestState::Finished);
  CHECK(bench[victim].num_output_tokens() == 3);
  CHECK(rest_of(bench) == Steps{{{2, 1}}});
}

TEST_CASE("nano_vllm: a block is needed at the first token in it only", "[core][policies]") {
  // 3 blocks. 0 has 2 for its 7 tokens, 1 has the third. Without a free one both decode: 0 has its
  // 8th, 1 its 2nd. Step 2: the 9th of 0 finds none, 1 goes.
  Bench bench(nano_setup(3, 64));
  bench.submit(7, 3);
  bench.submit(1, 4);
  CHECK(rest_of(bench) == Steps{{{0, 7}, {1, 1}}, {{0, 1}, {1, 1}}, {{0, 1}}, {{1, 3}}, {{1, 1}}});
}

TEST_CASE("nano_vllm: prefixes are found once their step is over, the latest copy",
          "[core][policies]") {
  // Equal prompts of 8. In one step neither finds the other. The third finds the first of its two
  // blocks, as the last is always computed: block 2 of request 1, which was hashed after block 0.
  const SharedPrompts prompts({{{7, 8}}, {{7, 8}}, {{7, 8}}});
  Bench bench(nano_setup(10, 64), prompts.hasher());
  bench.submit(8, 2);
  bench.submit(8, 2);
  CHECK(step(bench) == Planned{{0, 8}, {1, 8}});
  const RequestId third = bench.submit(8, 2);
  CHECK(step(bench) == Planned{{2, 4}});
  CHECK(bench[third].block_table == BlockTable{BlockId{2}, BlockId{4}});
  CHECK(bench.engine.kv_cache().num_free_blocks() == 5);
}

}  // namespace metronome::testing::TEST_FILE
