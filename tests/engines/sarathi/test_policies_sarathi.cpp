// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of Sarathi-Serve's schedulers from engine_semantics: sarathi,
// orca, simple_chunking and vllm_prefill_first. A block is 4 tokens in all of them.
#include "engines/sarathi/settings.h"
#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Steps = std::vector<Planned>;

EngineSetup sarathi_setup(const std::string& policy, std::int64_t num_blocks,
                          std::int32_t chunk_size) {
  EngineSetup setup = make_setup(policy);
  setup.kv_cache = {.num_blocks = num_blocks, .block_size = 4};
  setup.scheduler.edit<SarathiConfig>().chunk_size = chunk_size;
  return setup;
}

// Every step until all requests have ended: the request and the tokens of each chunk.
Steps drain(Bench& bench) {
  bench.engine.drain();
  Steps steps;
  for (const StepPlan& plan : bench.executor.plans) steps.push_back(planned_by(plan));
  return steps;
}

std::vector<int> chunks_of_one(const SarathiConfig& config, std::int32_t prompt) {
  EngineSetup setup = make_setup("sarathi");
  setup.max_num_seqs = 8;
  setup.scheduler.edit<SarathiConfig>() = config;
  Bench bench(setup);
  const RequestId id = bench.submit(prompt, 1);
  bench.engine.drain();
  return bench.journal.prefill_chunks(id);
}

SarathiConfig dynamic_chunks(std::int32_t low, std::int32_t high, std::int32_t max_tokens,
                             std::int32_t stages) {
  SarathiConfig config;
  config.enable_dynamic_chunking_schedule = true;
  config.low_chunk_size = low;
  config.high_chunk_size = high;
  config.chunk_schedule_max_tokens = max_tokens;
  config.chunk_schedule_stages = stages;
  return config;
}

}  // namespace

TEST_CASE("sarathi: decodes, then begun prompts, then new ones", "[core][policies]") {
  // Chunk 16. Step 0: 8 + 8. Step 1: a decode, the 12 tokens left of 1, and 3 of the chunk for 2.
  Bench bench(sarathi_setup("sarathi", 100, 16));
  bench.submit(8, 3);
  bench.submit(20, 2);
  bench.submit(10, 1);
  CHECK(drain(bench) ==
        Steps{{{0, 8}, {1, 8}}, {{0, 1}, {1, 12}, {2, 3}}, {{0, 1}, {1, 1}, {2, 7}}});
}

TEST_CASE("sarathi: decodes leave nothing of the chunk for prompts", "[core][policies]") {
  // Chunk 2: both tokens go to the decodes of 0 and 1 until these end; 2 waits meanwhile.
  EngineSetup setup = sarathi_setup("sarathi", 100, 2);
  setup.max_num_seqs = 3;
  Bench bench(setup);
  bench.submit(1, 3);
  bench.submit(1, 3);
  bench.submit(3, 1);
  CHECK(drain(bench) ==
        Steps{{{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}, {{2, 2}}, {{2, 1}}});
}

TEST_CASE("sarathi: max_num_seqs limits the running requests", "[core][policies]") {
  EngineSetup setup = sarathi_setup("sarathi", 100, 16);
  setup.max_num_seqs = 2;
  Bench bench(setup);
  bench.submit(3, 1);
  bench.submit(3, 2);
  bench.submit(3, 1);
  CHECK(drain(bench) == Steps{{{0, 3}, {1, 3}}, {{1, 1}, {2, 3}}});
}

TEST_CASE("sarathi: the watermark stays free at admission", "[core][policies]") {
  // 200 blocks, 2 of them the watermark: 198 for the prompt of 0, and 1 would leave one only.
  EngineSetup setup = sarathi_setup("sarathi", 200, 1000);
  setup.kv_cache.watermark_blocks = 2;
  Bench bench(setup);
  bench.submit(792, 2);
  bench.submit(1, 1);
  CHECK(drain(bench) == Steps{{{0, 792}}, {{0, 1}}, {{1, 1}}});
  const Submission refused = bench.engine.submit({bench.clock.now(), 793, 1, 0});
  CHECK(refused.refusal == EndReason::NeverFits);
  CHECK_THAT(refused.message, Catch::Contains("takes 199 KV blocks at once and leaves 2 free"));
}

TEST_CASE("sarathi: a decode preempts the tail, even if it needs no block", "[core][policies]") {
  // 6 blocks. Step 0: prompts of 7 and 16 take 2 + 4 blocks; 9 tokens of 1 fit in the chunk of 16.
  // Step 1: 0 has room for its 8th token, but no block is free: 1 goes, 4 blocks are free. It heads
  // the queue with room for its prompt, and its chunk is what was left before: 16 - 9 = 7 tokens,
  // from the start. Step 2: 1 goes again; 0 takes a third block for its 9th token, 3 are not enough
  // for 1. Step 4: 0 is gone, all 16 tokens of 1 fit in the chunk.
  Bench bench(sarathi_setup("sarathi", 6, 16));
  bench.submit(7, 4);
  const RequestId victim = bench.submit(16, 2);
  CHECK(drain(bench) ==
        Steps{{{0, 7}, {1, 9}}, {{0, 1}, {1, 7}}, {{0, 1}}, {{0, 1}}, {{1, 16}}, {{1, 1}}});
  CHECK(bench[victim].num_preemptions == 2);
  CHECK(bench.journal.admissions() == std::vector{RequestId{0}, victim, victim, victim});
  CHECK(bench[victim].num_output_tokens() == 2);  // it had none to restart from
}

TEST_CASE("sarathi: whom a decode preempts is the last not visited yet", "[core][policies]") {
  // 6 blocks, 2 for each prompt of 7. Step 1: 0 finds no free block, so 2 goes. Step 2: 0 takes one
  // of its blocks for the 9th token, 1 the other. Step 3: 0 finds none, 1 goes with 3 blocks. Step
  // 4: 0 needs none of them, and 1, before 2 in the queue, takes all for its 7 + 3 tokens.
  Bench bench(sarathi_setup("sarathi", 6, 64));
  bench.submit(7, 5);
  bench.submit(7, 4);
  bench.submit(7, 2);
  bench.engine.step();
  bench.engine.step();
  CHECK(planned_by(bench.executor.plans.back()) == Planned{{0, 1}, {1, 1}});
  CHECK(preempted_last(bench) == std::vector{2});
  bench.engine.step();
  CHECK(planned_by(bench.executor.plans.back()) == Planned{{0, 1}, {1, 1}});
  CHECK(bench.engine.kv_cache().num_free_blocks() == 0);
  bench.engine.step();
  CHECK(planned_by(bench.executor.plans.back()) == Planned{{0, 1}});
  CHECK(preempted_last(bench) == std::vector{1});
  bench.engine.step();
  CHECK(planned_by(bench.executor.plans.back()) == Planned{{0, 1}, {1, 10}});
}

TEST_CASE("sarathi: a preempted decode blocks the queue for the rest of its step",
          "[core][policies]") {
  // 4 blocks, 2 for each prompt of 7. Step 1: 1 goes. Its 8 tokens would find room again, but to
  // the engine they are computed still, so its chunk is empty, and 2 stands behind it. Step 2: 0
  // takes a third block, 1 needs two. Step 3: recompute of 7 + 1 tokens; 1 asked for 2 tokens, gave
  // 1, and starts to count again: 3 in all.
  Bench bench(sarathi_setup("sarathi", 4, 16));
  bench.submit(7, 3);
  const RequestId victim = bench.submit(7, 2);
  bench.engine.step();
  const RequestId third = bench.submit(1, 1);
  CHECK(drain(bench) == Steps{{{0, 7}, {1, 7}}, {{0, 1}}, {{0, 1}}, {{1, 8}, {2, 1}}, {{1, 1}}});
  CHECK(bench[victim].num_output_tokens() == 3);
  CHECK(bench[third].num_output_tokens() == 1);
}

TEST_CASE("sarathi: each preemption starts the output anew", "[core][policies]") {
  // 5 blocks. Steps 0 to 2: 0 grows to 3 blocks, 1 to 2. Step 3: 1 goes with 3 tokens given. Step
  // 4: its 3 + 3 tokens are computed again, which gives a fourth. Step 5: it goes with that. Step
  // 7: 0 has ended, 7 tokens are computed again. It asked for 5, counted from the fourth: 9 in all.
  Bench bench(sarathi_setup("sarathi", 5, 16));
  bench.submit(7, 7);
  const RequestId victim = bench.submit(3, 5);
  CHECK(drain(bench) == Steps{{{0, 7}, {1, 3}},
                              {{0, 1}, {1, 1}},
                              {{0, 1}, {1, 1}},
                              {{0, 1}},
                              {{0, 1}, {1, 6}},
                              {{0, 1}},
                              {{0, 1}},
                              {{1, 7}},
                              {{1, 1}},
                              {{1, 1}},
                              {{1, 1}},
                              {{1, 1}}});
  CHECK(bench[victim].num_preemptions == 2);
  CHECK(bench[victim].num_output_tokens() == 9);
  CHECK(bench[victim].end_reason == EndReason::Length);
}

TEST_CASE("sarathi: requests are served by arrival, also one that prefills for longer",
          "[core][policies]") {
  // Chunks of 64 up to position 64, then of 32. Step 1: after 32 tokens of 0 the chunk of 1, which
  // is at its start, has room for all of its prompt. Step 2: 1 decodes, 0 comes after it with its
  // last 4 tokens. Then 0 stands before 1 again.
  EngineSetup setup = sarathi_setup("sarathi", 100, 1);
  setup.scheduler.edit<SarathiConfig>() = dynamic_chunks(32, 64, 128, 2);
  Bench bench(setup);
  bench.submit(100, 3);
  bench.submit(4, 4);
  CHECK(drain(bench) ==
        Steps{{{0, 64}}, {{0, 32}, {1, 4}}, {{1, 1}, {0, 4}}, {{0, 1}, {1, 1}}, {{0, 1}, {1, 1}}});
}

TEST_CASE("sarathi: a request that outgrew its limits ends when it should return",
          "[core][policies]") {
  // 4 blocks. Step 0: 3 + 1 blocks. Step 1: 1 goes with one token given; it may give 11 more. Step
  // 2: its 4 tokens are computed again, 0 ends. Steps 3 to 11: it decodes up to 14 tokens and 4
  // blocks. Now no block is free for a decode: it preempts itself and is computed again, token by
  // token.
  const auto run = [](std::int32_t max_model_len) {
    EngineSetup setup = sarathi_setup("sarathi", 4, 32);
    setup.max_num_seqs = 8;
    setup.max_model_len = max_model_len;
    Bench bench(setup);
    bench.submit(9, 3);
    const RequestId id = bench.submit(3, 11);
    Steps steps = drain(bench);
    CHECK(bench[id].state == RequestState::Failed);
    CHECK(bench[id].end_reason == EndReason::NeverFits);
    return Steps(steps.begin() + 12, steps.end());
  };
  // With 16 tokens it is longer than max_model_len; with 17 the whole cache cannot hold it.
  CHECK(run(15) == Steps{{{1, 14}}, {{1, 15}}});
  CHECK(run(100) == Steps{{{1, 14}}, {{1, 15}}, {{1, 16}}});
}

TEST_CASE("sarathi: a request that would fill the cache before its last decode is refused",
          "[core][policies]") {
  // 3 blocks. 9 tokens take all of them, so none would be free to decode the second output token.
  Bench bench(sarathi_setup("sarathi", 3, 16));
  const Submission refused = bench.engine.submit({bench.clock.now(), 9, 2, 0});
  CHECK(refused.refusal == EndReason::NeverFits);
  CHECK_THAT(refused.message, Catch::Contains("leaves none of 3 KV blocks free"));
  bench.submit(12, 1);
  bench.submit(8, 2);
  CHECK(drain(bench) == Steps{{{1, 12}}, {{2, 8}}, {{2, 1}}});
}

TEST_CASE("sarathi: dynamic chunks shrink as the prompt advances", "[core][policies]") {
  // 128, 96, 64, 32, each for 200 tokens. Stage 0: 128, 256. Stage 1: 352, 448. Stage 2: 512, 576,
  // 640. Stage 3: 672 and the rest. A prompt beyond 800 tokens stays in the last stage.
  CHECK(chunks_of_one(dynamic_chunks(32, 128, 800, 4), 700) ==
        std::vector{128, 128, 96, 96, 64, 64, 64, 32, 28});
  CHECK(chunks_of_one(dynamic_chunks(32, 64, 64, 2), 170) == std::vector{64, 32, 32, 32, 10});
  // 96, 80, 64, each for 100 tokens. 80 = 2.5 * 32 rounds to the even 2 * 32.
  CHECK(chunks_of_one(dynamic_chunks(64, 96, 300, 3), 400) == std::vector{96, 96, 64, 64, 64, 16});
  // 18 stages of 24 tokens. At 96 stage 4: 32 + 13 * 64 / 17 = 80.94, cut to 80, rounds to 64.
  // At 160 stage 6: 73. At 224 stage 9: 62.
  CHECK(chunks_of_one(dynamic_chunks(32, 96, 432, 18), 300) == std::vector{96, 64, 64, 64, 12});
  // One stage has the low size; below 32 sizes are multiples of that.
  CHECK(chunks_of_one(dynamic_chunks(32, 96, 100, 1), 70) == std::vector{32, 32, 6});
  CHECK(chunks_of_one(dynamic_chunks(10, 24, 40, 2), 60) == std::vector{20, 10, 10, 10, 10});
}

TEST_CASE("sarathi: with two steps in flight", "[core][policies]") {
  // As with the 6 blocks above, but in step 1 request 1 has its first chunk in flight: it does not
  // come back before that. After step 3 the last token of 0 is in flight, which leaves nothing to
  // plan until it is there.
  EngineSetup setup = sarathi_setup("sarathi", 6, 16);
  setup.async_depth = 2;
  Bench bench(setup);
  bench.submit(7, 4);
  bench.submit(16, 2);
  CHECK(drain(bench) == Steps{{{0, 7}, {1, 9}}, {{0, 1}}, {{0, 1}}, {{0, 1}}, {{1, 16}}, {{1, 1}}});
}

TEST_CASE("orca: whole prompts beside decodes, max_model_len reserved for each",
          "[core][policies]") {
  // 8 blocks for each request: two of 20. Nobody waits for tokens: 2 joins as soon as 0 has ended.
  EngineSetup setup = sarathi_setup("orca", 20, 2);
  setup.max_model_len = 32;
  Bench bench(setup);
  bench.submit(5, 2);
  bench.submit(3, 4);
  bench.submit(20, 1);
  bench.engine.step();
  CHECK(bench.engine.kv_cache().num_used_blocks() == 16);
  CHECK(drain(bench) == Steps{{{0, 5}, {1, 3}}, {{0, 1}, {1, 1}}, {{1, 1}, {2, 20}}, {{1, 1}}});

  // Alone it may fill the cache: a decode needs no free block.
  setup.kv_cache.num_blocks = 8;
  Bench full(setup);
  full.submit(30, 2);
  CHECK(drain(full) == Steps{{{0, 30}}, {{0, 1}}});

  setup.kv_cache.num_blocks = 7;
  Bench small(setup);
  const Submission refused = small.engine.submit({small.clock.now(), 1, 1, 0});
  CHECK_THAT(refused.message, Catch::Contains("takes 8 KV blocks at once"));
}

TEST_CASE("simple_chunking: prompts and decodes take turns", "[core][policies]") {
  // Chunk 8. 0 takes all of step 0. The turn of the decodes finds none. 0 alone takes its last 4,
  // since begun prompts go without new ones; then it decodes, then 1 has its prompt, then both
  // decode. With no prompt left 1 decodes in both turns.
  Bench bench(sarathi_setup("simple_chunking", 100, 8));
  bench.submit(12, 3);
  bench.submit(4, 4);
  CHECK(drain(bench) ==
        Steps{{{0, 8}}, {{0, 4}}, {{0, 1}}, {{1, 4}}, {{0, 1}, {1, 1}}, {{1, 1}}, {{1, 1}}});
}

TEST_CASE("simple_chunking: a decode preempts a begun prompt behind it", "[core][policies]") {
  // 6 blocks, chunk 16. Step 0: 7 + 9 tokens, 2 + 4 blocks. Step 1: no block is free, 1 goes. Its
  // prompt is computed from the start in the next turn, 16 tokens at once. Step 3: 1 goes again,
  // with a token given; 0 has its 9th token in a third block. Step 4: 3 blocks are free, 5 needed,
  // so 0 decodes in the turn of the prompts too.
  Bench bench(sarathi_setup("simple_chunking", 6, 16));
  bench.submit(7, 4);
  const RequestId victim = bench.submit(16, 2);
  CHECK(drain(bench) == Steps{{{0, 7}, {1, 9}},
                              {{0, 1}},
                              {{1, 16}},
                              {{0, 1}},
                              {{0, 1}},
                              {{1, 16}},
                              {{1, 1}},
                              {{1, 1}}});
  CHECK(bench[victim].num_output_tokens() == 3);
}

TEST_CASE("vllm_prefill_first: whole prompts within the budget, decodes wait", "[core][policies]") {
  EngineSetup setup = sarathi_setup("vllm_prefill_first", 100, 1);
  setup.scheduler.max_num_batched_tokens = 20;
  setup.max_num_seqs = 3;
  Bench bench(setup);
  bench.submit(8, 3);
  bench.submit(10, 2);
  bench.submit(5, 2);  // 8 + 10 + 5 > 20
  bench.submit(1, 1);  // the fourth
  CHECK(drain(bench) ==
        Steps{{{0, 8}, {1, 10}}, {{2, 5}}, {{0, 1}, {1, 1}, {2, 1}}, {{3, 1}}, {{0, 1}}});
  const Submission refused = bench.engine.submit({bench.clock.now(), 21, 1, 0});
  CHECK_THAT(refused.message, Catch::Contains("a prompt may have at most 20"));

  // A batch is no longer than max_model_len allows.
  setup.scheduler.max_num_batched_tokens = 100;
  setup.max_model_len = 16;
  Bench other(setup);
  other.submit(10, 1);
  other.submit(7, 1);
  CHECK(drain(other) == Steps{{{0, 10}}, {{1, 7}}});
}

TEST_CASE("vllm_prefill_first: a preempted request comes back before anyone decodes",
          "[core][policies]") {
  // 4 blocks, 2 for each prompt of 7. Step 1: 0 finds no free block, 1 goes. Step 2: its 7 + 1
  // tokens fit. Step 3: it goes again, with a second token given. Step 4: 0 has ended. Asked for 2,
  // it gives 2 more than the 2.
  EngineSetup setup = sarathi_setup("vllm_prefill_first", 4, 1);
  setup.scheduler.max_num_batched_tokens = 64;
  Bench bench(setup);
  bench.submit(7, 3);
  const RequestId victim = bench.submit(7, 2);
  CHECK(drain(bench) == Steps{{{0, 7}, {1, 7}}, {{0, 1}}, {{1, 8}}, {{0, 1}}, {{1, 9}}, {{1, 1}}});
  CHECK(bench[victim].num_output_tokens() == 4);
}

TEST_CASE("vllm_prefill_first: nobody decodes in a step that ignores a request",
          "[core][policies]") {
  // The requests of the case before, with a budget of 8: when 1 is to come back with 9 tokens, that
  // is too long a prompt.
  EngineSetup setup = sarathi_setup("vllm_prefill_first", 4, 1);
  setup.scheduler.max_num_batched_tokens = 8;
  setup.max_num_seqs = 8;
  Bench bench(setup);
  bench.submit(7, 4);
  const RequestId victim = bench.submit(7, 2);
  for (const Planned& planned : Steps{{{0, 7}}, {{1, 7}}, {{0, 1}}, {{1, 8}}, {{0, 1}}, {}}) {
    CHECK(step(bench) == planned);
  }
  CHECK(bench[victim].end_reason == EndReason::NeverFits);
  CHECK(step(bench) == Planned{{0, 1}});
}

}  // namespace metronome::testing::TEST_FILE
