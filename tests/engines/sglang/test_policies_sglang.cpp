// SPDX-License-Identifier: Apache-2.0
// Hand-computed answers of the sglang policy from SGLang's rules.
//
// In most cases a KV block (a page) is one token and cached prefixes play no part, so that the
// arithmetic is in tokens. A prefill step counts what is left of
//   rem_total = free + evictable - running decodes mixed in - sum over running of
//               min(max_new - out, clip) * ratio - reserved in this step,
// asks of a request that extend + min(max_new - out, clip) + page < rem_total, and reserves
// ceil_page(extend) + page, and min(max_new, clip) if the prompt is done with that.
#include "core/workload/workload_arrivals.h"
#include "engines/sglang/settings.h"
#include "tests/engines/sglang/sglang_bench.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("sglang: a prompt goes before every decode", "[core][policies]") {
  CHECK(run(sglang(), {{10, 4}}, {{20, 3}}) == Steps{"p0:10", "p1:20", "d0 d1", "d0 d1", "d0"});
}

TEST_CASE("sglang: one chunked request at a time, which the next prompt fills up",
          "[core][policies]") {
  // Chunk 64, pages of 16. Request 0: 64, 64, 22 of 150. The 22 are charged as two pages, so 32 are
  // left: of request 1's 40 (three pages) just these, and it becomes the chunked one. Its last 8
  // leave 48, enough for request 2.
  EngineSetup setup = sglang(1000, 16);
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 64;
  CHECK(run(setup, {{150, 2}, {40, 2}, {10, 2}}) ==
        Steps{"p0:64", "p0:64", "p0:22 p1:32", "p1:8 p2:10", "d0 d1 d2"});

  // The rest is less than a page: nobody begins.
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 32;
  CHECK(run(setup, {{50, 1}, {20, 1}}) == Steps{"p0:32", "p0:18", "p1:20"});
}

TEST_CASE("sglang: requests are received after so many decode steps", "[core][policies]") {
  // Steps of 1 ms. Request 0 is received at once, and after its prompt's step at 1 ms nobody is
  // there. Steps planned at 2, 3 and 4 ms receive nothing, the one at 5 ms request 1. Request 2
  // comes after that, and is received behind the prompt of request 1. Request 3 finds an idle
  // engine.
  Workload workload;
  for (const TimeNs arrival : {0, 1500, 5500, 60'000}) {
    workload.requests.push_back({arrival * kNsPerMs / 1000, 10, 20, 0});
  }
  EngineSetup setup = sglang();
  const auto prompts_at = [&](std::int32_t interval) {
    setup.scheduler.edit<SglangConfig>().scheduler_recv_interval = interval;
    Bench bench(setup);
    WorkloadArrivals arrivals(workload);
    CHECK(bench.engine.run(arrivals));
    std::vector<TimeNs> times;
    for (const Journal::Step& step : bench.journal.steps) {
      if (step.record.num_prefill_tokens > 0) times.push_back(step.record.planned_at / kNsPerMs);
    }
    return times;
  };
  CHECK(prompts_at(1) == std::vector<TimeNs>{0, 2, 6, 60});
  CHECK(prompts_at(4) == std::vector<TimeNs>{0, 5, 6, 60});
  // A prompt's step counts 1,000, and a decode 1: five of these.
  CHECK(prompts_at(1005) == std::vector<TimeNs>{0, 6, 60});
  // With more, two requests wait until the first has ended.
  CHECK(prompts_at(1500) == std::vector<TimeNs>{0, 20, 60});
}

TEST_CASE("sglang: max_prefill_tokens ends a prefill step", "[core][policies]") {
  EngineSetup setup = sglang();
  setup.scheduler.edit<SglangConfig>().max_prefill_tokens = 100;
  const auto steps = [&](std::int64_t chunk, const std::vector<int>& prompts) {
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = chunk;
    Requests requests;
    for (const int prompt : prompts) requests.emplace_back(prompt, 1);
    return run(setup, requests);
  };
  // With chunking the limit is looked at after each request: 60 leave 40, the next 60 leave -20.
  CHECK(steps(1000, {60, 60, 10}) == Steps{"p0:60 p1:60", "p2:10"});
  CHECK(steps(1000, {60, 40, 10}) == Steps{"p0:60 p1:40", "p2:10"});
  setup.kv_cache = {.num_blocks = 1000, .block_size = 16};
  CHECK(steps(1024, {97, 10}) == Steps{"p0:97", "p1:10"});  // 97 are charged as seven pages
  CHECK(steps(1024, {96, 10}) == Steps{"p0:96 p1:10"});
  setup.kv_cache = {.num_blocks = 10'000, .block_size = 1};
  // Without, a request that is not the first has to be below what is left.
  CHECK(steps(-1, {60, 40, 10}) == Steps{"p0:60", "p1:40 p2:10"});
  CHECK(steps(-1, {60, 39, 10}) == Steps{"p0:60 p1:39", "p2:10"});
  CHECK(steps(-1, {500, 10}) == Steps{"p0:500", "p1:10"});
}

TEST_CASE("sglang: a batch marked full stays so until a request has left it", "[core][policies]") {
  SECTION("no token") {
    // 100 tokens, ratio 0.7.
    Bench bench(sglang(100));
    bench.submit(30, 5);
    CHECK(next_step(bench) == "p0:30");
    bench.submit(30, 20);
    bench.submit(10, 8);
    // 70 - 4 * 0.7 = 67.2 > 30 + 20 + 1, which leaves 16.2 < 10 + 8 + 1: full, beside request 0.
    CHECK(next_step(bench) == "p1:30");
    // Not marked, request 2 would fit now: 40 - (4 + 19) * 0.7 = 23.9 > 19. Request 0 has its fifth
    // token after four decodes, and takes the mark away.
    for (int i = 0; i < 4; ++i) CHECK(next_step(bench) == "d0 d1");
    CHECK(next_step(bench) == "p2:10");
    bench.engine.drain();
  }
  SECTION("no token, and the batch begins with this step") {
    // 30 + 20 + 1 leave 49 < 51: marked, but the next batch replaces the empty one and its mark:
    // 70 - 19 * 0.7 = 56.7 > 51.
    const Steps steps = run(sglang(100), {{30, 20}, {30, 20}});
    CHECK(steps[0] == "p0:30");
    CHECK(steps[1] == "p1:30");
  }
  SECTION("no token left, though nobody waits") {
    // Pages of 16, 20 of them. 304 - 0.7 > 17 + 270 + 16, but two pages are charged for the 17:
    // 303.3 - 32 - 270 - 16 < 0. Without the mark the newcomer would not wait for request 0 to
    // leave: 272 - (1 + 269) * 0.7 = 83 > 1 + 1 + 16.
    Bench bench(sglang(20, 16));
    submit(bench, {{16, 2}});
    CHECK(next_step(bench) == "p0:16");
    submit(bench, {{17, 270}});
    CHECK(next_step(bench) == "p1:17");
    submit(bench, {{1, 1}});
    CHECK(next_step(bench) == "d0 d1");
    CHECK(next_step(bench) == "p2:1");
  }
  SECTION("the last chunk reserves the output") {
    // 50 are free: 50 - 10 - 1 - 30 = 9 < 5 + 5 + 1. A step later 40 - 29 * 0.7 = 19.7 > 11.
    EngineSetup setup = sglang(100);
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 50;
    const Steps steps = run(setup, {{60, 30}, {5, 5}});
    CHECK(Steps(steps.begin(), steps.begin() + 3) == Steps{"p0:50", "p0:10", "p1:5"});
  }
  EngineSetup setup = sglang();
  setup.max_num_seqs = 2;
  SECTION("no slot") {
    CHECK(run(setup, {{10, 2}, {10, 4}, {10, 1}}) ==
          Steps{"p0:10 p1:10", "d0 d1", "p2:10", "d1", "d1"});
  }
  SECTION("a request that has ended gives its place at once") {
    CHECK(run(setup, {{10, 2}, {10, 5}}, {{10, 1}}, 2) ==
          Steps{"p0:10 p1:10", "d0 d1", "p2:10", "d1", "d1", "d1"});
  }
  SECTION("who ends with its prefill has left") {
    // Full since request 1 is the second of two. It is gone when the batches are merged.
    CHECK(run(setup, {{10, 3}}, {{10, 1}, {10, 1}}) ==
          Steps{"p0:10", "p1:10", "p2:10", "d0", "d0"});
  }
  SECTION("all have ended") {
    // The decode finds nobody, and the loop comes round in the same step.
    setup.max_num_seqs = 1;
    CHECK(run(setup, {{10, 2}, {10, 2}}) == Steps{"p0:10", "d0", "p1:10", "d1"});
  }
}

TEST_CASE("sglang: the last chunk reserves no more output than clip_max_new_tokens",
          "[core][policies]") {
  // 50 are free beside the first chunk of request 0: 50 - 10 - 1 - 20 = 19 > 12 + 5 + 1.
  EngineSetup setup = sglang(100);
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 50;
  setup.scheduler.edit<SglangConfig>().clip_max_new_tokens = 20;
  CHECK(run(setup, {{60, 30}, {12, 5}})[1] == "p0:10 p1:12");
  CHECK(run(setup, {{60, 30}, {13, 5}})[1] == "p0:10");
}

TEST_CASE("sglang: enable_mixed_chunk decodes beside a prefill", "[core][policies]") {
  EngineSetup setup = sglang();
  setup.scheduler.edit<SglangConfig>().enable_mixed_chunk = true;
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 64;
  SECTION("the decodes take from the chunk") {
    // 63 and 37 of 100. After a mixed step the batch is the step's, prompts first.
    CHECK(run(setup, {{10, 5}}, {{100, 3}}) ==
          Steps{"p0:10", "p1:63 d0", "p1:37 d0", "d1 d0", "d1 d0"});
  }
  SECTION("whole prompts are never mixed") {
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = -1;
    CHECK(run(setup, {{10, 3}}, {{100, 2}}) == Steps{"p0:10", "p1:100", "d0 d1", "d0"});
  }
  SECTION("a prompt begins with whole pages, and goes on with what there is") {
    setup.kv_cache.num_blocks = 1000;
    setup.kv_cache.block_size = 16;
    // floor(63) = 48; then 63 of the 72 that are left.
    CHECK(run(setup, {{10, 3}}, {{120, 1}}) == Steps{"p0:10", "p1:48 d0", "p1:63 d0", "p1:9"});
  }
  SECTION("the decodes take from max_prefill_tokens") {
    setup.scheduler.edit<SglangConfig>().max_prefill_tokens = 21;
    CHECK(run(setup, {{5, 4}}, {{20, 1}, {5, 1}}) == Steps{"p0:5", "p1:20 d0", "p2:5 d0", "d0"});
  }
  SECTION("the decodes take from rem_total") {
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 1000;
    setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
    setup.kv_cache.num_blocks = 100;
    CHECK(run(setup, {{10, 5}}, {{80, 7}})[1] == "p1:80 d0");  // 90 - 1 > 80 + 7 + 1
    CHECK(run(setup, {{10, 5}}, {{80, 8}})[1] == "d0");
  }
  SECTION("decodes that take more than was reserved for them") {
    // 60 tokens, nothing expected of output. Five run: 55 - 5 > 47 + 1 + 1, 40 fit the chunk. Then
    // 10 are free, 5 beside the decodes: the chunk is 5 of 7. Then none is left, but the last 2
    // have to be computed: request 4, the last of five alike, gives its 3 tokens. The third is too
    // few for the decodes of the others.
    setup.kv_cache.num_blocks = 60;
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 45;
    setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
    setup.scheduler.edit<SglangConfig>().clip_max_new_tokens = 1;
    Bench bench(setup);
    submit(bench, {{1, 30}, {1, 30}, {1, 30}, {1, 30}, {1, 30}});
    CHECK(next_step(bench) == "p0:1 p1:1 p2:1 p3:1 p4:1");
    submit(bench, {{47, 1}});
    CHECK(next_step(bench) == "p5:40 d0 d1 d2 d3 d4");
    CHECK(next_step(bench) == "p5:5 d0 d1 d2 d3 d4");
    CHECK(next_step(bench) == "p5:2");
    CHECK(bench[RequestId{4}].num_preemptions == 1);
    bench.engine.drain();
  }
  SECTION("as many decodes as a chunk: nobody begins") {
    setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 2;
    // Request 1 has ended after two decodes, so that a token is left: 2 - 1.
    CHECK(run(setup, {{1, 4}, {1, 3}}, {{3, 1}}) ==
          Steps{"p0:1 p1:1", "d0 d1", "d0 d1", "p2:1 d0", "p2:2"});
  }
}

TEST_CASE("sglang: a batch has one unfinished prompt, whoever ignores the end of text",
          "[core][policies]") {
  // The decode leaves 63 of a chunk. Request 1 takes three pages of it. SGLang would begin request
  // 2, too, and forget request 1.
  EngineSetup setup = sglang(59, 16);
  setup.scheduler.edit<SglangConfig>().chunked_prefill_size = 64;
  setup.scheduler.edit<SglangConfig>().enable_mixed_chunk = true;
  Bench bench(setup);
  const auto submit_one = [&bench](std::int32_t prompt, std::int32_t output, bool ignores_eos) {
    bench.engine.submit(
        {.num_prompt_tokens = prompt, .max_output_tokens = output, .ignores_eos = ignores_eos});
  };
  submit_one(1, 2, true);
  run_steps(bench, 1);
  submit_one(64, 1, false);
  submit_one(16, 1, true);
  drain(bench);
  CHECK(steps_of(bench) == Steps{"p0:1", "p1:48 d0", "p1:16 p2:16"});
}

TEST_CASE("sglang: the new-token ratio", "[core][policies]") {
  // 200 tokens. Request 0 (10 prompt, 101 output) runs. After its prefill and k decodes 190 - k are
  // free, and (100 - k) * ratio reserved. A request of p prompt tokens and one output is taken when
  // p + 2 is less than the rest.
  EngineSetup setup = sglang(200);
  SglangConfig& config = setup.scheduler.edit<SglangConfig>();
  const auto longest_after = [&](int num_decodes) {
    const auto is_taken = [&](int prompt) {
      Bench bench(setup);
      bench.submit(10, 101);
      run_steps(bench, 1 + num_decodes);
      const RequestId probe = bench.submit(prompt, 1);
      bench.engine.step();
      return bench[probe].state != RequestState::Waiting;
    };
    int longest = 0;
    while (is_taken(longest + 1)) ++longest;
    return longest;
  };
  SECTION("initially, and schedule_conservativeness") {
    CHECK(longest_after(0) == 117);  // 190 - 70 = 120 > 117 + 2
    config.schedule_conservativeness = 0.5;
    CHECK(longest_after(0) == 152);  // 190 - 35 = 155
    config.schedule_conservativeness = 2;
    CHECK(longest_after(0) == 87);  // 190 - 100: never more than 1
  }
  SECTION("it decays with every decode down to its minimum") {
    config.init_new_token_ratio = 0.5;
    config.min_new_token_ratio_factor = 0.5;
    config.new_token_ratio_decay_steps = 5;  // by 0.05 to 0.25
    CHECK(longest_after(2) == 146);          // 188 - 98 * 0.4 = 148.8
    CHECK(longest_after(7) == 157);          // 183 - 93 * 0.25 = 159.75
  }
  SECTION("clip_max_new_tokens") {
    config.clip_max_new_tokens = 20;
    CHECK(longest_after(0) == 173);  // 190 - 20 * 0.7 = 176
  }
}

TEST_CASE("sglang: idling resets the new-token ratio", "[core][policies]") {
  EngineSetup setup = sglang(200);
  setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0.5;
  setup.scheduler.edit<SglangConfig>().min_new_token_ratio_factor = 0.5;
  setup.scheduler.edit<SglangConfig>().new_token_ratio_decay_steps = 5;
  for (const bool idles : {false, true}) {
    for (const int prompt : {137, 138, 162, 163}) {
      Bench bench(setup);
      bench.submit(10, 30);
      bench.engine.drain();
      if (idles) CHECK_FALSE(bench.engine.step());
      bench.submit(10, 101);
      bench.engine.step();
      bench.submit(prompt, 1);
      // 190 - 100 * 0.5 = 140, or still 190 - 100 * 0.25 = 165.
      const bool fits = prompt + 2 < (idles ? 140 : 165);
      CHECK(next_step(bench) == (fits ? "p2:" + std::to_string(prompt) : "d1"));
    }
  }
}

TEST_CASE("sglang: a retraction estimates the ratio from those that stay", "[core][policies]") {
  // 126 tokens, initial ratio 0, twice 10 + 100. Beside request 0 the first step has 126 - 111
  // left; in the second 116 > 111. 106 tokens are 53 decodes of two. Then request 1, the last to
  // join of two alike, is retracted. Request 0 has 54 tokens of 100: (54 + 20) / 101 = 0.7327.
  EngineSetup setup = sglang(126);
  setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
  const auto next_after = [&](bool aborts_running, int prompt) {
    Bench bench(setup);
    submit(bench, {{10, 100}, {10, 100}});
    CHECK(next_step(bench) == "p0:10");
    CHECK(next_step(bench) == "p1:10");
    run_steps(bench, 52);
    CHECK(next_step(bench) == "d0 d1");
    CHECK(next_step(bench) == "d0");
    CHECK(bench[RequestId{1}].num_preemptions == 1);
    bench.engine.abort(RequestId{aborts_running ? 0U : 1U});
    bench.submit(prompt, 1);
    const std::string next = next_step(bench);
    bench.engine.drain();
    return next;
  };
  // 62 are free, and 45 * 0.7327 = 32.97 reserved: 29.03 > 27 + 2.
  CHECK(next_after(false, 27) == "p2:27");
  CHECK(next_after(false, 28) == "d0");
  // Never more than 1, though (54 + 1000) / 101 is: 62 - 45 = 17 > 14 + 2.
  setup.scheduler.edit<SglangConfig>().retract_decode_steps = 1000;
  CHECK(next_after(false, 14) == "p2:14");
  CHECK(next_after(false, 15) == "d0");
  // 54 / 101 = 0.5347: 62 - 24.06 = 37.94 > 35 + 2.
  setup.scheduler.edit<SglangConfig>().retract_decode_steps = 0;
  CHECK(next_after(false, 35) == "p2:35");
  CHECK(next_after(false, 36) == "d0");
  // Of its 64 tokens the retracted one finds its prompt: output is found only of those that ended.
  CHECK(next_after(true, 100) == "p1:54");
}

TEST_CASE("sglang: a retracted request is asked for the rest of its output and reserves all of it",
          "[core][policies]") {
  // 126 tokens, twice 10 + 100, of which 50 are reserved: 126 - 61 = 65 > 61, so both begin. After
  // 53 decodes the 126 are taken, and request 1 is retracted with 54 outputs. Request 0 is aborted.
  // Of its 64 tokens request 1 finds ten: 126 - 10 = 116 > 54 + 46 + 1.
  EngineSetup setup = sglang(126);
  setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
  setup.scheduler.edit<SglangConfig>().clip_max_new_tokens = 50;
  const auto next_with = [&](int prompt) {
    Bench bench(setup);
    submit(bench, {{10, 100}, {10, 100}});
    CHECK(next_step(bench) == "p0:10 p1:10");
    run_steps(bench, 53);
    CHECK(next_step(bench) == "d0");
    CHECK(bench[RequestId{1}].num_preemptions == 1);
    bench.engine.abort(RequestId{0});
    bench.submit(prompt, 1);
    const std::string next = next_step(bench);
    bench.engine.drain();
    return next;
  };
  // It reserves 54 + 1 + 50, though no more than 46 are to come: 11 are left.
  CHECK(next_with(8) == "p1:54 p2:8");  // 8 + 1 + 1 < 11
  CHECK(next_with(9) == "p1:54");
}

TEST_CASE("sglang: who is retracted, and where it goes", "[core][policies]") {
  // 100 tokens, 10 output tokens reserved for each. Request 0 has decoded three times when 1 and 2
  // join: 43 tokens are taken, and 19 decodes of three take the rest. Requests 1 and 2 have the
  // fewest outputs, request 1 the longer prompt. Its 39 tokens are enough.
  EngineSetup setup = sglang(100);
  setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
  setup.scheduler.edit<SglangConfig>().clip_max_new_tokens = 10;
  Bench bench(setup);
  bench.submit(10, 60);
  run_steps(bench, 4);
  const RequestId longer = bench.submit(20, 60);
  const RequestId shorter = bench.submit(10, 60);
  CHECK(next_step(bench) == "p1:20 p2:10");
  run_steps(bench, 18);
  const RequestId waiting = bench.submit(60, 1);
  CHECK(next_step(bench) == "d0 d1 d2");
  CHECK(bench.engine.kv_cache().num_free_blocks() == 0);
  CHECK(next_step(bench) == "d0 d2");
  CHECK(bench[longer].num_preemptions == 1);
  CHECK(bench[longer].num_output_tokens() == 20);
  // 37 are free, too few for the request that waited before: it is behind that in the queue.
  bench.engine.drain();
  CHECK(bench.journal.admissions().at(3) == waiting);
  for (const RequestId id : {longer, shorter}) CHECK(bench[id].num_output_tokens() == 60);
}

TEST_CASE("sglang: retracts until the next decode fits", "[core][policies]") {
  // Pages of 4, 9 of them. Three prompts of 8 hold six pages. The decode at position 8 takes one
  // more each, the one at position 12 the same again, and there is none: request 2's three pages
  // serve the other two.
  EngineSetup setup = sglang(9, 4);
  setup.scheduler.edit<SglangConfig>().init_new_token_ratio = 0;
  setup.scheduler.edit<SglangConfig>().clip_max_new_tokens = 1;
  Bench bench(setup);
  for (int i = 0; i < 3; ++i) bench.submit(8, 12);
  // 36 - (8 + 4 + 1) - (8 + 4 + 1) = 10 < 8 + 1 + 4: the third comes a step later.
  CHECK(next_step(bench) == "p0:8 p1:8");
  CHECK(next_step(bench) == "p2:8");
  for (int i = 0; i < 4; ++i) CHECK(next_step(bench) == "d0 d1 d2");
  CHECK(next_step(bench) == "d0 d1");
  CHECK(bench[RequestId{2}].num_preemptions == 1);
  // Positions 12 to 15 took two pages of three; at position 16 one is left: request 1 goes too.
  for (int i = 0; i < 3; ++i) CHECK(next_step(bench) == "d0 d1");
  CHECK(next_step(bench) == "d0");
  CHECK(bench[RequestId{1}].num_preemptions == 1);
  bench.engine.drain();
  for (const unsigned i : {0U, 1U, 2U}) CHECK(bench[RequestId{i}].num_output_tokens() == 12);
}

TEST_CASE("sglang: the output is cut to what an empty cache can reserve", "[core][policies]") {
  const auto num_output = [](std::int32_t prompt, std::int32_t output, std::int32_t page_size) {
    Bench bench(sglang(96 / page_size, page_size));
    const RequestId id = bench.submit(prompt, output);
    bench.engine.drain();
    return bench[id].end_reason == EndReason::NeverFits ? -1 : bench[id].num_output_tokens();
  };
  CHECK(num_output(50, 40, 1) == 40);
  CHECK(num_output(50, 60, 1) == 44);   // 96 - 50 - 1 - 1
  CHECK(num_output(50, 60, 16) == 15);  // 96 - 64 - 16 - 1
  CHECK(num_output(93, 60, 1) == 1);
  CHECK(num_output(94, 60, 1) == -1);
}

TEST_CASE("sglang: with a step in flight only what is known counts", "[core][policies]") {
  // Request 0's second and last token is in flight when the third step is planned: it has nothing
  // to decode. When the fourth is planned it has ended.
  EngineSetup setup = sglang();
  setup.async_depth = 2;
  CHECK(run(setup, {{10, 2}, {10, 4}}) == Steps{"p0:10 p1:10", "d0 d1", "d1", "d1"});
}

}  // namespace metronome::testing::TEST_FILE
