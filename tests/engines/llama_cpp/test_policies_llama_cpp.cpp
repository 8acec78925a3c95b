// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of the llama.cpp server's slots. The first of several slots
// that were never used is the one with the highest id, and a batch goes through slots in order of
// id.
#include "engines/llama_cpp/settings.h"
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

EngineSetup llama_cpp(std::int32_t num_slots, std::int64_t n_ctx, std::int32_t n_batch = 2048) {
  EngineSetup setup = make_setup("llama_cpp");
  setup.kv_cache = {.num_blocks = n_ctx, .block_size = 1};
  setup.max_num_seqs = num_slots;
  setup.scheduler.edit<LlamaCppConfig>().n_batch = n_batch;
  arrange_cache(setup);
  return setup;
}

}  // namespace

TEST_CASE("llama_cpp: generating slots, then prompts up to n_batch tokens", "[policies]") {
  EngineSetup setup = llama_cpp(2, 100, 8);
  SECTION("cont_batching") {
    Bench bench(setup);
    bench.submit(10, 3);  // slot 1
    bench.submit(6, 3);   // slot 0
    CHECK(step(bench) == Planned{{1, 6}, {0, 2}});
    CHECK(step(bench) == Planned{{1, 1}, {0, 7}});
    CHECK(step(bench) == Planned{{1, 1}, {0, 1}});  // a prompt of 10: 2 + 7 + 1
    CHECK(step(bench) == Planned{{0, 1}});
  }
  SECTION("without it, prompts wait until nobody generates") {
    setup.scheduler.edit<LlamaCppConfig>().cont_batching = false;
    Bench bench(setup);
    bench.submit(10, 3);
    bench.submit(6, 3);
    CHECK(step(bench) == Planned{{1, 6}, {0, 2}});
    CHECK(step(bench) == Planned{{1, 1}});
    CHECK(step(bench) == Planned{{1, 1}});
    CHECK(step(bench) == Planned{{0, 8}});
  }
  SECTION("a prompt waits while the generating slots fill the batch") {
    Bench bench(llama_cpp(3, 100, 2));
    for (int i = 0; i < 3; ++i) bench.submit(1, 4);
    CHECK(step(bench) == Planned{{2, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{2, 1}, {1, 1}});
  }
}

// 21 cells: 8 of the first prompt in slot 1, 13 of the second and its first token in slot 0. The
// third takes over slot 0, keeps 4 and drops 8; those it fills, and not the cells of slot 1.
TEST_CASE("llama_cpp: cells that a slot drops are filled before those of idle slots",
          "[policies]") {
  const SharedPrompts prompts({{{1, 8}}, {{2, 12}}, {{2, 4}, {3, 8}}, {{1, 8}}});
  Bench bench(llama_cpp(2, 21), prompts.hasher());
  bench.submit(8, 1);
  bench.submit(12, 2);
  CHECK(step(bench) == Planned{{1, 12}, {0, 8}});
  bench.engine.drain();
  bench.submit(12, 1);
  CHECK(step(bench) == Planned{{2, 8}});
  bench.submit(8, 1);
  CHECK(step(bench) == Planned{{3, 1}});
}

TEST_CASE("llama_cpp: a slot keeps the common prefix of its next prompt", "[policies]") {
  const SharedPrompts prompts({{{7, 6}}, {{7, 6}}, {{7, 4}, {8, 3}}, {{9, 5}}, {{7, 6}}});
  Bench bench(llama_cpp(1, 100), prompts.hasher());
  bench.submit(6, 1);
  bench.submit(6, 1);
  bench.submit(7, 2);
  bench.submit(5, 1);
  bench.submit(6, 1);
  CHECK(step(bench) == Planned{{0, 6}});
  CHECK(step(bench) == Planned{{1, 1}});  // all 6 are cached: n_past becomes 5
  CHECK(step(bench) == Planned{{2, 3}});  // 4 of 7 are
  CHECK(step(bench) == Planned{{2, 1}});
  CHECK(step(bench) == Planned{{3, 5}});  // nothing in common: the slot is empty again
  CHECK(step(bench) == Planned{{4, 6}});  // what request 2 left went with that
}

TEST_CASE("llama_cpp: with larger blocks the common prefix counts in whole blocks", "[policies]") {
  const SharedPrompts prompts({{{7, 10}}, {{7, 10}}, {{7, 8}}});
  EngineSetup setup = llama_cpp(1, 100);
  setup.kv_cache.block_size = 4;
  Bench bench(setup, prompts.hasher());
  bench.submit(10, 1);
  bench.submit(10, 1);
  bench.submit(8, 1);
  CHECK(step(bench) == Planned{{0, 10}});
  CHECK(step(bench) == Planned{{1, 2}});  // 8 of 10
  CHECK(step(bench) == Planned{{2, 4}});  // 7 of 8 would be kept: one block
}

TEST_CASE("llama_cpp: the slot a request takes", "[policies]") {
  // Requests 0, 1, 2 take slots 2, 1, 0 and end in this order, after steps 1, 2, 3.
  const auto run_three = [](Bench& bench) {
    for (int i = 0; i < 3; ++i) bench.submit(10, i + 1);
    CHECK(step(bench) == Planned{{2, 10}, {1, 10}, {0, 10}});
    CHECK(step(bench) == Planned{{2, 1}, {1, 1}});
    CHECK(step(bench) == Planned{{2, 1}});
  };
  EngineSetup setup = llama_cpp(3, 1000);
  setup.scheduler.edit<LlamaCppConfig>().slot_prompt_similarity = 0.5;
  SECTION("the most similar one, if more than half of the prompt is there") {
    const SharedPrompts prompts({{{1, 10}},
                                 {{2, 10}},
                                 {{3, 10}},
                                 {{2, 6}, {4, 4}},    // 0.6 of it is in slot 1
                                 {{3, 5}, {5, 5}}});  // 0.5 is not more than 0.5
    Bench bench(setup, prompts.hasher());
    run_three(bench);
    bench.submit(10, 1);
    bench.submit(10, 1);
    // Request 4 takes slot 2, idle for longest, where it has nothing in common.
    CHECK(step(bench) == Planned{{3, 4}, {4, 10}});
  }
  SECTION("the least recently used one, whose common prefix counts nevertheless") {
    const SharedPrompts prompts(
        {{{1, 10}}, {{2, 10}}, {{3, 10}}, {{1, 3}, {4, 7}}, {{2, 3}, {5, 7}}, {{2, 3}, {6, 7}}});
    Bench bench(setup, prompts.hasher());
    run_three(bench);
    for (int i = 0; i < 3; ++i) bench.submit(10, 1);
    // 3 to slot 2, 4 to slot 1, and 5 to slot 0, which knows another prefix.
    CHECK(step(bench) == Planned{{5, 10}, {4, 7}, {3, 7}});
  }
  SECTION("the more similar one of two, which comes last") {
    const SharedPrompts prompts({{{1, 10}}, {{2, 10}}, {{1, 8}, {3, 2}}, {{1, 9}, {4, 1}}});
    Bench bench(setup, prompts.hasher());
    run_three(bench);
    bench.submit(10, 1);
    CHECK(step(bench) == Planned{{3, 1}});  // slot 2 has 9 tokens of it, slot 0 has 8
  }
  SECTION("the more similar one of two, which comes first") {
    const SharedPrompts prompts({{{1, 10}}, {{2, 10}}, {{1, 8}, {3, 2}}, {{1, 8}, {3, 1}, {4, 1}}});
    Bench bench(setup, prompts.hasher());
    run_three(bench);
    bench.submit(10, 1);
    CHECK(step(bench) == Planned{{3, 1}});  // slot 0 has 9 tokens of it, slot 2 has 8
  }
  SECTION("similarity 0 leaves only the least recently used") {
    setup.scheduler.edit<LlamaCppConfig>().slot_prompt_similarity = 0;
    const SharedPrompts prompts({{{1, 10}}, {{2, 10}}, {{3, 10}}, {{2, 10}}});
    Bench bench(setup, prompts.hasher());
    run_three(bench);
    bench.submit(10, 1);
    CHECK(step(bench) == Planned{{3, 10}});
  }
}

// Requests 0 and 1 end in one step. Each slot puts the first request that waits before all others,
// so 3 comes before 2. The lower slot ended first, and is the least recently used one.
TEST_CASE("llama_cpp: requests that wait for slots that end together start in reverse",
          "[policies]") {
  Bench bench(llama_cpp(2, 1000));
  for (const int num_tokens : {10, 11, 12, 13}) bench.submit(num_tokens, 1);
  CHECK(step(bench) == Planned{{1, 11}, {0, 10}});
  bench.submit(14, 1);
  CHECK(step(bench) == Planned{{3, 13}, {2, 12}});
  CHECK(step(bench) == Planned{{4, 14}});
}

TEST_CASE("llama_cpp: idle slots are purged in order of id until there is room", "[policies]") {
  const SharedPrompts prompts({{{1, 10}}, {{2, 10}}, {{3, 12}}, {{1, 10}}});
  Bench bench(llama_cpp(3, 30), prompts.hasher());
  bench.submit(10, 1);  // slot 2
  bench.submit(10, 1);  // slot 1
  CHECK(step(bench) == Planned{{1, 10}, {0, 10}});
  bench.submit(12, 1);  // slot 0; 10 cells are empty, and slot 1 gives its own
  CHECK(step(bench) == Planned{{2, 12}});
  bench.submit(10, 1);
  CHECK(step(bench) == Planned{{3, 1}});
}

TEST_CASE("llama_cpp: only idle slots give their content", "[policies]") {
  const SharedPrompts prompts({{{1, 10}}, {{1, 10}}});
  EngineSetup setup = llama_cpp(2, 100);
  Bench bench(setup, prompts.hasher());
  bench.submit(10, 5);
  CHECK(step(bench) == Planned{{0, 10}});
  bench.submit(10, 5);
  CHECK(step(bench) == Planned{{0, 1}, {1, 10}});
}

TEST_CASE("llama_cpp: an idle slot loses all its cells when there is no room", "[policies]") {
  const SharedPrompts prompts({{{1, 10}}, {{2, 12}}, {{1, 10}}});
  Bench bench(llama_cpp(2, 20), prompts.hasher());
  bench.submit(10, 1);
  CHECK(step(bench) == Planned{{0, 10}});  // slot 1
  bench.submit(12, 1);
  CHECK(step(bench) == Planned{{1, 12}});  // slot 0: 10 cells that were never used, 2 of slot 1
  bench.submit(10, 1);
  CHECK(step(bench) == Planned{{2, 10}});  // nothing is left
}

TEST_CASE("llama_cpp: a cell that another slot took does not come back with the same content",
          "[policies]") {
  const SharedPrompts prompts({{{1, 1}}, {{2, 10}}, {{1, 1}}, {{1, 1}, {3, 1}}});
  EngineSetup setup = llama_cpp(3, 12);
  setup.scheduler.edit<LlamaCppConfig>().slot_prompt_similarity = 1;  // never more than that
  Bench bench(setup, prompts.hasher());
  const bool still_runs = GENERATE(false, true);
  CAPTURE(still_runs);
  bench.submit(1, 1);
  CHECK(step(bench) == Planned{{0, 1}});  // slot 2, cell 0
  bench.submit(10, 2);
  CHECK(step(bench) == Planned{{1, 10}});  // slot 1, cells 1 to 10; 11 and 0 are left
  bench.submit(1, still_runs ? 9 : 1);
  CHECK(step(bench) == Planned{{1, 1}, {2, 1}});  // cell 11; slot 0, cell 0
  bench.submit(2, 1);
  // Slot 2 is the least recently used. Cell 0 holds the first token of this prompt again, but for
  // slot 0.
  CHECK(step(bench) == (still_runs ? Planned{{2, 1}, {3, 2}} : Planned{{3, 2}}));
}

TEST_CASE("llama_cpp: what a slot keeps when its request fails", "[policies]") {
  const SharedPrompts prompts({{{1, 10}}, {{1, 10}}, {{2, 10}}, {{1, 10}}});
  Bench bench(llama_cpp(1, 100), prompts.hasher());
  SECTION("everything, when the client went away") {
    bench.submit(10, 5);
    CHECK(step(bench) == Planned{{0, 10}});
    bench.engine.abort(RequestId{0});
    bench.submit(10, 1);
    CHECK(step(bench) == Planned{{1, 1}});
  }
  SECTION("nothing, when a step failed") {
    bench.submit(10, 5);
    bench.executor.fails = [](std::int64_t i) { return i == 1; };
    CHECK(step(bench) == Planned{{0, 10}});
    CHECK(step(bench) == Planned{{0, 1}});
    CHECK(bench[RequestId{0}].end_reason == EndReason::StepFailed);
    bench.submit(10, 1);
    CHECK(step(bench) == Planned{{1, 10}});
  }
  SECTION("nor what the one before had left") {
    bench.executor.fails = [](std::int64_t i) { return i == 2; };
    for (int i = 0; i < 4; ++i) bench.submit(10, 1);
    CHECK(step(bench) == Planned{{0, 10}});
    CHECK(step(bench) == Planned{{1, 1}});
    CHECK(step(bench) == Planned{{2, 10}});
    CHECK(step(bench) == Planned{{3, 10}});
  }
}

TEST_CASE("llama_cpp: without cache_prompt every prompt is computed", "[policies]") {
  const SharedPrompts prompts({{{1, 10}}, {{1, 10}}});
  EngineSetup setup = llama_cpp(1, 100);
  setup.kv_cache.enable_prefix_caching = false;
  Bench bench(setup, prompts.hasher());
  bench.submit(10, 1);
  bench.submit(10, 1);
  CHECK(step(bench) == Planned{{0, 10}});
  CHECK(step(bench) == Planned{{1, 10}});
}

TEST_CASE("llama_cpp: a full cache fails all slots, and those that wait go on", "[policies]") {
  SECTION("decodes") {
    Bench bench(llama_cpp(2, 10));
    bench.submit(4, 6);
    bench.submit(4, 6);
    bench.submit(3, 2);
    CHECK(step(bench) == Planned{{1, 4}, {0, 4}});
    CHECK(step(bench) == Planned{{1, 1}, {0, 1}});  // all 10 cells are in use
    CHECK(step(bench).empty());                     // the server's round in which all slots fail
    CHECK(step(bench) == Planned{{2, 3}});
    for (const RequestId id : {RequestId{0}, RequestId{1}}) {
      CHECK(bench[id].state == RequestState::Failed);
      CHECK(bench[id].end_reason == EndReason::StepFailed);
      CHECK(bench[id].num_output_tokens() == 2);
    }
    CHECK(bench.engine.first_message(EndReason::StepFailed) ==
          "request 1: the KV cache has no room for the running requests");
    bench.engine.drain();
    CHECK(bench[RequestId{2}].end_reason == EndReason::Length);
  }
  SECTION("a prompt that was admitted beside others") {
    Bench bench(llama_cpp(2, 10));
    bench.submit(4, 6);
    CHECK(step(bench) == Planned{{0, 4}});
    bench.submit(8, 2);  // would fit alone; 1 + 8 cells of the 6 left
    CHECK(step(bench) == Planned{{0, 1}, {1, 3}});  // half of a half ... of n_batch
    CHECK(step(bench) == Planned{{1, 2}});          // two cells were left
    CHECK(step(bench).empty());
    CHECK(bench.engine.num_ended() == 2);
    CHECK(bench[RequestId{0}].num_output_tokens() == 2);
  }
  SECTION("two prompts at once, with nobody left to go on") {
    Bench bench(llama_cpp(2, 10));
    bench.submit(6, 2);
    bench.submit(6, 2);
    CHECK(step(bench) == Planned{{1, 6}, {0, 2}});
    CHECK(step(bench) == Planned{{0, 2}});
    bench.engine.drain();
    CHECK(bench.executor.plans.size() == 2);
    CHECK(bench.engine.num_ended() == 2);
    CHECK(bench[RequestId{1}].end_reason == EndReason::StepFailed);
  }
  SECTION("but not when cells are about to be free") {
    EngineSetup setup = llama_cpp(2, 10);
    setup.async_depth = 2;
    Bench bench(setup);
    bench.submit(4, 2);
    bench.submit(4, 5);
    bench.engine.drain();
    // The second decode of request 1 found no cell while the last token of 0 was in flight.
    CHECK(bench[RequestId{0}].end_reason == EndReason::Length);
    CHECK(bench[RequestId{1}].end_reason == EndReason::Length);
  }
}

}  // namespace metronome::testing::TEST_FILE
