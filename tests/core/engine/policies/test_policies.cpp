// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of the scheduling policies.
#include "core/workload/workload.h"
#include "tests/catch.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

using Ints = std::vector<int>;

EngineSetup token_budget(std::int32_t budget, std::optional<std::int64_t> chunk) {
  EngineSetup setup = make_setup("token_budget");
  setup.scheduler.max_num_batched_tokens = budget;
  setup.scheduler.prefill_chunk_size = chunk;
  return setup;
}

EngineSetup chunked(std::int64_t chunk, std::int32_t max_chunks = 0) {
  EngineSetup setup = make_setup("chunked");
  setup.scheduler.prefill_chunk_size = chunk;
  setup.scheduler.max_prefill_chunks_per_step = max_chunks;
  return setup;
}

EngineSetup single_prefill(std::int32_t budget) {
  EngineSetup setup = make_setup("single_prefill");
  setup.scheduler.max_num_batched_tokens = budget;
  return setup;
}

// Submits all at once, runs to the end, and returns the step in which each request ended.
Ints end_steps(Bench& bench, const std::vector<std::pair<int, int>>& prompt_and_output) {
  std::vector<RequestId> ids;
  for (const auto& [prompt, output] : prompt_and_output)
    ids.push_back(bench.submit(prompt, output));
  bench.engine.drain();
  Ints steps;
  for (const RequestId id : ids) steps.push_back(static_cast<int>(bench.journal.end_step.at(id)));
  return steps;
}

}  // namespace

TEST_CASE("token_budget: decodes first, then a chunk of a long prompt", "[core][policies]") {
  // Budget 64, chunk 32, three decodes and one 150-token prompt: 3 + 32 four times, 3 + 22, then
  // four decodes. The first token comes with the fifth step only.
  Bench bench(token_budget(64, 32));
  for (int i = 0; i < 3; ++i) bench.submit(8, 40);
  bench.engine.step();
  REQUIRE(bench.journal.tokens_per_step() == Ints{24});

  const RequestId long_request = bench.submit(150, 10);
  for (int i = 0; i < 4; ++i) {
    bench.engine.step();
    CHECK(bench[long_request].num_output_tokens() == 0);
    CHECK(bench[long_request].state == RequestState::Prefill);
    CHECK(bench[long_request].num_cached_tokens() == 32 * (i + 1));
  }
  bench.engine.step();
  CHECK(bench[long_request].num_output_tokens() == 1);
  CHECK(bench[long_request].state == RequestState::Decode);
  bench.engine.step();
  CHECK(bench.journal.tokens_per_step() == Ints{24, 35, 35, 35, 35, 25, 4});
  CHECK(bench.journal.steps.back().record.num_decode_tokens == 4);
}

TEST_CASE("token_budget: an unfinished prompt and new requests share what is left",
          "[core][policies]") {
  Bench bench(token_budget(100, 40));
  const RequestId a = bench.submit(90, 5);
  const RequestId b = bench.submit(70, 5);
  const RequestId c = bench.submit(30, 5);
  bench.engine.step();  // a 40, b 40, c gets the remaining 20 of 100
  bench.engine.step();  // a 40, b 30, c 10
  bench.engine.step();  // a 10, and decodes of b and c
  CHECK(bench.journal.prefill_chunks(a) == Ints{40, 40, 10});
  CHECK(bench.journal.prefill_chunks(b) == Ints{40, 30});
  CHECK(bench.journal.prefill_chunks(c) == Ints{20, 10});
  CHECK(bench.journal.tokens_per_step() == Ints{100, 80, 12});
}

TEST_CASE("token_budget: min_chunk_size waits rather than start a sliver", "[core][policies]") {
  EngineSetup setup = token_budget(64, {});
  setup.scheduler.min_chunk_size = 16;
  Bench bench(setup);
  const RequestId a = bench.submit(56, 3);
  const RequestId b = bench.submit(40, 3);
  bench.engine.step();  // 8 tokens are left beside a: below 16, b waits
  CHECK(bench[b].state == RequestState::Waiting);
  bench.engine.step();  // one decode leaves 63 for b, which fits whole
  CHECK(bench.journal.prefill_chunks(b) == Ints{40});
  CHECK(bench[a].num_output_tokens() == 2);

  // A prompt shorter than min_chunk_size is not a sliver of anything: it goes in whole.
  Bench other(setup);
  other.submit(56, 3);
  const RequestId small = other.submit(5, 3);
  other.engine.step();
  CHECK(other.journal.prefill_chunks(small) == Ints{5});
}

TEST_CASE("token_budget: max_num_partial_prefills limits unfinished prompts", "[core][policies]") {
  EngineSetup setup = token_budget(100, 30);
  setup.scheduler.max_num_partial_prefills = 1;
  Bench bench(setup);
  const RequestId a = bench.submit(70, 2);
  const RequestId b = bench.submit(70, 2);
  const RequestId c = bench.submit(20, 2);
  bench.engine.step();
  // b would be the second unfinished prompt; c stands behind it in the queue.
  CHECK(bench[a].state == RequestState::Prefill);
  CHECK(bench[b].state == RequestState::Waiting);
  CHECK(bench[c].state == RequestState::Waiting);
  bench.engine.drain();
  for (const Journal::Step& step : bench.journal.steps) {
    int num_partial = 0;
    for (const ScheduledChunk& chunk : step.chunks) num_partial += chunk.samples_token ? 0 : 1;
    CHECK(num_partial <= 1);
  }
}

TEST_CASE("single_prefill: the steps in which requests finish", "[core][policies]") {
  SECTION("prompts 9/9/12, outputs 17/22/15, budget 32") {
    Bench bench(single_prefill(32));
    CHECK(end_steps(bench, {{9, 17}, {9, 22}, {12, 15}}) == Ints{15, 21, 15});
  }
  SECTION("prompts 5/20, outputs 15/5, budget 8") {
    Bench bench(single_prefill(8));
    CHECK(end_steps(bench, {{5, 15}, {20, 5}}) == Ints{13, 6});
  }
  SECTION("prompts 5/17/26/4, outputs 10/8/6/12, budget 10") {
    Bench bench(single_prefill(10));
    CHECK(end_steps(bench, {{5, 10}, {17, 8}, {26, 6}, {4, 12}}) == Ints{8, 8, 10, 17});
    for (std::uint32_t i = 0; i < 4; ++i) {
      const Request& request = bench[RequestId{i}];
      // The last token is sampled and never cached.
      CHECK(request.num_cached_tokens() ==
            request.num_prompt_tokens + request.max_output_tokens - 1);
    }
  }
}

TEST_CASE("single_prefill: a prompt of 20 under budget 8 takes chunks 8, 8, 4",
          "[core][policies]") {
  Bench bench(single_prefill(8));
  const RequestId id = bench.submit(20, 5);
  bench.engine.drain();
  CHECK(bench.journal.prefill_chunks(id) == Ints{8, 8, 4});
  // In the step that completes the prompt: the first token, and one decode on top of it.
  const Journal::Step& third = bench.journal.steps.at(2);
  CHECK(third.record.num_prefill_tokens == 4);
  CHECK(third.record.num_decode_tokens == 1);
  CHECK(third.emitted() == std::vector{true, true});
  CHECK(bench.journal.steps.size() == 3 + 3);
  CHECK(bench[id].num_cached_tokens() == 20 + 5 - 1);
}

TEST_CASE("chunked: chunk boundaries", "[core][policies]") {
  struct Case {
    std::int32_t prompt;
    std::int64_t chunk;
    Ints expected;
  };
  const std::vector<Case> cases = {
      {32, 32, {32}},         // prompt = chunk
      {1, 32, {1}},           // prompt = 1
      {20, 512, {20}},        // chunk > prompt
      {33, 16, {16, 16, 1}},  // prompt % chunk = 1
      {4, 1, {1, 1, 1, 1}},   // one token at a time
      {2048, 512, {512, 512, 512, 512}},
  };
  for (const Case& c : cases) {
    Bench bench(chunked(c.chunk));
    const RequestId id = bench.submit(c.prompt, 3);
    std::int32_t cached = 0;
    for (std::size_t i = 0; i < c.expected.size(); ++i) {
      CHECK(bench.engine.has_work());  // also in the middle of a prompt
      bench.engine.step();
      cached += c.expected[i];
      CHECK(bench[id].num_computed_tokens() == cached);
      CHECK(bench[id].num_cached_tokens() == cached);
      const bool is_last = i + 1 == c.expected.size();
      CHECK(bench[id].num_output_tokens() == (is_last ? 1 : 0));
      CHECK(bench.journal.steps.back().emitted() == std::vector{is_last});
    }
    bench.engine.drain();
    CHECK(bench.journal.prefill_chunks(id) == c.expected);
    CHECK(bench[id].num_output_tokens() == 3);
    CHECK(bench[id].num_cached_tokens() == c.prompt + 2);
  }
}

TEST_CASE("chunked: continuing prompts come before new ones, up to the cap", "[core][policies]") {
  Bench bench(chunked(16, 2));
  const RequestId a = bench.submit(48, 4);
  const RequestId b = bench.submit(32, 4);
  const RequestId c = bench.submit(16, 4);
  const auto chunk_owners = [&] {
    std::vector<RequestId> owners;
    for (const ScheduledChunk& chunk : bench.journal.steps.back().chunks) {
      if (chunk.kind == ChunkKind::Prefill) owners.push_back(chunk.request);
    }
    return owners;
  };
  bench.engine.step();
  CHECK(chunk_owners() == std::vector{a, b});
  bench.engine.step();
  CHECK(chunk_owners() == std::vector{a, b});  // c, though shorter, is new and waits
  bench.engine.step();
  CHECK(chunk_owners() == std::vector{a, c});
  bench.engine.drain();
}

TEST_CASE("a request is in the prefill or the decode set of a step, never both",
          "[core][policies]") {
  for (const char* policy : {"static", "continuous", "chunked", "token_budget"}) {
    EngineSetup setup = make_setup(policy);
    setup.scheduler.prefill_chunk_size = 16;
    Bench bench(setup);
    for (int i = 0; i < 12; ++i) {
      bench.submit(10 + 9 * i, 6);
      bench.engine.step();
    }
    bench.engine.drain();
    for (const Journal::Step& step : bench.journal.steps) {
      std::map<RequestId, int> seen;
      for (const ScheduledChunk& chunk : step.chunks) CHECK(++seen[chunk.request] == 1);
    }
  }
}

TEST_CASE("continuous: capacity, first come first served, whole prompts", "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.max_num_seqs = 2;
  Bench bench(setup);
  const RequestId a = bench.submit(500, 2);
  const RequestId b = bench.submit(40, 6);
  const RequestId c = bench.submit(7, 2);
  bench.engine.step();
  CHECK(bench.journal.admissions() == std::vector{a, b});
  CHECK(bench.journal.tokens_per_step() == Ints{540});
  CHECK(bench[c].state == RequestState::Waiting);
  bench.engine.step();  // a ends here
  CHECK(bench[a].state == RequestState::Finished);
  bench.engine.step();  // its place goes to c; b decodes in the same step, first
  CHECK(bench.journal.admissions() == std::vector{a, b, c});
  CHECK(bench.journal.steps.back().chunks.front().request == b);
  CHECK(bench.journal.tokens_per_step() == Ints{540, 2, 8});
  bench.engine.drain();
}

TEST_CASE("continuous: nobody starves at three times the batch size", "[core][policies]") {
  for (const KvBackend backend : {KvBackend::Paged, KvBackend::Slotted}) {
    EngineSetup setup = make_setup("continuous");
    setup.max_num_seqs = 4;
    if (backend == KvBackend::Slotted) setup.kv_cache = {.num_blocks = 4, .block_size = 8192};
    Bench bench(setup);
    std::vector<RequestId> ids;
    for (int i = 0; i < 12; ++i) ids.push_back(bench.submit(32 << (i % 4), 16));
    bench.engine.drain();
    CHECK(bench.journal.admissions() == ids);
    for (const RequestId id : ids) CHECK(bench[id].state == RequestState::Finished);
    CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
  }
}

TEST_CASE("slots are used again, from position 0", "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.max_num_seqs = 1;
  setup.kv_cache = {.num_blocks = 1, .block_size = 8192};
  Bench bench(setup);
  const RequestId a = bench.submit(50, 2);
  const RequestId b = bench.submit(30, 2);
  bench.engine.step();
  CHECK(bench[a].block_table == BlockTable{BlockId{0}});
  bench.engine.step();
  bench.engine.step();
  CHECK(bench[b].block_table == BlockTable{BlockId{0}});
  CHECK(bench[b].num_cached_tokens() == 30);
  bench.engine.drain();
}

TEST_CASE("static: nobody joins until all have ended", "[core][policies]") {
  EngineSetup setup = make_setup("static");
  setup.max_num_seqs = 2;
  Bench bench(setup);
  const RequestId a = bench.submit(10, 2);
  const RequestId b = bench.submit(10, 5);
  const RequestId c = bench.submit(10, 1);
  for (int i = 0; i < 5; ++i) {
    bench.engine.step();
    CHECK(bench[c].state == RequestState::Waiting);
  }
  CHECK(bench[a].state == RequestState::Finished);
  CHECK(bench[b].state == RequestState::Finished);
  bench.engine.step();
  CHECK(bench[c].state == RequestState::Finished);
  CHECK(bench.journal.tokens_per_step() == Ints{20, 2, 1, 1, 1, 10});
}

TEST_CASE("static: a batch that is not full waits for company, but not forever",
          "[core][policies]") {
  EngineSetup setup = make_setup("static");
  setup.max_num_seqs = 2;
  setup.scheduler.batch_wait_ms = 50;
  Bench bench(setup);
  const RequestId a = bench.submit(10, 1);
  CHECK_FALSE(bench.engine.step());
  CHECK(bench.engine.wake_time() == 50 * kNsPerMs);
  bench.engine.drain();
  CHECK(bench[a].state == RequestState::Finished);
  CHECK(bench.journal.steps.front().record.planned_at == 50 * kNsPerMs);

  Bench full(setup);  // a full batch starts at once
  full.submit(10, 1);
  full.submit(10, 1);
  CHECK(full.engine.step());
  CHECK(full.journal.steps.front().record.planned_at == 0);
}

TEST_CASE("queue order: priority and shortest prefill first", "[core][policies]") {
  const auto admission_order = [](QueueOrder order) {
    EngineSetup setup = token_budget(64, {});
    setup.scheduler.order = order;
    setup.max_num_seqs = 1;
    Bench bench(setup);
    bench.submit(60, 1, 5);
    bench.submit(20, 1, 3);
    bench.submit(40, 1, 1);
    bench.submit(20, 1, 3);
    bench.engine.drain();
    Ints ids;
    for (const RequestId id : bench.journal.admissions()) ids.push_back(static_cast<int>(id));
    return ids;
  };
  CHECK(admission_order(QueueOrder::Fcfs) == Ints{0, 1, 2, 3});
  CHECK(admission_order(QueueOrder::Priority) == Ints{2, 1, 3, 0});
  CHECK(admission_order(QueueOrder::ShortestPrefillFirst) == Ints{1, 3, 2, 0});
}

TEST_CASE("preemption takes the tail, and recomputes prompt and output", "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.kv_cache = {.num_blocks = 4, .block_size = 4};
  Bench bench(setup);
  const RequestId a = bench.submit(8, 8);
  const RequestId b = bench.submit(8, 4);
  bench.engine.step();  // both prompts: all four blocks are taken
  bench.engine.step();  // a needs a third block: b, the tail, goes
  CHECK(bench[b].state == RequestState::Waiting);
  CHECK(bench[b].num_preemptions == 1);
  CHECK(bench[b].num_output_tokens() == 1);  // it keeps its token
  CHECK(bench[b].block_table.empty());
  CHECK(bench[a].num_output_tokens() == 2);
  bench.engine.drain();
  // b came back when its 9 tokens (prompt and one output) had room: three blocks, once a ended.
  CHECK(bench.journal.prefill_chunks(b) == Ints{8, 9});
  CHECK(bench.journal.admissions() == std::vector{a, b, b});
  CHECK(bench[b].num_output_tokens() == 4);
  CHECK(bench.journal.num_emitted.at(b) == 4);
}

TEST_CASE("under priority the worst is preempted, whenever it was admitted", "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.scheduler.order = QueueOrder::Priority;
  setup.kv_cache = {.num_blocks = 4, .block_size = 4};
  Bench bench(setup);
  const RequestId worst = bench.submit(8, 4, 9);
  bench.engine.step();
  const RequestId best = bench.submit(7, 4, 1);
  bench.engine
      .step();  // the worst one decodes into its third block, the best needs two more: waits
  CHECK(bench[best].state == RequestState::Waiting);
  bench.engine.drain();
  CHECK(bench[worst].num_preemptions == 0);

  Bench contended(setup);
  const RequestId low = contended.submit(7, 8, 9);
  contended.engine.step();
  const RequestId high = contended.submit(7, 8, 1);
  contended.engine.step();  // two blocks each; the worst, though admitted first, is the tail
  contended.engine.step();  // it wants a third block and gives way itself
  CHECK(contended[low].num_preemptions == 1);
  CHECK(contended[high].num_preemptions == 0);
  contended.engine.drain();
}

TEST_CASE("a plan that preempts admits nobody, and of equals the younger is preempted",
          "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.max_num_seqs = 2;
  setup.scheduler.order = QueueOrder::Priority;
  setup.kv_cache = {.num_blocks = 4, .block_size = 4};
  Bench bench(setup);
  const RequestId elder = bench.submit(7, 8, 5);
  const RequestId younger = bench.submit(7, 8, 5);
  bench.engine.step();  // two blocks each: all are taken
  const RequestId better = bench.submit(3, 2, 1);
  bench.engine.step();
  bench.engine.step();  // the elder needs a third block; one is left, enough for the better
  CHECK(bench[elder].num_preemptions == 0);
  CHECK(bench[younger].num_preemptions == 1);
  CHECK(bench[better].state == RequestState::Waiting);
  bench.engine.step();
  CHECK(bench[better].state == RequestState::Decode);
  bench.engine.drain();
}

TEST_CASE("a begun prompt keeps its way to the end", "[core][policies]") {
  // Ten blocks of 4. The first prompt needs six in all; beside it the second's six are not free, so
  // it waits, though its first chunk alone would fit: taken now, it would be preempted later.
  EngineSetup setup = chunked(8);
  setup.kv_cache = {.num_blocks = 10, .block_size = 4};
  Bench bench(setup);
  const RequestId a = bench.submit(24, 2);
  const RequestId b = bench.submit(24, 2);
  for (int i = 0; i < 3; ++i) {
    bench.engine.step();
    CHECK(bench[b].state == RequestState::Waiting);
  }
  CHECK(bench[a].state == RequestState::Decode);
  bench.engine.drain();
  CHECK(bench[a].num_preemptions + bench[b].num_preemptions == 0);
  CHECK(bench.journal.prefill_chunks(b) == Ints{8, 8, 8});
}

TEST_CASE("nobody is preempted where it would not help", "[core][policies]") {
  // Seven blocks of 4. The elder prompt stands first and holds two; a decode behind it holds one.
  // When decodes have eaten the rest, the prompt waits for them instead of evicting in vain.
  EngineSetup setup = chunked(4);
  setup.kv_cache = {.num_blocks = 7, .block_size = 4};
  Bench bench(setup);
  const RequestId decoding = bench.submit(4, 18);  // grows to six blocks
  bench.engine.step();
  const RequestId prompt = bench.submit(16, 2);
  bench.engine.drain();
  CHECK(bench[decoding].num_preemptions == 0);
  CHECK(bench[decoding].num_output_tokens() == 18);
  CHECK(bench[prompt].num_output_tokens() == 2);
  CHECK(bench[prompt].num_preemptions <= 1);
}

TEST_CASE("a request admitted and crowded out in one plan was not preempted", "[core][policies]") {
  // Three blocks of 4. The newcomer's prompt is planned first, then the decodes need its block.
  EngineSetup setup = single_prefill(64);
  setup.kv_cache = {.num_blocks = 3, .block_size = 4};
  Bench bench(setup);
  const RequestId a = bench.submit(7, 5);
  bench.engine.step();  // a: 7 positions and its first decode, two blocks full
  const RequestId b = bench.submit(4, 1);
  bench.engine.step();  // b takes the last block, a's decode takes it back
  CHECK(bench[b].state == RequestState::Waiting);
  CHECK(bench[b].num_preemptions == 0);
  CHECK(bench.journal.admissions() == std::vector{a});
  CHECK(bench.journal.steps.back().record.num_preempted == 0);
  bench.engine.drain();
  CHECK(bench[b].state == RequestState::Finished);
}

TEST_CASE("eager allocation takes the whole prompt's blocks with the first chunk",
          "[core][policies]") {
  for (const KvAllocation allocation : {KvAllocation::Eager, KvAllocation::Incremental}) {
    EngineSetup setup = chunked(16);
    setup.kv_cache.allocation = allocation;
    Bench bench(setup);
    bench.submit(64, 4);
    bench.engine.step();
    CHECK(bench.engine.kv_cache().num_used_blocks() == (allocation == KvAllocation::Eager ? 4 : 1));
  }
}

TEST_CASE("a chunk begins behind the cached prefix", "[core][policies]") {
  // Two prompts of 100 tokens in chunks of 32. They share 70, which is four whole blocks of 16.
  Workload workload;
  workload.segment_begin = {0};
  for (std::uint64_t own = 0; own < 2; ++own) {
    workload.segments.push_back({content_id(ContentKind::Group, 0), 70});
    workload.segments.push_back({content_id(ContentKind::Request, own), 30});
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    workload.requests.push_back({0, 100, 3});
  }
  const PrefixHasher hasher(&workload);
  EngineSetup setup = chunked(32);
  setup.kv_cache.enable_prefix_caching = true;
  arrange_cache(*find_policy("chunked"), setup);
  Bench bench(setup, &hasher);
  const RequestId a = bench.submit(100, 3);
  bench.engine.drain();
  const RequestId b = bench.submit(100, 3);
  bench.engine.drain();
  CHECK(bench.journal.prefill_chunks(a) == Ints{32, 32, 32, 4});
  CHECK(bench.journal.prefill_chunks(b) == Ints{32, 4});
  CHECK(bench[b].num_prefix_hit_tokens == 64);
}

TEST_CASE("blocks that others share give no room", "[core][policies]") {
  // Eight blocks of 4, and prompts of 16 tokens that share 12. The first one decodes until it needs
  // a block that preempting the second gives it: its one own block, not the three that both hold.
  Workload workload;
  workload.segment_begin = {0};
  for (std::uint64_t own = 0; own < 2; ++own) {
    workload.segments.push_back({content_id(ContentKind::Group, 0), 12});
    workload.segments.push_back({content_id(ContentKind::Request, own), 4});
    workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
    workload.requests.push_back({0, 16, 15});
  }
  const PrefixHasher hasher(&workload);
  EngineSetup setup = make_setup("continuous");
  setup.kv_cache = {.num_blocks = 8, .block_size = 4, .enable_prefix_caching = true};
  arrange_cache(*find_policy("continuous"), setup);
  Bench bench(setup, &hasher);
  const RequestId a = bench.submit(16, 15);
  const RequestId b = bench.submit(16, 15);
  bench.engine.step();
  CHECK(bench.engine.kv_cache().num_used_blocks() == 5);
  bench.engine.drain();
  CHECK(bench[a].num_output_tokens() == 15);
  CHECK(bench[b].num_output_tokens() == 15);
  CHECK(bench[b].num_preemptions == 1);
}

TEST_CASE("the watermark keeps blocks free beside running requests only", "[core][policies]") {
  EngineSetup setup = make_setup("continuous");
  setup.kv_cache = {.num_blocks = 10, .block_size = 16, .watermark_blocks = 4};
  Bench bench(setup);
  const RequestId a = bench.submit(16 * 8, 2);  // leaves two: allowed, nobody runs
  const RequestId b = bench.submit(16, 2);      // would leave one, the watermark is four
  bench.engine.step();
  CHECK(bench[a].state == RequestState::Decode);
  CHECK(bench[b].state == RequestState::Waiting);
  bench.engine.drain();
  CHECK(bench[b].state == RequestState::Finished);
}

}  // namespace metronome::testing::TEST_FILE
