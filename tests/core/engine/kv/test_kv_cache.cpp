// SPDX-License-Identifier: Apache-2.0
// KV-cache bookkeeping: which prefixes are found, when, and in which blocks; and what is forgotten
// when a step is not computed after all.
#include "core/engine/kv/kv_cache.h"
#include "engines/vllm/settings.h"
#include "tests/core/engine/kv/cache_bench.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("grow takes blocks only at their borders", "[core][kv]") {
  KvCacheManager kv({.num_blocks = 4, .block_size = 16});
  RequestTable requests;
  Request& request = requests.add({0, 40, 10, 0});
  REQUIRE(kv.admit(request, {}, 16, 0));
  CHECK(request.block_table.size() == 1);
  CHECK(request.kv_ready_tokens == 16);
  REQUIRE(kv.grow(request, 16));
  CHECK(request.block_table.size() == 1);
  CHECK(kv.num_missing_blocks(request) == 2);  // 40 tokens are three blocks
  REQUIRE(kv.grow(request, 17));
  CHECK(request.block_table.size() == 2);
  REQUIRE(kv.grow(request, 64));
  CHECK(kv.num_free_blocks() == 0);
  CHECK_FALSE(kv.grow(request, 65));
  CHECK(request.kv_ready_tokens == 64);
  kv.check_integrity(requests);
  kv.release(request);
  CHECK(kv.num_used_blocks() == 0);
  kv.check_integrity(requests);
}

TEST_CASE("a prompt is admitted when all of it would leave enough free", "[core][kv]") {
  for (const bool is_eager : {false, true}) {
    KvCacheLayout layout = {.num_blocks = 6, .block_size = 4};
    if (is_eager) layout.allocation = KvAllocation::Eager;
    KvCacheManager kv(layout);
    RequestTable requests;
    Request& request = requests.add({0, 13, 10, 0});  // four blocks
    CHECK_FALSE(kv.admit(request, {}, 5, 3));
    CHECK(request.block_table.empty());
    REQUIRE(kv.admit(request, {}, 5, 2));
    CHECK(request.block_table.size() == (is_eager ? 4 : 2));
  }
}

TEST_CASE("the last token of a prompt is always computed", "[core][kv][prefix]") {
  // Blocks of 16; a cached prompt of 32 tokens leaves its last block to compute.
  CacheBench bench(caching(20, 16), {{{kA, 32}},
                                     {{kA, 32}},
                                     {{kA, 32}, {kB, 1}},
                                     {{kA, 31}},
                                     {{kA, 17}},
                                     {{kA, 16}},
                                     {{kB, 40}},
                                     {{kA, 31}, {kB, 9}}});
  CHECK(bench.hit(1) == 0);
  bench.compute(0, 32);
  CHECK(bench.hit(1) == 16);
  CHECK(bench.kv.find_prefix(bench[1]).blocks == table_of({0}));
  CHECK(bench.hit(2) == 32);
  CHECK(bench.hit(3) == 16);
  CHECK(bench.hit(4) == 16);
  CHECK(bench.hit(5) == 0);
  CHECK(bench.hit(6) == 0);
  CHECK(bench.hit(7) == 16);  // its second block differs in the last token
  CHECK(bench.kv.find_prefix(bench[1], 32).num_tokens == 32);
  CHECK(bench.kv.find_prefix(bench[1], 31).num_tokens == 16);
  CHECK(bench.kv.find_prefix(bench[1], 16).num_tokens == 16);
  CHECK(bench.kv.find_prefix(bench[1], 15).num_tokens == 0);
  CHECK(bench.kv.find_prefix(bench[1], 15).blocks.empty());
}

TEST_CASE("a block that is not full is never hit", "[core][kv][prefix]") {
  CacheBench bench(caching(20, 16), {{{kA, 40}}, {{kA, 40}}});
  bench.compute(0, 20);
  CHECK(bench.num_cached_blocks() == 1);
  CHECK(bench.hit(1) == 16);
  bench.compute(0, 31);
  CHECK(bench.hit(1) == 16);
  bench.compute(0, 32);
  CHECK(bench.hit(1) == 32);
  bench.compute(0, 40);
  CHECK(bench.hit(1) == 32);
  CHECK(bench.num_cached_blocks() == 2);
}

TEST_CASE("a hit ends at the first block that is gone", "[core][kv][prefix]") {
  CacheBench bench(caching(6, 4), {{{kA, 12}}, {{kA, 12}, {kB, 1}}, {{kC, 16}}, {{kB, 8}}});
  bench.compute(0, 12);  // blocks 0, 1, 2
  bench.release(0);      // free: 3 4 5 2 1 0
  CHECK(bench.hit(1) == 12);
  bench.compute(2, 16);  // takes 3 4 5 2
  CHECK(bench.hit(1) == 8);
  bench.kv.forget(table_of({0}));
  CHECK(bench.hit(1) == 0);
  CHECK(bench.num_cached_blocks() == 1 + 4);
}

TEST_CASE("hits share blocks in use and take up free ones", "[core][kv][prefix]") {
  CacheBench bench(caching(8, 4), {{{kA, 12}}, {{kA, 12}, {kB, 4}}, {{kA, 8}, {kC, 4}}});
  bench.compute(0, 12);
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 16) == 1);
  bench.compute(1, 16);
  CHECK(bench[1].block_table == table_of({0, 1, 2, 3}));
  CHECK(bench.kv.pool().ref_count(BlockId{2}) == 2);
  CHECK(bench.kv.num_free_blocks() == 4);

  bench.release(0);  // all of its blocks are still in use
  CHECK(bench.kv.num_free_blocks() == 4);
  bench.release(1);
  REQUIRE(bench.kv.pool().free_blocks() == table_of({4, 5, 6, 7, 3, 2, 1, 0}));
  // Three of four blocks are hit, but they are free: all four have to be.
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 16) == 4);
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 13) == 4);
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 12) == 3);
  CHECK(bench.kv.num_blocks_to_take(bench[1], PrefixHit{}, 16) == 4);
  bench.compute(2, 12);  // takes 0 and 1 out of the list, and 4 from its front
  CHECK(bench[2].block_table == table_of({0, 1, 4}));
  CHECK(bench[2].num_computed_tokens() == 12);
  CHECK(bench.kv.pool().free_blocks() == table_of({5, 6, 7, 3, 2}));
  // Two of its three hits are in use again.
  CHECK(bench.kv.num_blocks_to_take(bench[1], bench.kv.find_prefix(bench[1]), 16) == 2);
  CHECK(bench.hit(0) == 8);
}

TEST_CASE("taking a hit counts its tokens as computed and does not hash them again",
          "[core][kv][prefix]") {
  CacheBench bench(caching(8, 4), {{{kA, 12}}, {{kA, 12}}});
  bench.compute(0, 12);
  Request& second = bench[1];
  const PrefixHit& hit = bench.kv.find_prefix(second);
  REQUIRE(hit.num_tokens == 8);
  bench.kv.take(second, hit, 10);
  CHECK(second.num_computed_tokens() == 8);
  CHECK(second.num_cached_tokens() == 8);
  CHECK(second.block_table == table_of({0, 1, 3}));
  CHECK(bench.num_cached_blocks() == 3);
  REQUIRE(bench.kv.grow(second, 12));
  CHECK(bench.num_cached_blocks() == 4);
  CHECK(bench.kv.find_prefix(second, 12).blocks.back() == BlockId{2});  // the copy hashed first
}

TEST_CASE("without prefix caching nothing is found", "[core][kv][prefix]") {
  KvCacheLayout layout = caching(8, 4);
  layout.enable_prefix_caching = false;
  CacheBench bench(layout, {{{kA, 12}}, {{kA, 12}}});
  bench.compute(0, 12);
  CHECK(bench.hit(1) == 0);
  CHECK(bench.kv.name_of_prefix(bench[0], 4) == kNoHash);
  CHECK(bench[0].kv_ready_tokens == 12);
}

TEST_CASE("names of prefixes", "[core][kv][prefix]") {
  CacheBench bench(caching(8, 4), {{{kA, 12}}, {{kA, 10}, {kB, 9}}});
  CHECK(bench.kv.name_of_prefix(bench[0], 10) == bench.kv.name_of_prefix(bench[1], 10));
  CHECK(bench.kv.name_of_prefix(bench[0], 11) != bench.kv.name_of_prefix(bench[1], 11));
  CHECK(bench.kv.name_of_prefix(bench[0], 12) != kNoHash);
  CHECK(bench.kv.name_of_prefix(bench[0], 13) == kNoHash);
}

TEST_CASE("blocks become visible at their time", "[core][kv][prefix]") {
  const Prompts prompts = {{{kA, 10}}, {{kA, 10}}};
  SECTION("Plan: to a request of the same step") {
    CacheBench bench(caching(10, 4), prompts);
    bench.plan(0, 10);
    CHECK(bench.hit(1) == 8);
  }
  SECTION("Commit: when the result is there") {
    CacheBench bench(caching(10, 4, HashTime::Commit), prompts);
    bench.plan(0, 10);
    CHECK(bench.hit(1) == 0);
    bench.commit(0);
    CHECK(bench.hit(1) == 8);
  }
}

TEST_CASE("blocks with output become visible with their step", "[core][kv][prefix]") {
  // Ten prompt tokens and three returned: the third block is full, with two of them.
  const auto third_is_visible = [](HashTime time, bool is_preempted) {
    CacheBench bench(caching(10, 4, time), {{{kA, 10}}});
    Request& request = bench[0];
    bench.compute(0, 10);
    request.output_tokens = 3;
    bench.compute(0, 12);
    const BlockHash third = bench.kv.block_hashes(request).at(2);
    if (is_preempted) bench.release(0);
    const BlockId found = bench.kv.pool().contents().find(third);
    CHECK((found == BlockId{2} || found == kNoBlock));
    CHECK(bench.num_cached_blocks() == (found == kNoBlock ? 2 : 3));
    CHECK(bench.kv.pool().is_free(BlockId{2}) == is_preempted);
    return found != kNoBlock;
  };
  for (const HashTime time : {HashTime::Plan, HashTime::Commit}) {
    CHECK(third_is_visible(time, false));
    CHECK(third_is_visible(time, true));
  }
}

TEST_CASE("a token that is not known yet hashes no block", "[core][kv][prefix]") {
  // Three prompt tokens; the fourth is computed while it is in flight.
  for (const bool plans_ahead : {false, true}) {
    KvCacheLayout layout = caching(10, 4);
    layout.plans_ahead = plans_ahead;
    CacheBench bench(layout, {{{kA, 3}}});
    bench.plan(0, 3);
    bench.plan(0, 4);
    CHECK(bench.num_cached_blocks() == 0);
    bench[0].output_tokens = 1;
    bench.commit(0);  // with the result, or with the next plan
    CHECK(bench.num_cached_blocks() == (plans_ahead ? 1 : 0));
    bench.plan(0, 5);
    CHECK(bench.num_cached_blocks() == 1);
    // Known when it is planned: hashed at once.
    bench[0].output_tokens = 5;
    bench.plan(0, 7);
    CHECK(bench.num_cached_blocks() == 1);
    bench.plan(0, 8);
    CHECK(bench.num_cached_blocks() == 2);
  }
}

TEST_CASE("a second copy of a block", "[core][kv][prefix]") {
  const Prompts prompts = {{{kA, 8}}, {{kA, 8}}, {{kA, 9}}};
  const auto computed_twice = [&](DuplicateRule rule) {
    auto bench = std::make_unique<CacheBench>(caching(6, 4, HashTime::Commit, rule), prompts);
    bench->plan(0, 8);  // blocks 0 and 1
    bench->plan(1, 8);  // blocks 2 and 3
    bench->commit(0);
    bench->commit(1);
    return bench;
  };
  SECTION("KeepAll: both stay, the first is found") {
    const auto bench = computed_twice(DuplicateRule::KeepAll);
    CHECK((*bench)[1].block_table == table_of({2, 3}));
    CHECK(bench->num_cached_blocks() == 4);
    CHECK(bench->kv.find_prefix((*bench)[2]).blocks == table_of({0, 1}));
  }
  SECTION("KeepLatest: the second is found alone") {
    const auto bench = computed_twice(DuplicateRule::KeepLatest);
    CHECK((*bench)[0].block_table == table_of({0, 1}));
    CHECK((*bench)[1].block_table == table_of({2, 3}));
    CHECK(bench->num_cached_blocks() == 2);
    CHECK(bench->kv.find_prefix((*bench)[2]).blocks == table_of({2, 3}));
  }
}

TEST_CASE("unlisted blocks are known by what they hold, and not found", "[core][kv][prefix]") {
  CacheBench bench(caching(10, 4, HashTime::Commit, DuplicateRule::Unlisted),
                   {{{kA, 12}}, {{kA, 12}}});
  bench.compute(0, 12);
  CHECK(bench.hit(1) == 0);
  const HashChain& hashes = bench.kv.block_hashes(bench[1]);
  CHECK(bench.kv.pool().contents().hash_of(bench[0].block_table[0]) == hashes[0]);
  bench.release(0);
  bench.kv.forget(table_of({0}));
  CHECK(bench.kv.pool().contents().hash_of(BlockId{0}) == kNoHash);
  bench.kv.check_integrity(bench.requests);
}

TEST_CASE("free blocks can be forgotten, those in use cannot", "[core][kv][prefix]") {
  CacheBench bench(caching(10, 4), {{{kA, 8}}, {{kB, 8}}, {{kA, 9}}, {{kB, 9}}});
  bench.compute(0, 8);  // blocks 0 and 1
  bench.compute(1, 8);  // blocks 2 and 3
  bench.release(1);
  bench.kv.forget(table_of({0, 1, 2}));
  CHECK(bench.hit(2) == 8);
  CHECK(bench.hit(3) == 0);
  CHECK(bench.num_cached_blocks() == 3);
}

TEST_CASE("blocks of a chunk that is not computed", "[core][kv][prefix]") {
  // Six tokens are cached; the chunk from there to 14 completes blocks 1 and 2, which are hashed.
  const Prompts prompts = {{{kA, 14}}, {{kA, 14}}};
  for (const bool forgets : {false, true}) {
    KvCacheLayout layout = caching(10, 4);
    layout.forgets_unfilled_blocks = forgets;
    CacheBench bench(layout, prompts);
    bench.compute(0, 6);
    bench.plan(0, 14);
    REQUIRE(bench.hit(1) == 12);
    bench.kv.unplan(bench[0], 6);
    CHECK(bench.hit(1) == (forgets ? 4 : 12));
  }
  SECTION("forgetting says which blocks could be found") {
    CacheBench bench(caching(10, 4), prompts);
    bench.compute(0, 6);
    bench.plan(0, 14);  // the fourth block is not full
    CHECK(bench.kv.forget_from(bench[0], 8) == table_of({2}));
    CHECK(bench.kv.forget_from(bench[0], 7) == table_of({1}));
    CHECK(bench.hit(1) == 4);
  }
  SECTION("free blocks are forgotten, those of living requests stay") {
    CacheBench bench(caching(10, 4), {{{kA, 8}}, {{kB, 8}}, {{kA, 9}}, {{kB, 9}}});
    bench.compute(0, 8);
    bench.compute(1, 8);
    bench.release(0);
    bench.kv.forget_free_blocks();
    CHECK(bench.hit(2) == 0);
    CHECK(bench.hit(3) == 8);
  }
  SECTION("what is hashed at commit was computed: nothing is forgotten") {
    CacheBench bench(caching(10, 4, HashTime::Commit), prompts);
    bench.compute(0, 14);
    CHECK(bench.kv.forget_from(bench[0], 0).empty());
    bench.release(0);
    bench.kv.forget_free_blocks();
    CHECK(bench.hit(1) == 12);
  }
}

namespace {

// Two steps in flight, blocks of 4, hashed when planned; steps `failing` fail.
struct FailureBench {
  FailureBench(const Prompts& contents, std::int64_t failing, std::int64_t num_usable = 60,
               std::int32_t sliding_window = 0)
      : prompts(contents), bench(setup(num_usable, sliding_window), prompts.hasher()) {
    bench.executor.fails = [failing](std::int64_t step) { return step == failing; };
  }
  static EngineSetup setup(std::int64_t num_usable, std::int32_t sliding_window) {
    EngineSetup setup = make_setup("vllm");
    setup.scheduler.edit<VllmConfig>().version = 22 - kFirstVllmMinor;
    setup.kv_cache = {.num_blocks = num_usable + 1, .block_size = 4};
    setup.kv_cache.windows.num_tokens = sliding_window;
    setup.async_depth = 2;
    setup.kv_cache.plans_ahead = true;
    setup.scheduler.max_num_batched_tokens = 64;
    arrange_cache(setup);
    setup.kv_cache.forgets_unfilled_blocks = true;
    return setup;
  }

  SharedPrompts prompts;
  Bench bench;
};

}  // namespace

TEST_CASE("who shares blocks of a failed step fails with it", "[core][kv][prefix][engine]") {
  // Request 0 is done with its prompt in step 0. Step 1 computes the prompt of 1; before its result
  // is there, step 2 is planned with 2, which shares the four blocks of 1, with 3, which shares
  // those of 0, and with 4, which shares none.
  FailureBench failure({{{kA, 9}},
                        {{kB, 17}},
                        {{kB, 16}, {kC, 2}},
                        {{kA, 8}, {kC, 3}},
                        {{kC, 6}},
                        {{kB, 17}},
                        {{kA, 9}}},
                       1);
  Bench& bench = failure.bench;
  const RequestId old = bench.submit(9, 20);
  CHECK(step(bench) == Planned{{0, 9}});
  const RequestId failing = bench.submit(17, 20);
  CHECK(step(bench) == Planned{{0, 1}, {1, 17}});
  const RequestId sharing = bench.submit(18, 20);
  const RequestId shares_old = bench.submit(11, 20);
  const RequestId alone = bench.submit(6, 20);
  CHECK(step(bench) == Planned{{0, 1}, {1, 1}, {2, 2}, {3, 3}, {4, 6}});
  CHECK(bench[failing].end_reason == EndReason::StepFailed);
  CHECK(bench[sharing].end_reason == EndReason::StepFailed);
  // It decoded in the failed step itself.
  CHECK(bench[old].end_reason == EndReason::StepFailed);
  // The blocks of 0 were full and computed before; they live on in 3.
  CHECK(bench[shares_old].state == RequestState::Decode);
  CHECK(bench[alone].state == RequestState::Decode);

  // Tokens are found if and only if they were computed.
  bench.submit(17, 2);
  bench.submit(9, 2);
  CHECK(step(bench) == Planned{{3, 1}, {4, 1}, {5, 17}, {6, 1}});
  bench.engine.drain();
}

TEST_CASE("a request that shares only window blocks of a failed step fails with it",
          "[core][kv][window][engine]") {
  // 24 blocks; a window of 8 looks back over two of them. Request 0 takes 6 + 6 blocks for its
  // prompt and 1 + 1 for the next token, when the first four of the window are behind it. With
  // these 14 are free: request 1 takes and overwrites them all, and ends.
  FailureBench failure({{{kA, 24}}, {{kB, 28}}, {{kA, 16}, {kC, 1}}, {{kA, 16}, {kC, 2}}}, 4, 24,
                       8);
  Bench& bench = failure.bench;
  bench.submit(24, 9);
  CHECK(step(bench) == Planned{{0, 24}});
  CHECK(step(bench) == Planned{{0, 1}});
  CHECK(bench.engine.kv_cache().num_free_blocks() == 14);
  bench.submit(28, 1);
  CHECK(step(bench) == Planned{{0, 1}, {1, 28}});
  CHECK(bench.engine.kv_cache().num_free_blocks() == 0);
  CHECK(step(bench) == Planned{{0, 1}});
  // Request 2 begins like 0, finds all four blocks but no window, and computes everything again.
  bench.submit(17, 9);
  CHECK(step(bench) == Planned{{0, 1}, {2, 17}});
  // Before the result is there, 3 finds the blocks of 0, which were hashed first, and the window
  // blocks of 2, which are not filled after all.
  const RequestId sharing = bench.submit(18, 9);
  CHECK(step(bench) == Planned{{0, 1}, {2, 1}, {3, 2}});
  CHECK(bench.executor.plans.back().chunks.back().first_position == 16);
  CHECK(bench[RequestId{2}].end_reason == EndReason::StepFailed);
  CHECK(bench[sharing].end_reason == EndReason::StepFailed);
  bench.engine.drain();
}

TEST_CASE("an aborted request leaves no unfilled block behind", "[core][kv][prefix][engine]") {
  // Aborted while the step that computes it is in flight, which then fails.
  for (const bool forgets : {false, true}) {
    const SharedPrompts prompts({{{kA, 17}}, {{kA, 17}}});
    EngineSetup setup = FailureBench::setup(60, 0);
    setup.kv_cache.forgets_unfilled_blocks = forgets;
    Bench bench(setup, prompts.hasher());
    const RequestId first = bench.submit(17, 5);
    CHECK(step(bench) == Planned{{0, 17}});
    bench.engine.abort(first);
    bench.submit(17, 5);
    CHECK(step(bench) == Planned{{1, forgets ? 17 : 1}});
    bench.engine.drain();
  }
}

TEST_CASE("a failed step makes free blocks unfindable", "[core][kv][prefix][engine]") {
  FailureBench failure({{{kA, 9}}, {{kB, 5}}, {{kA, 9}}, {{kA, 9}}}, 1);
  Bench& bench = failure.bench;
  bench.submit(9, 1);
  CHECK(step(bench) == Planned{{0, 9}});
  bench.submit(5, 1);
  CHECK(step(bench) == Planned{{1, 5}});  // takes the result of step 0: request 0 ends
  SECTION("those that nobody uses") {
    CHECK(step(bench).empty());  // takes the result of step 1
    bench.submit(9, 9);
    CHECK(step(bench) == Planned{{2, 9}});
  }
  SECTION("not those in use") {
    bench.submit(9, 9);
    CHECK(step(bench) == Planned{{2, 1}});  // finds the blocks of 0; step 1 fails meanwhile
    CHECK(bench[RequestId{2}].state == RequestState::Decode);
    bench.submit(9, 9);
    CHECK(step(bench) == Planned{{2, 1}, {3, 1}});
  }
  bench.engine.drain();
}

}  // namespace metronome::testing::TEST_FILE
