// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of Dynamic SplitFuse.
#include "engines/fastgen/settings.h"
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Ints = std::vector<int>;

EngineSetup fastgen(std::int64_t num_blocks, std::int32_t max_ragged_batch_size) {
  EngineSetup setup = make_setup("fastgen");
  setup.kv_cache = {.num_blocks = num_blocks, .block_size = 4};
  setup.scheduler.edit<FastGenConfig>().max_ragged_batch_size = max_ragged_batch_size;
  arrange_cache(setup);
  return setup;
}

}  // namespace

TEST_CASE("fastgen: a long prompt is split, short ones are fused into a full step", "[policies]") {
  Bench bench(fastgen(100, 10));
  bench.submit(6, 3);
  bench.submit(8, 3);
  bench.submit(5, 3);
  CHECK(step(bench) == Planned{{0, 6}, {1, 4}});          // 10 - 6 = 4 of 8
  CHECK(step(bench) == Planned{{0, 1}, {1, 4}, {2, 5}});  // the rest of 1 goes ahead of 2
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}, {2, 1}});
  CHECK(bench[RequestId{0}].has_ended());
  bench.engine.drain();
}

TEST_CASE("fastgen: a prompt begins only when all of it has blocks, and nobody overtakes it",
          "[policies]") {
  Bench bench(fastgen(6, 8));
  bench.submit(8, 5);
  bench.submit(20, 2);
  bench.submit(3, 2);
  CHECK(step(bench) == Planned{{0, 8}});  // 2 of 6 blocks
  // Position 9 takes a third block. Prompt 1 needs 5 of the 3 left, though 7 tokens of it would
  // take 2 only; prompt 2 needs one.
  CHECK(step(bench) == Planned{{0, 1}});
  for (int i = 0; i < 3; ++i) CHECK(step(bench) == Planned{{0, 1}});
  // Request 0 has its 5 tokens. Chunks of 8, 8, 4; beside the last one 4 tokens are left, but
  // prompt 1 owns 5 of the 6 blocks, and prompt 2 takes the sixth.
  CHECK(step(bench) == Planned{{1, 8}});
  CHECK(step(bench) == Planned{{1, 8}});
  CHECK(step(bench) == Planned{{1, 4}, {2, 3}});
  bench.engine.drain();
}

TEST_CASE("fastgen: a split prompt waits when the rest of it has no blocks", "[policies]") {
  Bench bench(fastgen(7, 12));
  bench.submit(4, 9);
  bench.submit(4, 9);
  bench.submit(20, 2);
  // 5 blocks are left for prompt 2, which needs 5; its 4 tokens take one.
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}, {2, 4}});
  // Positions 5 take two of the remaining 4 blocks: 2 are left, the rest of the prompt needs 4.
  for (int i = 0; i < 8; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(bench[RequestId{2}].block_table.size() == 1);
  CHECK(bench[RequestId{2}].num_preemptions == 0);
  CHECK(step(bench) == Planned{{2, 12}});  // 9 tokens each are out
  CHECK(step(bench) == Planned{{2, 4}});
  bench.engine.drain();
}

TEST_CASE("fastgen: a decode without a block is passed over and comes first the next time",
          "[policies]") {
  Bench bench(fastgen(3, 64));
  bench.submit(4, 4);
  bench.submit(4, 4);
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}});
  CHECK(step(bench) == Planned{{0, 1}});  // takes the third block
  CHECK(step(bench) == Planned{{0, 1}});  // has a slot left in its last block
  CHECK(step(bench) == Planned{{0, 1}});  // its fourth token
  CHECK(step(bench) == Planned{{1, 1}});
  CHECK(bench[RequestId{1}].num_preemptions == 0);
  bench.engine.drain();
}

TEST_CASE("fastgen: when nothing can be scheduled, the last in the buffer is evicted",
          "[policies]") {
  SECTION("its prompt and output are computed again, behind those that wait") {
    Bench bench(fastgen(2, 64));
    bench.submit(4, 4);
    bench.submit(4, 4);
    CHECK(step(bench) == Planned{{0, 4}, {1, 4}});
    bench.submit(2, 2);
    CHECK(step(bench) == Planned{{0, 1}});  // positions 5 need a block each
    CHECK(preempted_last(bench) == Ints{1});
    CHECK(step(bench) == Planned{{0, 1}});
    CHECK(step(bench) == Planned{{0, 1}});
    // Both blocks are free: request 2 takes one, and 4 + 1 tokens of request 1 need two.
    CHECK(step(bench) == Planned{{2, 2}});
    CHECK(step(bench) == Planned{{2, 1}});
    CHECK(step(bench) == Planned{{1, 5}});
    bench.engine.drain();
    CHECK(bench[RequestId{1}].num_output_tokens() == 4);
  }
  SECTION("those passed over stand ahead of those served") {
    Bench bench(fastgen(5, 64));
    for (int i = 0; i < 3; ++i) bench.submit(4, 8);
    CHECK(step(bench) == Planned{{0, 4}, {1, 4}, {2, 4}});
    // 0 and 1 take the two blocks left, for positions 5 to 8.
    for (int i = 0; i < 4; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
    // All need a block. The buffer is 2, 0, 1: the two blocks of 1 go to 2 and 0.
    CHECK(step(bench) == Planned{{2, 1}, {0, 1}});
    CHECK(preempted_last(bench) == Ints{1});
    bench.engine.drain();
  }
}

TEST_CASE("fastgen: a split prompt stands at the front of the buffer, so a decode is evicted first",
          "[policies]") {
  Bench bench(fastgen(7, 12));
  bench.submit(4, 16);
  bench.submit(4, 16);
  bench.submit(20, 2);
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}, {2, 4}});
  // Positions 5 to 12 of 0 and 1 take the four blocks left, two each; the rest of the prompt, 16
  // tokens, needs four.
  for (int i = 0; i < 8; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  // Positions 13 need a block each, and there is none. The buffer is 2, 0, 1: request 1 gives up
  // its three, of which request 0 takes one. Two are left for a prompt that needs four.
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == Ints{1});
  CHECK(bench[RequestId{2}].block_table.size() == 1);
  bench.engine.drain();
  CHECK(bench[RequestId{1}].num_output_tokens() == 16);
  CHECK(bench[RequestId{2}].num_preemptions == 0);
}

TEST_CASE("fastgen: a step holds max_ragged_sequence_count requests", "[policies]") {
  EngineSetup setup = fastgen(100, 64);
  setup.scheduler.edit<FastGenConfig>().max_ragged_sequence_count = 2;
  Bench bench(setup);
  for (int i = 0; i < 3; ++i) bench.submit(4, 2);
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}});
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(step(bench) == Planned{{2, 4}});
}

TEST_CASE("fastgen: max_tracked_sequences requests hold KV blocks", "[policies]") {
  EngineSetup setup = fastgen(100, 64);
  setup.scheduler.edit<FastGenConfig>().max_tracked_sequences = 1;
  Bench bench(setup);
  for (int i = 0; i < 2; ++i) bench.submit(4, 2);
  CHECK(step(bench) == Planned{{0, 4}});
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{1, 4}});
}

TEST_CASE("fastgen: with a step in flight nobody is evicted for blocks that are about to be free",
          "[policies]") {
  EngineSetup setup = fastgen(2, 64);
  setup.async_depth = 2;
  Bench bench(setup);
  bench.submit(4, 1);
  bench.submit(4, 4);
  bench.engine.drain();
  CHECK(bench[RequestId{1}].num_preemptions == 0);
  CHECK(bench[RequestId{1}].end_reason == EndReason::Length);
}

TEST_CASE("fastgen: a request longer than the cache is refused", "[policies]") {
  Bench bench(fastgen(3, 4));
  const RequestId fits = bench.submit(12, 1);      // 12 tokens in 3 blocks, the last is not cached
  const RequestId too_long = bench.submit(12, 2);  // 13 tokens: 4 blocks
  CHECK(bench[fits].state == RequestState::Waiting);
  CHECK(bench[too_long].end_reason == EndReason::NeverFits);
  bench.engine.drain();
}

}  // namespace metronome::testing::TEST_FILE
