// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of TensorRT-LLM's two schedulers. Contexts stand ahead of
// generation requests in a step.
#include "core/base/rng.h"
#include "engines/tensorrt_llm/settings.h"
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Ints = std::vector<int>;
using Capacity = TensorRtLlmConfig::Capacity;
using Chunking = TensorRtLlmConfig::Chunking;

EngineSetup tensorrt_llm(Capacity capacity, std::int64_t num_blocks,
                         std::int32_t max_num_tokens = 8192) {
  EngineSetup setup = make_setup("tensorrt_llm");
  setup.kv_cache = {.num_blocks = num_blocks, .block_size = 4};
  setup.scheduler.edit<TensorRtLlmConfig>().capacity_scheduler_policy = capacity;
  setup.scheduler.edit<TensorRtLlmConfig>().max_num_tokens = max_num_tokens;
  arrange_cache(setup);
  return setup;
}

EngineSetup roomy(Chunking chunking, std::int32_t max_num_tokens) {
  EngineSetup setup = tensorrt_llm(Capacity::GuaranteedNoEvict, 1000, max_num_tokens);
  setup.scheduler.edit<TensorRtLlmConfig>().context_chunking_policy = chunking;
  return setup;
}

EngineSetup without_reuse(EngineSetup setup) {
  setup.kv_cache.enable_prefix_caching = false;
  return setup;
}

// Steps of 20 tokens.
EngineSetup with_batch_wait(Capacity capacity, std::int32_t iters, double ratio) {
  EngineSetup setup = tensorrt_llm(capacity, 1000, 20);
  setup.scheduler.edit<TensorRtLlmConfig>().batch_wait_timeout_iters = iters;
  setup.scheduler.edit<TensorRtLlmConfig>().batch_wait_max_tokens_ratio = ratio;
  return setup;
}

}  // namespace

TEST_CASE("tensorrt_llm: GUARANTEED_NO_EVICT sets blocks aside to completion", "[policies]") {
  Bench bench(tensorrt_llm(Capacity::GuaranteedNoEvict, 10));
  bench.submit(8, 8);   // 16 tokens: 4 blocks
  bench.submit(8, 12);  // 20 tokens: 5 blocks
  bench.submit(4, 4);   // 8 tokens: 2 blocks, one is left
  bench.submit(1, 3);   // 4 tokens: 1 block, but it stands behind one that does not fit
  CHECK(step(bench) == Planned{{0, 8}, {1, 8}});
  for (int i = 0; i < 7; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  REQUIRE(bench[RequestId{0}].has_ended());
  // 5 blocks are set aside for request 1, 5 are left.
  CHECK(step(bench) == Planned{{2, 4}, {3, 1}, {1, 1}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: GUARANTEED_NO_EVICT never pauses anyone", "[policies]") {
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    CAPTURE(seed);
    Rng rng(seed, "tensorrt_llm");
    const auto draw = [&rng](int max) { return static_cast<int>(rng.uniform_int(1, max)); };
    EngineSetup setup = tensorrt_llm(Capacity::GuaranteedNoEvict, 12, 16);
    setup.async_depth = seed % 2 == 0 ? 1 : 2;
    const SharedPrompts prompts({{{1, 16}}, {{1, 16}}, {{1, 12}, {2, 8}}, {{1, 12}, {2, 8}}});
    Bench bench(setup, prompts.hasher());
    for (const int num_tokens : {16, 16, 20, 20}) bench.submit(num_tokens, draw(12));
    for (int i = 0; i < 12; ++i) {
      const std::int32_t num_output_tokens = draw(20);
      bench.submit(draw(24), num_output_tokens);
    }
    bench.engine.drain();
    for (const StepPlan& plan : bench.executor.plans) REQUIRE(plan.preempted.empty());
    for (const Event& event : bench.journal.events) {
      REQUIRE((event.kind != EventKind::Ended || event.reason == EndReason::Length));
    }
  }
}

TEST_CASE("tensorrt_llm: STATIC_BATCH starts others when nothing is active", "[policies]") {
  Bench bench(tensorrt_llm(Capacity::StaticBatch, 100));
  bench.submit(8, 2);
  CHECK(step(bench) == Planned{{0, 8}});
  bench.submit(8, 4);
  bench.submit(5, 2);
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{1, 8}, {2, 5}});
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});
  bench.submit(4, 1);
  CHECK(step(bench) == Planned{{1, 1}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: STATIC_BATCH sets blocks aside, too", "[policies]") {
  Bench bench(tensorrt_llm(Capacity::StaticBatch, 4));
  bench.submit(4, 4);  // 2 blocks
  bench.submit(4, 8);  // 3 blocks
  CHECK(step(bench) == Planned{{0, 4}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: contexts wait for others while requests generate", "[policies]") {
  Bench bench(with_batch_wait(Capacity::GuaranteedNoEvict, 3, 0.5));  // 10 tokens
  bench.submit(4, 40);
  CHECK(step(bench) == Planned{{0, 4}});  // nobody generates
  bench.submit(5, 40);
  for (int i = 0; i < 3; ++i) CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{1, 5}, {0, 1}});
  // The count begins again. Two prompts and two decodes are 10 tokens.
  bench.submit(5, 40);
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  bench.submit(3, 40);
  CHECK(step(bench) == Planned{{2, 5}, {3, 3}, {0, 1}, {1, 1}});
  // A whole prompt counts where a chunk has room: 30 tokens with 4 decodes.
  bench.submit(30, 40);
  CHECK(step(bench) == Planned{{4, 16}, {0, 1}, {1, 1}, {2, 1}, {3, 1}});
  CHECK(step(bench) == Planned{{4, 14}, {0, 1}, {1, 1}, {2, 1}, {3, 1}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: a context waits between its chunks, too", "[policies]") {
  Bench bench(with_batch_wait(Capacity::MaxUtilization, 2, 0.9));  // 18 tokens
  bench.submit(12, 40);
  bench.submit(12, 2);
  CHECK(step(bench) == Planned{{0, 12}, {1, 8}});
  for (int i = 0; i < 2; ++i) CHECK(step(bench) == Planned{{0, 1}});  // 12 and 1
  CHECK(step(bench) == Planned{{1, 4}, {0, 1}});
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  // Steps without contexts leave the count alone.
  bench.submit(3, 40);
  CHECK(step(bench) == Planned{{0, 1}});
  bench.engine.abort(RequestId{2});
  CHECK(step(bench) == Planned{{0, 1}});
  bench.submit(3, 40);
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{3, 3}, {0, 1}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: one key alone lets no context wait", "[policies]") {
  for (const bool has_limit : {false, true}) {
    Bench bench(with_batch_wait(Capacity::GuaranteedNoEvict, has_limit ? 3 : 0, has_limit ? 0 : 1));
    bench.submit(4, 9);
    step(bench);
    bench.submit(5, 9);
    CHECK(step(bench) == Planned{{1, 5}, {0, 1}});
    bench.engine.drain();
  }
}

TEST_CASE("tensorrt_llm: MAX_UTILIZATION pauses those that started last", "[policies]") {
  Bench bench(without_reuse(tensorrt_llm(Capacity::MaxUtilization, 4)));
  for (int i = 0; i < 3; ++i) bench.submit(4, 8);
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}, {2, 4}});  // one block each, one is left
  // Positions 5: request 0 takes the block, request 1 that of request 2.
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(preempted_last(bench) == Ints{2});
  for (int i = 0; i < 3; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  // Position 9 of request 0: the 2 blocks of request 1 are freed.
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == Ints{1});
  // 4 + 5 tokens of request 1 need 3 blocks of 1.
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(step(bench) == Planned{{0, 1}});
  // In order of arrival: 1 takes 3 of the 4 blocks, 2 needs 2.
  CHECK(step(bench) == Planned{{1, 9}});
  CHECK(step(bench) == Planned{{1, 1}});
  CHECK(step(bench) == Planned{{1, 1}});
  CHECK(step(bench) == Planned{{2, 5}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: MAX_UTILIZATION tries nobody behind one that is paused or does not fit",
          "[policies]") {
  Bench bench(without_reuse(tensorrt_llm(Capacity::MaxUtilization, 5)));
  bench.submit(4, 5);
  bench.submit(4, 5);
  bench.submit(8, 5);
  CHECK(step(bench) == Planned{{0, 4}, {1, 4}, {2, 8}});  // 4 of 5 blocks
  bench.submit(2, 2);
  // Positions 5: request 0 takes the fifth block, request 1 one of the two of request 2. One is
  // left, which request 3 could take.
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(preempted_last(bench) == Ints{2});
  // 8 + 1 tokens of request 2 need 3 blocks of 1.
  for (int i = 0; i < 3; ++i) CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(step(bench) == Planned{{2, 9}, {3, 2}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: MAX_UTILIZATION may pause the request itself", "[policies]") {
  EngineSetup setup = without_reuse(tensorrt_llm(Capacity::MaxUtilization, 3));
  setup.async_depth = GENERATE(1, 2);  // with a token in flight it must not come back at once
  CAPTURE(setup.async_depth);
  Bench bench(setup);
  bench.submit(5, 3);  // 2 blocks, enough to the end
  bench.submit(4, 3);  // position 5 needs a second one
  CHECK(step(bench) == Planned{{0, 5}, {1, 4}});
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == Ints{1});
  CHECK(step(bench) == Planned{{0, 1}});
  if (setup.async_depth == 2) CHECK(step(bench) == Planned{});  // the last token of 0 is in flight
  CHECK(step(bench) == Planned{{1, 5}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: MAX_UTILIZATION goes by arrival, not by who has started", "[policies]") {
  const SharedPrompts prompts({{{1, 8}}, {{1, 8}, {2, 4}}, {{3, 8}}});
  Bench bench(tensorrt_llm(Capacity::MaxUtilization, 6), prompts.hasher());
  bench.submit(8, 5);
  bench.submit(12, 3);
  bench.submit(8, 5);
  // Request 1 waits for the prefix that request 0 computes; 4 of 6 blocks are taken.
  CHECK(step(bench) == Planned{{0, 8}, {2, 8}});
  // Position 9 of request 0 takes one block. Request 1 is counted with all its 3 blocks, cached or
  // not, so request 2 is paused for it. 8 of its 12 tokens are cached.
  CHECK(step(bench) == Planned{{1, 4}, {0, 1}});
  CHECK(preempted_last(bench) == Ints{2});
  // 3 + 1 blocks hold 0 and 1, who share 2; 8 + 1 tokens of request 2 need 3 of the 2 left.
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
  bench.engine.drain();
  CHECK(bench[RequestId{2}].num_output_tokens() == 5);
}

TEST_CASE("tensorrt_llm: a request whose last token is in flight gets no other", "[policies]") {
  for (const Capacity capacity :
       {Capacity::GuaranteedNoEvict, Capacity::MaxUtilization, Capacity::StaticBatch}) {
    EngineSetup setup = tensorrt_llm(capacity, 100);
    setup.async_depth = 2;
    Bench bench(setup);
    bench.submit(4, 2);
    CHECK(step(bench) == Planned{{0, 4}});
    CHECK(step(bench) == Planned{{0, 1}});
    CHECK(step(bench) == Planned{});
  }
}

TEST_CASE("tensorrt_llm: no more than max_num_seqs are let through", "[policies]") {
  EngineSetup setup = without_reuse(tensorrt_llm(Capacity::GuaranteedNoEvict, 100));
  for (const Capacity capacity :
       {Capacity::GuaranteedNoEvict, Capacity::MaxUtilization, Capacity::StaticBatch}) {
    setup.scheduler.edit<TensorRtLlmConfig>().capacity_scheduler_policy = capacity;
    setup.max_num_seqs = 2;
    Bench bench(setup);
    for (int i = 0; i < 3; ++i) bench.submit(4, 2);
    CHECK(step(bench) == Planned{{0, 4}, {1, 4}});
    CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{2, 4}});
  }
}

TEST_CASE("tensorrt_llm: a request whose last token is in flight keeps its seat", "[policies]") {
  for (const Capacity capacity : {Capacity::GuaranteedNoEvict, Capacity::MaxUtilization}) {
    EngineSetup setup = without_reuse(tensorrt_llm(capacity, 100));
    setup.async_depth = 2;
    setup.max_num_seqs = 2;
    Bench bench(setup);
    bench.submit(4, 2);
    bench.submit(4, 9);
    bench.submit(4, 2);
    CHECK(step(bench) == Planned{{0, 4}, {1, 4}});
    CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{1, 1}});  // the second token of 0 is in flight: 0 and 1 are two
    CHECK(step(bench) == Planned{{2, 4}, {1, 1}});
    bench.engine.drain();
  }
}

TEST_CASE("tensorrt_llm: FIRST_COME_FIRST_SERVED rounds truncated chunks down", "[policies]") {
  EngineSetup setup = roomy(Chunking::FirstComeFirstServed, 16);
  SECTION("to KV blocks") {
    Bench bench(setup);
    bench.submit(10, 3);
    bench.submit(9, 3);
    bench.submit(5, 3);
    // 24 > 16: 10 of 10; 6 left of 9: one block; 2 left: none.
    CHECK(step(bench) == Planned{{0, 10}, {1, 4}});
    CHECK(bench[RequestId{2}].state == RequestState::Waiting);
    // One decode leaves 15 for 5 + 5.
    CHECK(step(bench) == Planned{{1, 5}, {2, 5}, {0, 1}});
    bench.engine.drain();
  }
  SECTION("to chunk_unit_size") {
    setup.scheduler.edit<TensorRtLlmConfig>().chunk_unit_size = 8;
    setup.scheduler.edit<TensorRtLlmConfig>().max_num_tokens = 15;
    Bench bench(setup);
    bench.submit(21, 2);
    CHECK(step(bench) == Planned{{0, 8}});
    CHECK(step(bench) == Planned{{0, 13}});  // what completes a prompt is not rounded
  }
}

TEST_CASE("tensorrt_llm: EQUAL_PROGRESS hands out units in turn", "[policies]") {
  Bench bench(roomy(Chunking::EqualProgress, 18));
  bench.submit(10, 3);
  bench.submit(9, 3);
  bench.submit(5, 3);
  // 24 > 18. First round 4, 4, 4: 6 left; second 4, none (2 left), 1: 1 left; third none.
  CHECK(step(bench) == Planned{{0, 8}, {1, 4}, {2, 5}});
  // One decode leaves 17 for 2 + 5.
  CHECK(step(bench) == Planned{{0, 2}, {1, 5}, {2, 1}});
  bench.engine.drain();

  // 5 left after the first round, 1 after the four of request 0: just enough to complete request 2.
  Bench full(roomy(Chunking::EqualProgress, 17));
  for (const int prompt : {10, 9, 5}) full.submit(prompt, 3);
  CHECK(step(full) == Planned{{0, 8}, {1, 4}, {2, 5}});
  full.engine.drain();
}

TEST_CASE("tensorrt_llm: generation comes before contexts in max_num_tokens", "[policies]") {
  Bench bench(roomy(Chunking::FirstComeFirstServed, 8));
  bench.submit(8, 9);
  CHECK(step(bench) == Planned{{0, 8}});
  bench.submit(8, 2);
  CHECK(step(bench) == Planned{{1, 4}, {0, 1}});  // 7 tokens are left: one unit
  CHECK(step(bench) == Planned{{1, 4}, {0, 1}});
}

TEST_CASE("tensorrt_llm: without chunked context a step takes whole prompts", "[policies]") {
  EngineSetup setup = tensorrt_llm(Capacity::MaxUtilization, 100, 12);
  setup.scheduler.edit<TensorRtLlmConfig>().enable_chunked_context = false;
  const SharedPrompts prompts({{{1, 8}}, {{1, 8}, {2, 4}}, {{3, 2}}});
  Bench bench(setup, prompts.hasher());
  bench.submit(8, 2);
  bench.submit(12, 3);
  bench.submit(2, 9);
  CHECK(step(bench) == Planned{{0, 8}, {2, 2}});  // 1 waits for the prefix
  // In order: a token of 0, and then 12 > 11, however much of it is cached; 2 is not reached.
  CHECK(step(bench) == Planned{{0, 1}});
  // 12 of 12, and no token is left for 2.
  CHECK(step(bench) == Planned{{1, 4}});
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});
  bench.engine.drain();
}

TEST_CASE("tensorrt_llm: a context waits for a block that another one computes", "[policies]") {
  const SharedPrompts prompts({{{1, 16}}, {{1, 16}, {2, 4}}, {{3, 4}}});
  const auto submit_all = [](Bench& bench) {
    bench.submit(16, 4);
    bench.submit(20, 4);
    bench.submit(4, 4);
  };
  SECTION("in the same step; others go ahead") {
    Bench bench(tensorrt_llm(Capacity::GuaranteedNoEvict, 100), prompts.hasher());
    submit_all(bench);
    CHECK(step(bench) == Planned{{0, 16}, {2, 4}});
    CHECK(step(bench) == Planned{{1, 4}, {0, 1}, {2, 1}});
    CHECK(bench[RequestId{1}].block_table[3] == bench[RequestId{0}].block_table[3]);
  }
  SECTION("as long as it goes on in chunks") {
    for (const Capacity capacity : {Capacity::GuaranteedNoEvict, Capacity::MaxUtilization}) {
      Bench bench(tensorrt_llm(capacity, 100, 8), prompts.hasher());
      bench.submit(16, 4);
      bench.submit(20, 4);
      CHECK(step(bench) == Planned{{0, 8}});
      CHECK(step(bench) == Planned{{0, 8}});  // two blocks are there, the third is under way
      CHECK(step(bench) == Planned{{1, 4}, {0, 1}});
    }
  }
  SECTION("and while its step is in flight") {
    EngineSetup setup = tensorrt_llm(Capacity::GuaranteedNoEvict, 100);
    setup.async_depth = 2;
    Bench bench(setup, prompts.hasher());
    bench.submit(16, 4);
    bench.submit(20, 4);
    CHECK(step(bench) == Planned{{0, 16}});
    CHECK(step(bench) == Planned{{0, 1}});
    CHECK(step(bench) == Planned{{1, 4}, {0, 1}});
  }
  SECTION("but not under STATIC_BATCH") {
    Bench bench(tensorrt_llm(Capacity::StaticBatch, 100), prompts.hasher());
    submit_all(bench);
    CHECK(step(bench) == Planned{{0, 16}, {1, 20}, {2, 4}});
  }
  SECTION("nor without block reuse") {
    Bench bench(without_reuse(tensorrt_llm(Capacity::GuaranteedNoEvict, 100)), prompts.hasher());
    submit_all(bench);
    CHECK(step(bench) == Planned{{0, 16}, {1, 20}, {2, 4}});
  }
}

TEST_CASE("tensorrt_llm: a hit shortens the last chunk and shifts the others", "[policies]") {
  const SharedPrompts prompts({{{1, 8}}, {{1, 8}, {2, 20}}});
  Bench bench(tensorrt_llm(Capacity::GuaranteedNoEvict, 100, 16), prompts.hasher());
  bench.submit(8, 1);
  CHECK(step(bench) == Planned{{0, 8}});
  bench.submit(28, 2);
  // 28 > 16: a chunk of 16, which begins behind the 8 tokens that are cached; then 28 - 24.
  CHECK(step(bench) == Planned{{1, 16}});
  CHECK(step(bench) == Planned{{1, 4}});
}

TEST_CASE("tensorrt_llm: what can never be served is refused", "[policies]") {
  const auto reason_for = [](const EngineSetup& setup, int prompt, int output) {
    Bench bench(setup);
    return bench[bench.submit(prompt, output)].end_reason;
  };
  SECTION("blocks to completion: 4 + 5 tokens are 3 blocks, though 8 of them are cached") {
    CHECK(reason_for(tensorrt_llm(Capacity::GuaranteedNoEvict, 2), 4, 5) == EndReason::NeverFits);
    CHECK(reason_for(tensorrt_llm(Capacity::GuaranteedNoEvict, 2), 4, 4) == EndReason::None);
    CHECK(reason_for(tensorrt_llm(Capacity::StaticBatch, 2), 4, 5) == EndReason::NeverFits);
    CHECK(reason_for(tensorrt_llm(Capacity::MaxUtilization, 2), 4, 5) == EndReason::None);
    CHECK(reason_for(tensorrt_llm(Capacity::MaxUtilization, 2), 4, 6) == EndReason::NeverFits);
  }
  SECTION("a prompt that no step has room for") {
    EngineSetup setup = tensorrt_llm(Capacity::GuaranteedNoEvict, 100, 8);
    CHECK(reason_for(setup, 9, 1) == EndReason::None);
    setup.scheduler.edit<TensorRtLlmConfig>().chunk_unit_size = 12;
    CHECK(reason_for(setup, 9, 1) == EndReason::NeverFits);
    CHECK(reason_for(setup, 8, 1) == EndReason::None);
    setup.scheduler.edit<TensorRtLlmConfig>().chunk_unit_size = 0;
    setup.scheduler.edit<TensorRtLlmConfig>().enable_chunked_context = false;
    CHECK(reason_for(setup, 9, 1) == EndReason::NeverFits);
    CHECK(reason_for(setup, 8, 1) == EndReason::None);
  }
  SECTION("a paused request that has grown too long to be computed at once") {
    EngineSetup setup = without_reuse(tensorrt_llm(Capacity::MaxUtilization, 2, 4));
    setup.scheduler.edit<TensorRtLlmConfig>().enable_chunked_context = false;
    Bench bench(setup);
    bench.submit(2, 6);
    bench.submit(2, 7);
    CHECK(step(bench) == Planned{{0, 2}, {1, 2}});
    CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{0, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{0, 1}});  // position 5 takes the block of request 1
    CHECK(step(bench) == Planned{{0, 1}});
    CHECK(bench[RequestId{1}].end_reason == EndReason::NeverFits);  // 2 + 3 tokens, 4 in a step
    bench.engine.drain();
    CHECK(bench[RequestId{0}].end_reason == EndReason::Length);
  }
}

}  // namespace metronome::testing::TEST_FILE
