// SPDX-License-Identifier: Apache-2.0
// The sglang policy with prompts that share prefixes: what is found, the longest-prefix order, and
// random settings.
#include "core/base/rng.h"
#include "engines/sglang/settings.h"
#include "tests/engines/sglang/sglang_bench.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("sglang: prefixes are found once computed, in whole pages", "[core][policies]") {
  SECTION("of a running request") {
    OrderedPrompts prompts({{{kGroup, 64}, own(16)},
                            {{kGroup, 64}, own(16)},
                            {{kGroup, 64}},
                            {{kGroup, 40}, own(10)}});
    Bench bench(sglang(1000, 16), prompts.hasher());
    const RequestId a = prompts.submit(bench, 9);
    CHECK(next_step(bench) == "p0:80");
    const RequestId b = prompts.submit(bench, 9);
    CHECK(next_step(bench) == "p1:16");
    for (std::size_t i = 0; i < 4; ++i) CHECK(bench[a].block_table[i] == bench[b].block_table[i]);
    prompts.submit(bench, 9);
    CHECK(next_step(bench) == "p2:16");  // the last token has to be computed, so 48 are used
    prompts.submit(bench, 9);
    CHECK(next_step(bench) == "p3:18");  // 32 of the 40
    bench.engine.drain();
  }
  SECTION("computed twice in one step: one copy stays") {
    OrderedPrompts prompts({{{kGroup, 64}, own(16)}, {{kGroup, 64}, own(16)}});
    Bench bench(sglang(1000, 16), prompts.hasher());
    const RequestId a = prompts.submit(bench, 9);
    const RequestId b = prompts.submit(bench, 9);
    CHECK(next_step(bench) == "p0:80 p1:80");
    CHECK(bench.engine.kv_cache().num_used_blocks() == 5 + 1);
    for (std::size_t i = 0; i < 4; ++i) CHECK(bench[a].block_table[i] == bench[b].block_table[i]);
    bench.engine.drain();
  }
  SECTION("cached pages that a request hits are not free to it") {
    // Ten pages. Request 0 leaves five cached ones. Beside request 1 (a page, one output to come)
    // nine are free; request 2 hits four: 144 - 0.7 - 64 = 79.3 > 16 + 47 + 16.
    for (const int output : {47, 48}) {
      OrderedPrompts prompts({{{kGroup, 64}, own(16)}, {own(16)}, {{kGroup, 64}, own(16)}});
      Bench bench(sglang(10, 16), prompts.hasher());
      prompts.submit(bench, 1);
      CHECK(next_step(bench) == "p0:80");
      prompts.submit(bench, 2);
      CHECK(next_step(bench) == "p1:16");
      prompts.submit(bench, output);
      CHECK(next_step(bench) == (output == 47 ? "p2:16" : "d1"));
      bench.engine.drain();
    }
  }
}

// Eleven pages. Request 0 leaves four cached ones, request 1 two and a partly filled, free one.
// Request 2 is taken to need five: four for its tokens and one for their last page. These are the
// four never used and that one, and no cached one.
TEST_CASE("sglang: free pages are used before cached ones are evicted", "[core][policies]") {
  OrderedPrompts prompts({{{kGroup, 64}}, {own(40)}, {own(64)}, {{kGroup, 64}, own(16)}});
  Bench bench(sglang(11, 16), prompts.hasher());
  for (const char* expected : {"p0:64", "p1:40", "p2:64", "p3:16"}) {
    prompts.submit(bench, 1);
    CHECK(next_step(bench) == expected);
    bench.engine.drain();
  }
}

TEST_CASE("sglang: lpm admits the longest cached prefix first", "[core][policies]") {
  using Policy = SglangConfig::SchedulePolicy;
  EngineSetup setup = sglang(1000, 16);
  setup.max_num_seqs = 1;
  const auto steps = [&](Policy policy) {
    setup.scheduler.edit<SglangConfig>().schedule_policy = policy;
    const PromptSegment a32 = {kGroup, 32};
    const PromptSegment a64 = {kGroup, 64};
    return run(setup, {{a64}, {own(20)}, {a32, own(48)}, {a64}, {a64, own(16)}}, 1);
  };
  CHECK(steps(Policy::Fcfs) == Steps{"p0:64", "p1:20", "p2:48", "p3:16", "p4:16"});
  // Of a whole prompt one token less counts: 64, 63, 32, 0.
  CHECK(steps(Policy::Lpm) == Steps{"p0:64", "p4:16", "p3:16", "p2:48", "p1:20"});
  setup.kv_cache.enable_prefix_caching = false;
  CHECK(steps(Policy::Lpm) == Steps{"p0:64", "p1:20", "p2:80", "p3:64", "p4:80"});
}

TEST_CASE("sglang: lpm takes one of those that begin alike", "[core][policies]") {
  EngineSetup setup = sglang(1000, 16);
  setup.scheduler.edit<SglangConfig>().schedule_policy = SglangConfig::SchedulePolicy::Lpm;
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 128;
  // Three prompts of 60, charged as 64 each: two a step. Requests 0 and 1 begin alike.
  const auto steps = [&](std::int32_t num_shared) {
    const PromptSegment shared = {kGroup, num_shared};
    const std::int32_t rest = 60 - num_shared;
    return run(setup, {{shared, own(rest)}, {shared, own(rest)}, {own(60)}}, 3);
  };
  CHECK(steps(31) == Steps{"p0:60 p1:60", "p2:60"});
  CHECK(steps(32) == Steps{"p0:60 p2:60", "p1:28"});
  CHECK(steps(40) == Steps{"p0:60 p2:60", "p1:28"});

  // With a prefix cached they begin alike all the same, up to 32 tokens; from 33 on it is enough
  // that it is cached.
  const auto cached_steps = [&](std::int32_t num_cached) {
    const PromptSegment cached = {kGroup, num_cached};
    return run(setup, {{cached}, {cached, own(60)}, {cached, own(60)}, {own(60)}}, 1);
  };
  CHECK(cached_steps(32) == Steps{"p0:32", "p1:60 p3:60", "p2:60"});
  CHECK(cached_steps(48) == Steps{"p0:48", "p1:60 p2:60", "p3:60"});
}

TEST_CASE("sglang: lpm leaves a queue of more than 128 as it is", "[core][policies]") {
  EngineSetup setup = sglang(10'000, 16);
  setup.scheduler.edit<SglangConfig>().schedule_policy = SglangConfig::SchedulePolicy::Lpm;
  setup.scheduler.edit<SglangConfig>().max_prefill_tokens = 16;  // a request a step
  setup.max_num_seqs = 512;
  const PromptSegment a32 = {kGroup, 32};
  const PromptSegment a48 = {kGroup, 48};
  SECTION("first come first served") {
    for (const int num_others : {127, 128}) {
      std::vector<OrderedPrompts::Segments> segments = {{a48}};
      for (int i = 0; i < num_others; ++i) segments.push_back({own(16)});
      segments.push_back({a48, own(16)});
      CHECK(run(setup, segments, 1)[1] == (num_others == 127 ? "p128:16" : "p1:16"));
    }
  }
  SECTION("in the order of the last sort, newcomers behind") {
    // Sorted 3, 2, 1 by what they hit, and 3 is taken; then 127 more come.
    std::vector<OrderedPrompts::Segments> segments = {
        {a48}, {own(16)}, {a32, own(16)}, {a48, own(16)}};
    for (int i = 0; i < 127; ++i) segments.push_back({own(16)});
    OrderedPrompts prompts(segments);
    Bench bench(setup, prompts.hasher());
    const auto submit_next = [&](int count) {
      for (int i = 0; i < count; ++i) prompts.submit(bench, 1);
    };
    submit_next(1);
    CHECK(next_step(bench) == "p0:48");
    submit_next(3);
    CHECK(next_step(bench) == "p3:16");
    submit_next(127);
    CHECK(next_step(bench) == "p2:16");
    CHECK(next_step(bench) == "p1:16");
    CHECK(next_step(bench) == "p4:16");
  }
}

TEST_CASE("sglang: the orders by output, tree, wait and tokens left", "[core][policies]") {
  using Policy = SglangConfig::SchedulePolicy;
  EngineSetup setup = sglang(1000, 16);
  setup.max_num_seqs = 1;
  const auto steps = [&](Policy policy, const std::vector<OrderedPrompts::Segments>& segments,
                         int num_first) {
    setup.scheduler.edit<SglangConfig>().schedule_policy = policy;
    return run(setup, segments, num_first);
  };
  SECTION("the longest output first") {
    setup.scheduler.edit<SglangConfig>().schedule_policy = Policy::Lof;
    CHECK(run(setup, {{10, 1}, {10, 3}, {10, 2}}) ==
          Steps{"p1:10", "d1", "d1", "p2:10", "d2", "p0:10"});
  }
  SECTION("the heaviest part of the tree first") {
    const PromptSegment a32 = {kGroup, 32};
    CHECK(steps(Policy::DfsWeight, {{a32}, {own(20)}, {a32, own(16)}, {a32, own(17)}}, 1) ==
          Steps{"p0:32", "p2:16", "p3:17", "p1:20"});
  }
  SECTION("the longest wait for the tokens first: as long for fewer") {
    CHECK(steps(Policy::Hrrn, {{own(20)}, {own(50)}, {own(10)}}, 3) ==
          Steps{"p0:20", "p2:10", "p1:50"});
  }
  SECTION("the fewest tokens first") {
    CHECK(steps(Policy::ShortestPrefillFirst, {{own(30)}, {own(10)}, {own(20)}}, 3) ==
          Steps{"p1:10", "p2:20", "p0:30"});
  }
}

// 36 of 100 tokens are left. Request 1 has fewer, so its two pages of the chunk are kept for it.
TEST_CASE("sglang: shortest-prefill-first shortens a chunk for a shorter prompt",
          "[core][policies]") {
  using Policy = SglangConfig::SchedulePolicy;
  for (const Policy policy : {Policy::Fcfs, Policy::ShortestPrefillFirst}) {
    EngineSetup setup = sglang(1000, 16);
    setup.scheduler.edit<SglangConfig>().schedule_policy = policy;
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 64;
    OrderedPrompts prompts({{own(100)}, {own(20)}});
    Bench bench(setup, prompts.hasher());
    prompts.submit(bench, 1);
    CHECK(next_step(bench) == "p0:64");
    prompts.submit(bench, 1);
    CHECK(next_step(bench) == (policy == Policy::Fcfs ? "p0:36 p1:16" : "p0:32 p1:20"));
    bench.engine.drain();
  }
}

// Tight caches, failing steps and aborts: whatever happens, every request ends and nothing leaks.
TEST_CASE("sglang: random settings", "[core][policies]") {
  std::int64_t num_preempted = 0;
  for (std::uint64_t seed = 0; seed < 3'000; ++seed) {
    Rng rng(seed, "sglang");
    const auto draw = [&](std::int64_t low, std::int64_t high) {
      return static_cast<std::int32_t>(rng.uniform_int(low, high));
    };
    const std::int32_t page_size = draw(1, 6);
    EngineSetup setup = sglang(draw(8, 60), page_size);
    SglangConfig& config = setup.scheduler.edit<SglangConfig>();
    config.schedule_policy = static_cast<SglangConfig::SchedulePolicy>(draw(0, 5));
    config.chunked_prefill_size = draw(0, 3) == 0 ? -1 : page_size * draw(1, 12);
    config.max_prefill_tokens = draw(1, 60);
    config.enable_mixed_chunk = draw(0, 1) == 1;
    config.init_new_token_ratio = rng.uniform() * draw(0, 1);
    config.clip_max_new_tokens = draw(1, 40);
    setup.max_num_seqs = draw(1, 12);
    setup.async_depth = draw(1, 2);
    const double failure_chance = 0.02 * draw(0, 1);
    const double abort_chance = 0.05 * draw(0, 1);
    std::vector<OrderedPrompts::Segments> segments;
    for (int i = 0; i < 20; ++i) {
      segments.push_back({{kGroup, draw(1, 40)}, own(draw(1, 30))});
    }
    CAPTURE(seed);
    OrderedPrompts prompts(segments);
    Bench bench(setup, prompts.hasher());
    bench.executor.fails = [&](std::int64_t) { return rng.uniform() < failure_chance; };
    for (int i = 0; i < 20; ++i) {
      prompts.submit(bench, draw(1, 40));
      for (int gap = draw(0, 3); gap > 0; --gap) bench.engine.step();
      if (rng.uniform() < abort_chance) bench.engine.abort(static_cast<RequestId>(draw(0, i)));
      bench.engine.check_integrity();
    }
    drain(bench);
    REQUIRE(bench.engine.kv_cache().num_used_blocks() == 0);
    REQUIRE(bench.engine.num_ended() == 20);
    for (unsigned i = 0; i < 20; ++i) num_preempted += bench[RequestId{i}].num_preemptions;
  }
  CHECK(num_preempted > 1'000);
}

}  // namespace metronome::testing::TEST_FILE
