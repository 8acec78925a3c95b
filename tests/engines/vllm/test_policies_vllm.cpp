// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of the vllm policy from engine_semantics. Where nothing else is
// said a block is 4 tokens, and `usable` blocks are numbered from 1: block 0 is the null block.
#include "engines/vllm/settings.h"
#include "tests/core/engine/kv/cache_bench.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Steps = std::vector<Planned>;
using Ints = std::vector<int>;

// Version 0.`minor`.
void set_version(int minor, EngineSetup& setup) {
  setup.scheduler.edit<VllmConfig>().version = minor - kFirstVllmMinor;
  arrange_cache(setup);
}

// By the rules of 0.22.
EngineSetup vllm(std::int64_t usable, std::int32_t budget, std::int32_t block_size = 4) {
  EngineSetup setup = make_setup("vllm");
  set_version(22, setup);
  setup.kv_cache = {.num_blocks = usable + 1, .block_size = block_size};
  setup.scheduler.max_num_batched_tokens = budget;
  arrange_cache(setup);
  return setup;
}

EngineSetup by_priority(EngineSetup setup) {
  setup.scheduler.edit<VllmConfig>().scheduling_policy = VllmConfig::Policy::Priority;
  return setup;
}

Steps next_steps(Bench& bench, int count) {
  Steps steps;
  for (int i = 0; i < count; ++i) steps.push_back(step(bench));
  return steps;
}

// In order of submission.
Ints waiting_ids(const Bench& bench) {
  Ints ids;
  for (std::uint32_t i = 0; i < bench.engine.requests().size(); ++i) {
    if (bench[RequestId{i}].state == RequestState::Waiting) ids.push_back(static_cast<int>(i));
  }
  return ids;
}

}  // namespace

TEST_CASE("vllm: equal prompts of one step share what the first of them computes",
          "[core][policies]") {
  // 100 tokens are 6 full blocks of 16 and 4 tokens. The last token has to be computed, so 96 are
  // hit; the second takes one block of its own.
  const SharedPrompts prompts({{{kA, 100}}, {{kA, 100}}});
  EngineSetup setup = vllm(100, 2048, 16);
  SECTION("with prefix caching") {
    Bench bench(setup, prompts.hasher());
    bench.submit(100, 2);
    const RequestId second = bench.submit(100, 2);
    CHECK(step(bench) == Planned{{0, 100}, {1, 4}});
    CHECK(bench.engine.kv_cache().num_used_blocks() == 7 + 1);
    CHECK(bench[second].num_prefix_hit_tokens == 96);
  }
  SECTION("without") {
    setup.kv_cache.enable_prefix_caching = false;
    Bench bench(setup, prompts.hasher());
    bench.submit(100, 2);
    bench.submit(100, 2);
    CHECK(step(bench) == Planned{{0, 100}, {1, 100}});
    CHECK(bench.engine.kv_cache().num_used_blocks() == 7 + 7);
  }
}

TEST_CASE("vllm: a budget goes to the running in order of admission, then to the queue",
          "[core][policies]") {
  // 16 tokens: 0 takes 4, 1 what is left. Then 0 decodes and 1 takes 15; then its last 3, and 2.
  Bench bench(vllm(100, 16));
  bench.submit(4, 5);
  bench.submit(30, 5);
  bench.submit(4, 5);
  CHECK(next_steps(bench, 4) == Steps{{{0, 4}, {1, 12}},
                                      {{0, 1}, {1, 15}},
                                      {{0, 1}, {1, 3}, {2, 4}},
                                      {{0, 1}, {1, 1}, {2, 1}}});
}

TEST_CASE("vllm: a threshold lets two long prompts advance together", "[core][policies]") {
  EngineSetup setup = vllm(100, 64);
  setup.scheduler.edit<VllmConfig>().long_prefill_token_threshold = 20;
  SECTION("all of them fit") {
    Bench bench(setup);
    bench.submit(50, 3);
    bench.submit(50, 3);
    bench.submit(8, 3);
    CHECK(next_steps(bench, 3) == Steps{{{0, 20}, {1, 20}, {2, 8}},
                                        {{0, 20}, {1, 20}, {2, 1}},
                                        {{0, 10}, {1, 10}, {2, 1}}});
  }
  SECTION("a prompt admitted earlier comes before a decode, and can starve it") {
    // 22 tokens: 20 of them go to 0 while its prompt lasts. 20 tokens: all of them.
    setup.scheduler.max_num_batched_tokens = 22;
    Bench bench(setup);
    bench.submit(44, 3);
    bench.submit(2, 9);
    bench.submit(9, 3);
    CHECK(next_steps(bench, 3) ==
          Steps{{{0, 20}, {1, 2}}, {{0, 20}, {1, 1}, {2, 1}}, {{0, 4}, {1, 1}, {2, 8}}});
    setup.scheduler.max_num_batched_tokens = 20;
    Bench tight(setup);
    tight.submit(64, 3);
    tight.submit(2, 9);
    CHECK(next_steps(tight, 5) ==
          Steps{{{0, 20}}, {{0, 20}}, {{0, 20}}, {{0, 4}, {1, 2}}, {{0, 1}, {1, 1}}});
  }
}

TEST_CASE("vllm: a request with nothing to compute is passed over", "[core][policies]") {
  // Two steps in flight. Step 1 computes the last token of 0, whose result comes after step 2 is
  // planned: 0 still runs, and 1 behind it decodes. 2 waits for a place.
  EngineSetup setup = vllm(100, 64);
  setup.async_depth = 2;
  setup.kv_cache.plans_ahead = true;
  setup.max_num_seqs = 2;
  Bench bench(setup);
  bench.submit(4, 2);
  bench.submit(4, 5);
  bench.submit(4, 2);
  CHECK(next_steps(bench, 2) == Steps{{{0, 4}, {1, 4}}, {{0, 1}, {1, 1}}});
  CHECK(bench[RequestId{0}].state == RequestState::Decode);
  CHECK(next_steps(bench, 2) == Steps{{{1, 1}}, {{1, 1}, {2, 4}}});
  bench.engine.drain();
  CHECK(bench.journal.num_emitted.at(RequestId{0}) == 2);
}

TEST_CASE("vllm: the tail is preempted, comes back with its own prefix and goes on",
          "[core][policies]") {
  // 4 blocks. 0 has blocks 1 and 2, 1 has 3 and 4; with their second token both have 8 tokens. In
  // step 2 the 9th of 0 needs a block: 1 gives back 4 and then 3, and 0 takes 4. Block 3 is free,
  // 2 would fit in it, but 1 stands at the head of the queue.
  Bench bench(vllm(4, 64));
  const RequestId first = bench.submit(7, 4);
  const RequestId victim = bench.submit(7, 4);
  CHECK(next_steps(bench, 2) == Steps{{{0, 7}, {1, 7}}, {{0, 1}, {1, 1}}});
  const RequestId small = bench.submit(1, 2);
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == Ints{1});
  CHECK(bench[first].block_table == table_of({1, 2, 4}));
  CHECK(waiting_ids(bench) == Ints{1, 2});
  CHECK(bench[victim].num_output_tokens() == 2);
  CHECK(bench[victim].num_computed_tokens() == 0);
  // Step 3: 1 has 9 tokens, three blocks, of which it finds 3 again, which is free: one is free of
  // the three it takes. 2 stands behind it and waits, though it fits. 0 ends with this step.
  CHECK(bench.engine.kv_cache().num_free_blocks() == 1);
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(preempted_last(bench).empty());
  CHECK(bench[small].state == RequestState::Waiting);
  CHECK(bench[first].state == RequestState::Finished);
  // Step 4: free are 3 4 2 1. 1 finds four tokens, computes five and takes 4 and 2; 2 takes 1.
  CHECK(step(bench) == Planned{{1, 5}, {2, 1}});
  CHECK(bench.executor.plans.back().chunks.front().first_position == 4);
  CHECK(bench[victim].block_table == table_of({3, 4, 2}));
  CHECK(bench[victim].num_output_tokens() == 3);
  CHECK(bench[victim].num_prefix_hit_tokens == 0);  // when it was first admitted
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});
  CHECK(bench.journal.num_emitted.at(victim) == 4);
  CHECK_FALSE(bench.engine.has_work());
}

TEST_CASE("vllm: a preempted request still gets the token of its step in flight",
          "[core][policies]") {
  // Two steps are in flight: 1 is preempted by step 2 while step 1 computes its decode.
  EngineSetup setup = vllm(4, 64);
  setup.async_depth = 2;
  setup.kv_cache.plans_ahead = true;
  Bench bench(setup);
  bench.submit(7, 4);
  const RequestId victim = bench.submit(7, 2);
  const RequestId other = bench.submit(7, 9);
  CHECK(next_steps(bench, 3) == Steps{{{0, 7}, {1, 7}}, {{0, 1}, {1, 1}}, {{0, 1}}});
  // Its second token was its last: it ends in the queue.
  CHECK(preempted_last(bench) == Ints{1});
  CHECK(bench[victim].state == RequestState::Finished);
  CHECK(bench[victim].num_output_tokens() == 2);
  CHECK(waiting_ids(bench) == Ints{static_cast<int>(index(other))});
  bench.engine.drain();
}

TEST_CASE("vllm: a request that makes room for itself ends the running phase", "[core][policies]") {
  // 6 blocks, by priority. 0, the worst, was admitted first and has 8 tokens in blocks 1 and 2; its
  // 9th needs a block, and the worst is itself. Those behind it do not run in that step either.
  Bench bench(by_priority(vllm(6, 64)));
  bench.submit(6, 9, 9);
  CHECK(step(bench) == Planned{{0, 6}});
  bench.submit(6, 9, 0);
  bench.submit(6, 9, 0);
  CHECK(next_steps(bench, 2) == Steps{{{0, 1}, {1, 6}, {2, 6}}, {{0, 1}, {1, 1}, {2, 1}}});
  CHECK(step(bench).empty());
  CHECK(waiting_ids(bench) == Ints{0});
  CHECK(bench[RequestId{0}].num_preemptions == 1);
  // Its 9 tokens need three blocks, two are free.
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});
}

TEST_CASE("vllm: by priority the worst is preempted, out of the step if need be",
          "[core][policies]") {
  // 4 blocks. In step 3 the 8th token of 0 fits, the 9th of 1 does not: 0 is served already, but
  // worse, and goes. Of its two blocks one is left, which 2 at the head of the queue could use, but
  // nobody is admitted in a step that preempted.
  Bench bench(by_priority(vllm(4, 64)));
  bench.submit(5, 9, 9);
  CHECK(step(bench) == Planned{{0, 5}});
  const RequestId better = bench.submit(7, 9, 0);
  CHECK(next_steps(bench, 2) == Steps{{{0, 1}, {1, 7}}, {{0, 1}, {1, 1}}});
  bench.submit(1, 2, 1);
  CHECK(step(bench) == Planned{{1, 1}});
  CHECK(preempted_last(bench) == Ints{0});
  CHECK(bench.executor.plans.back().num_tokens() == 1);
  CHECK(bench.engine.kv_cache().num_free_blocks() == 1);
  CHECK(bench[better].block_table.size() == 3);
  CHECK(bench[RequestId{0}].num_output_tokens() == 3);  // of steps 0, 1 and 2
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});
  bench.engine.drain();
  CHECK(bench.journal.num_emitted.at(RequestId{0}) == 9);
}

TEST_CASE("vllm: tokens of a request taken out of the step go to the others", "[core][policies]") {
  // 8 blocks, 8 tokens a step. After two steps 0 has its 16 tokens in four blocks, after three a
  // fifth; 1 has one block. In step 4, 0 decodes (7 tokens left), the 5th token of 1 needs a block
  // and none is free: 0 goes, 8 tokens are left again, 1 takes one and the prompt of 2 takes 7.
  EngineSetup setup = by_priority(vllm(8, 8));
  setup.scheduler.edit<VllmConfig>().scheduler_reserve_full_isl = false;
  Bench bench(setup);
  bench.submit(16, 9, 9);
  CHECK(next_steps(bench, 2) == Steps{{{0, 8}}, {{0, 8}}});
  bench.submit(3, 9, 0);
  CHECK(step(bench) == Planned{{0, 1}, {1, 3}});
  bench.submit(30, 2, 1);
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}, {2, 6}});
  REQUIRE(bench.engine.kv_cache().num_free_blocks() == 0);
  CHECK(step(bench) == Planned{{1, 1}, {2, 7}});
  CHECK(preempted_last(bench) == Ints{0});
}

TEST_CASE("vllm: among equal priorities the earlier arrival wins", "[core][policies]") {
  // 4 blocks. 0 is admitted first, its 8th token fits in step 3; 1, the tail, needs a block for its
  // 9th. Who goes is not the tail but who arrived later.
  const auto preempted = [](TimeNs arrival_of_0, TimeNs arrival_of_1) {
    Bench bench(by_priority(vllm(4, 64)));
    bench.clock.wait_until(5 * kNsPerMs);
    bench.engine.submit({arrival_of_0, 5, 9, 3});
    CHECK(step(bench) == Planned{{0, 5}});
    bench.engine.submit({arrival_of_1, 7, 9, 3});
    CHECK(next_steps(bench, 2) == Steps{{{0, 1}, {1, 7}}, {{0, 1}, {1, 1}}});
    step(bench);
    return preempted_last(bench);
  };
  CHECK(preempted(2 * kNsPerMs, 1 * kNsPerMs) == Ints{0});
  CHECK(preempted(1 * kNsPerMs, 2 * kNsPerMs) == Ints{1});
  CHECK(preempted(1 * kNsPerMs, 1 * kNsPerMs) == Ints{1});  // of equals the one submitted last

  EngineSetup setup = by_priority(vllm(100, 64));
  setup.max_num_seqs = 1;
  Bench bench(setup);
  bench.clock.wait_until(5 * kNsPerMs);
  bench.engine.submit({4 * kNsPerMs, 5, 1, 3});
  bench.engine.submit({2 * kNsPerMs, 5, 1, 3});
  bench.engine.submit({5 * kNsPerMs, 5, 1, 2});
  bench.engine.submit({2 * kNsPerMs, 5, 1, 3});
  CHECK(next_steps(bench, 4) == Steps{{{2, 5}}, {{1, 5}}, {{3, 5}}, {{0, 5}}});
}

TEST_CASE("vllm: a prompt is admitted when all of it has room, or its first chunk",
          "[core][policies]") {
  // 6 blocks, 8 tokens a step. In step 1, 0 takes its third block; of 1's prompt seven tokens can
  // be computed, two blocks.
  const auto second_step = [](bool reserves, std::int32_t prompt, std::int64_t usable) {
    EngineSetup setup = vllm(usable, 8);
    setup.scheduler.edit<VllmConfig>().scheduler_reserve_full_isl = reserves;
    Bench bench(setup);
    bench.submit(8, 9);
    CHECK(step(bench) == Planned{{0, 8}});
    bench.submit(prompt, 2);
    return step(bench);
  };
  CHECK(second_step(true, 12, 6) == Planned{{0, 1}, {1, 7}});
  CHECK(second_step(true, 13, 6) == Planned{{0, 1}});
  CHECK(second_step(false, 13, 6) == Planned{{0, 1}, {1, 7}});
  CHECK(second_step(false, 12, 5) == Planned{{0, 1}, {1, 7}});
  CHECK(second_step(false, 12, 4) == Planned{{0, 1}});
}

TEST_CASE("vllm: cached blocks that a prompt hits are not free to it", "[core][policies]") {
  // Six blocks. 0 leaves three cached ones. The prompt of 2 needs four: three hits, which are free
  // and so count too, and a new one. Beside 1 with two blocks four are free, beside 1 with three
  // they are not.
  const SharedPrompts prompts({{{kA, 12}}, {{kB, 8}}, {{kA, 12}, {kB, 4}}});
  for (const std::int32_t prompt : {7, 8}) {
    Bench bench(vllm(6, 64), prompts.hasher());
    bench.submit(12, 1);
    CHECK(step(bench) == Planned{{0, 12}});
    bench.submit(prompt, 5);
    CHECK(step(bench) == Planned{{1, prompt}});
    bench.submit(16, 1);
    // The 8th token of 1 fits, its 9th takes a third block.
    CHECK(step(bench) == (prompt == 7 ? Planned{{1, 1}, {2, 4}} : Planned{{1, 1}}));
  }
}

TEST_CASE("vllm: prompts are not chunked when that is switched off", "[core][policies]") {
  EngineSetup setup = vllm(100, 16);
  setup.scheduler.edit<VllmConfig>().enable_chunked_prefill = false;
  SECTION("one that is longer than what is left waits, and all behind it") {
    Bench bench(setup);
    for (const std::int32_t prompt : {10, 10, 4}) bench.submit(prompt, 5);
    CHECK(next_steps(bench, 2) == Steps{{{0, 10}}, {{0, 1}, {1, 10}, {2, 4}}});
  }
  SECTION("exactly what is left is not longer") {
    Bench bench(setup);
    for (const std::int32_t prompt : {10, 6, 1}) bench.submit(prompt, 5);
    CHECK(step(bench) == Planned{{0, 10}, {1, 6}});
  }
  SECTION("the threshold chunks all the same") {
    setup.scheduler.edit<VllmConfig>().long_prefill_token_threshold = 6;
    Bench bench(setup);
    for (const std::int32_t prompt : {10, 10, 10}) bench.submit(prompt, 5);
    CHECK(next_steps(bench, 2) == Steps{{{0, 6}, {1, 6}}, {{0, 4}, {1, 4}, {2, 6}}});
  }
}

TEST_CASE("vllm: the watermark stays free when somebody runs", "[core][policies]") {
  const auto watermark = [](std::int64_t usable) {
    EngineSetup setup = vllm(usable, 64);
    setup.kv_cache.watermark_blocks = 4;
    return setup;
  };
  SECTION("not for the first one: 8 of 10 blocks") {
    Bench bench(watermark(10));
    bench.submit(32, 2);
    CHECK(step(bench) == Planned{{0, 32}});
  }
  SECTION("for one admitted beside another, in the same step too") {
    // 0 takes two of ten blocks: 8 - 4 are left for 1.
    for (const std::int32_t prompt : {16, 17}) {
      Bench bench(watermark(10));
      bench.submit(8, 9);
      bench.submit(prompt, 2);
      CHECK(step(bench) == (prompt == 16 ? Planned{{0, 8}, {1, 16}} : Planned{{0, 8}}));
    }
  }
  SECTION("for the first chunk alone, without the reservation") {
    for (const std::int64_t usable : {9, 10}) {
      EngineSetup setup = watermark(usable);
      setup.scheduler.edit<VllmConfig>().scheduler_reserve_full_isl = false;
      setup.scheduler.max_num_batched_tokens = 24;
      Bench bench(setup);
      bench.submit(8, 9);
      bench.submit(17, 2);  // 16 tokens of it: four blocks
      CHECK(step(bench) == (usable == 10 ? Planned{{0, 8}, {1, 16}} : Planned{{0, 8}}));
    }
  }
  SECTION("running requests may take it") {
    Bench bench(watermark(3));
    bench.submit(8, 4);
    CHECK(next_steps(bench, 4) == Steps{{{0, 8}}, {{0, 1}}, {{0, 1}}, {{0, 1}}});
  }
}

TEST_CASE("vllm: which block is reused first", "[core][policies]") {
  // 0 ends with block 1, which is hashed, and 2, which is not full. Free are 3 4 5 6 2 1; from 0.24
  // on 2 3 4 5 6 1.
  for (const bool evicts_unhashed_first : {false, true}) {
    EngineSetup setup = vllm(6, 64);
    set_version(evicts_unhashed_first ? 24 : 23, setup);
    Bench bench(setup);
    bench.submit(6, 1);
    CHECK(step(bench) == Planned{{0, 6}});
    const RequestId next = bench.submit(7, 2);
    CHECK(step(bench) == Planned{{1, 7}});
    CHECK(bench[next].block_table == (evicts_unhashed_first ? table_of({2, 3}) : table_of({3, 4})));
  }
}

TEST_CASE("vllm: an undone chunk leaves its hashes, unless they are to be forgotten",
          "[core][policies]") {
  // 9 blocks, at most 8 tokens of a request in a step. Request 0, the worst, takes 1 2, 3 4, 6 7
  // and 8 9 for its 32 tokens, request 1 takes 5. In step 3 the last chunk of 0 is planned when the
  // 5th token of 1 finds no block: 0 goes, 24 of its tokens computed, and gives back 9 8 7 ..., of
  // which 1 takes 9. Block 8, for tokens 24 to 27, is hashed but was never filled. 1 ends.
  const SharedPrompts prompts({{{kA, 32}}, {{kB, 3}}});
  for (const bool forgets : {false, true}) {
    EngineSetup setup = by_priority(vllm(9, 12));
    setup.scheduler.edit<VllmConfig>().long_prefill_token_threshold = 8;
    setup.kv_cache.forgets_unfilled_blocks = forgets;
    Bench bench(setup, prompts.hasher());
    bench.submit(32, 1, 9);
    CHECK(step(bench) == Planned{{0, 8}});
    bench.submit(3, 3, 0);
    CHECK(next_steps(bench, 3) == Steps{{{0, 8}, {1, 3}}, {{0, 8}, {1, 1}}, {{1, 1}}});
    CHECK(preempted_last(bench) == Ints{0});
    CHECK(step(bench) == Planned{{0, forgets ? 8 : 4}});
    CHECK(bench.executor.plans.back().chunks.front().first_position == (forgets ? 24 : 28));
    CHECK_FALSE(bench.engine.has_work());
  }
}

TEST_CASE("vllm: a hybrid model gives back what its window leaves", "[core][policies]") {
  // A window of 8: with c tokens computed, (c - 7) / 4 blocks of the window's table are given back.
  //   step  computed  tokens  blocks of all tokens + of the window
  //   0      0        8       2 + 2
  //   1      8        8       4 + 4
  //   2     16        8       6 + 6 - 2
  //   3     24        1       7 + 7 - 4
  //   4, 5  25, 26    1       7 + 7 - 4
  //   6     27        1       7 + 7 - 5
  //   7     28        1       8 + 8 - 5
  const SharedPrompts prompts({{{kA, 24}}, {{kA, 24}, {kB, 8}}});
  EngineSetup setup = vllm(40, 8);
  setup.kv_cache.windows.num_tokens = 8;
  arrange_cache(setup);
  Bench bench(setup, prompts.hasher());
  bench.submit(24, 6);
  Ints used;
  for (int i = 0; i < 8; ++i) {
    step(bench);
    used.push_back(bench.executor.plans.back().num_used_blocks);
  }
  CHECK(used == Ints{4, 8, 10, 10, 10, 10, 9, 11});
  CHECK(bench[RequestId{0}].state == RequestState::Finished);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
  // The same 24 tokens and 8 more: found in six blocks of all tokens and the last two of the
  // window.
  const RequestId second = bench.submit(32, 2);
  CHECK(step(bench) == Planned{{1, 8}});
  const BlockTable& window = bench[second].group_tables[0];
  REQUIRE(window.size() == 8);
  for (std::size_t i = 0; i < 8; ++i) CHECK((window[i] == kNullBlock) == (i < 4));
  CHECK(bench.engine.kv_cache().num_used_blocks() == 8 + 4);
  bench.engine.drain();
}

TEST_CASE("vllm: a window's share of the admission is capped", "[core][policies]") {
  // Window 8, 8 tokens a step: one request holds ceil((7 + 8) / 4) + 1 = 5 blocks of the window at
  // most. A prompt of 24 needs 6 + 5 = 11, and takes 10.
  const auto hybrid = [](std::int64_t usable, std::int32_t max_model_len) {
    EngineSetup setup = vllm(usable, 8);
    setup.max_model_len = max_model_len;
    setup.kv_cache.windows.num_tokens = 8;
    arrange_cache(setup);
    return setup;
  };
  CHECK(hybrid(11, 8192).kv_cache.windows.max_blocks == 5);
  CHECK(hybrid(11, 12).kv_cache.windows.max_blocks == 4);  // ceil(12 / 4) + 1
  Bench fits(hybrid(11, 8192));
  fits.submit(24, 1);
  CHECK(next_steps(fits, 3) == Steps{{{0, 8}}, {{0, 8}}, {{0, 8}}});
  Bench refused(hybrid(10, 8192));
  const RequestId never = refused.submit(24, 1);
  CHECK(refused[never].end_reason == EndReason::NeverFits);
}

// Five usable blocks of 16 and three requests that outgrow them together, of one arrival and one
// priority. Were the victim the first of equals, the second and the third would evict each other
// for ever.
TEST_CASE("vllm: equal priorities do not evict each other for ever", "[core][policies]") {
  EngineSetup setup = by_priority(vllm(5, 32, 16));
  setup.kv_cache.enable_prefix_caching = false;
  setup.scheduler.edit<VllmConfig>().scheduler_reserve_full_isl = false;
  setup.scheduler.edit<VllmConfig>().long_prefill_token_threshold = 8;
  Bench bench(setup);
  bench.submit(50, 12);
  bench.submit(41, 20);
  bench.submit(33, 18);
  for (int i = 0; i < 1000 && bench.engine.has_work(); ++i) bench.engine.step();
  CHECK_FALSE(bench.engine.has_work());
}

}  // namespace metronome::testing::TEST_FILE
