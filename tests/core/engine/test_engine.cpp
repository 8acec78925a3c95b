// SPDX-License-Identifier: Apache-2.0
// The engine's promises: states, refusals, failures, aborts, asynchronous steps, arrivals.
#include <utility>

#include "core/metrics/run_record.h"
#include "core/workload/workload_arrivals.h"
#include "tests/catch.h"
#include "tests/engine_harness.h"

namespace metronome::testing::TEST_FILE {
namespace {

EngineSetup chunked_setup(std::int64_t chunk) {
  EngineSetup setup = make_setup("chunked");
  setup.scheduler.prefill_chunk_size = chunk;
  return setup;
}

constexpr RequestState kStates[] = {RequestState::Waiting, RequestState::Prefill,
                                    RequestState::Decode, RequestState::Finished,
                                    RequestState::Failed};

}  // namespace

TEST_CASE("the transition table", "[core][engine]") {
  const auto followers = [](RequestState from) {
    std::string names;
    for (const RequestState to : kStates) {
      if (may_follow(from, to)) names += std::string(to_string(to)) + " ";
    }
    return names;
  };
  CHECK(followers(RequestState::Waiting) == "prefill finished failed ");
  CHECK(followers(RequestState::Prefill) == "waiting decode failed ");
  CHECK(followers(RequestState::Decode) == "waiting finished failed ");
  CHECK(followers(RequestState::Finished).empty());
  CHECK(followers(RequestState::Failed).empty());

  Request request;
  request.transition_to(RequestState::Prefill);
  CHECK_THROWS_AS(request.transition_to(RequestState::Finished), InvariantError);
}

TEST_CASE("a full queue refuses, and says so", "[core][engine]") {
  // max_num_seqs 2 and four waiting: of eight submitted between steps, six are accepted.
  EngineSetup setup = make_setup("continuous");
  setup.max_num_seqs = 2;
  setup.max_waiting_requests = 4;
  Bench bench(setup);
  bench.submit(10, 5);
  bench.submit(10, 5);
  bench.engine.step();
  int num_refused = 0;
  for (int i = 0; i < 6; ++i) {
    const Submission submission = bench.engine.submit({bench.clock.now(), 10, 5, 0});
    if (submission.accepted()) continue;
    ++num_refused;
    CHECK(submission.refusal == EndReason::QueueFull);
    CHECK(submission.message == "the waiting queue holds max_waiting_requests = 4");
    CHECK(bench[submission.id].state == RequestState::Failed);
  }
  CHECK(num_refused == 2);
  bench.engine.drain();
  CHECK(bench.engine.num_ended() == 8);
  CHECK(bench.engine.first_message(EndReason::QueueFull) ==
        "request 6: the waiting queue holds max_waiting_requests = 4");
}

TEST_CASE("a request that can never fit fails at submission with the reason", "[core][engine]") {
  EngineSetup setup = make_setup("continuous");
  setup.max_model_len = 1000;
  setup.kv_cache = {.num_blocks = 10, .block_size = 16};
  Bench bench(setup);
  const Submission too_long = bench.engine.submit({0, 900, 101, 0});
  CHECK(too_long.refusal == EndReason::NeverFits);
  CHECK(too_long.message == "needs 900 prompt + 101 output tokens; max_model_len is 1000");
  const Submission too_big = bench.engine.submit({0, 150, 12, 0});
  CHECK(too_big.refusal == EndReason::NeverFits);
  CHECK(too_big.message ==
        "needs 150 prompt + 12 output tokens, that is 11 KV blocks; the cache has 10");
  // 161 tokens need 160 positions: the last token is never cached.
  CHECK(bench.engine.submit({0, 150, 11, 0}).accepted());
  bench.engine.drain();
  CHECK(bench[RequestId{2}].state == RequestState::Finished);
}

TEST_CASE("a failing step fails exactly the requests of its plan", "[core][engine]") {
  EngineSetup setup = chunked_setup(16);
  setup.scheduler.max_prefill_chunks_per_step = 1;
  Bench bench(setup);
  bench.executor.fails = [](std::int64_t step) { return step == 2; };
  const RequestId a = bench.submit(64, 5);
  const RequestId b = bench.submit(20, 5);  // stands behind a: in no plan yet
  bench.engine.step();
  bench.engine.step();
  CHECK(bench[a].num_cached_tokens() == 32);
  bench.engine.step();  // a's third chunk of four fails
  CHECK(bench[a].state == RequestState::Failed);
  CHECK(bench[a].end_reason == EndReason::StepFailed);
  CHECK(bench[a].block_table.empty());
  CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
  CHECK(bench.journal.num_emitted.at(a) == 0);
  bench.engine.drain();
  CHECK(bench[b].state == RequestState::Finished);
  CHECK(bench.engine.first_message(EndReason::StepFailed) ==
        "request 0: injected failure of step 2");
}

TEST_CASE("a step fails while a second one is in flight", "[core][engine]") {
  EngineSetup setup = make_setup("token_budget");
  setup.scheduler.max_num_batched_tokens = 64;
  setup.scheduler.prefill_chunk_size = 32;
  setup.async_depth = 2;
  Bench bench(setup);
  bench.executor.fails = [](std::int64_t step) { return step == 3; };
  const RequestId a = bench.submit(16, 20);
  bench.engine.step();                      // launches 0
  bench.engine.step();                      // launches 1, collects 0
  bench.engine.step();                      // launches 2, collects 1
  bench.engine.step();                      // launches 3, collects 2
  const RequestId b = bench.submit(80, 4);  // joins with step 4, which is planned before 3 returns
  bench.engine.step();  // launches 4 (a's decode and b's first chunk), collects the failed 3
  CHECK(bench[a].state == RequestState::Failed);
  CHECK(bench[b].state == RequestState::Prefill);
  bench.engine.drain();
  CHECK(bench[b].state == RequestState::Finished);
  CHECK(bench[b].num_output_tokens() == 4);
  CHECK(bench.journal.num_emitted.at(a) == 3);
  // a's chunk in step 4 was computed for nobody.
  const Journal::Step& fourth = bench.journal.steps.at(4);
  CHECK(fourth.chunks.front().request == a);
  CHECK(fourth.chunks.front().num_emitted == 0);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
}

TEST_CASE("abort frees the blocks before the next plan", "[core][engine]") {
  for (const std::int32_t depth : {1, 2}) {
    EngineSetup setup = chunked_setup(16);
    setup.async_depth = depth;
    setup.max_num_seqs = 2;
    Bench bench(setup);
    const RequestId decoding = bench.submit(16, 50);
    const RequestId prefilling = bench.submit(800, 5);
    const RequestId waiting = bench.submit(16, 5);
    for (int i = 0; i < 4; ++i) bench.engine.step();
    for (const RequestId id : {decoding, prefilling, waiting}) {
      CHECK(bench.engine.abort(id));
      CHECK_FALSE(bench.engine.abort(id));
      CHECK(bench[id].end_reason == EndReason::Aborted);
    }
    CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
    bench.engine.check_integrity();
    const std::size_t num_tokens = static_cast<std::size_t>(bench.journal.num_emitted[decoding]);
    bench.engine.drain();
    // The step in flight at the abort (depth 2) emits nothing for it.
    CHECK(static_cast<std::size_t>(bench.journal.num_emitted[decoding]) == num_tokens);
    const RequestId next = bench.submit(16, 2);
    bench.engine.drain();
    CHECK(bench[next].state == RequestState::Finished);
  }
}

TEST_CASE("two steps in flight give the same tokens, one plan ahead", "[core][engine]") {
  EngineSetup setup = chunked_setup(16);
  setup.async_depth = 2;
  Bench bench(setup);
  bench.executor.returns_tokens = true;
  const RequestId id = bench.submit(40, 4);
  bench.engine.step();
  CHECK(bench.executor.plans.size() == 1);
  CHECK(bench.journal.steps.empty());
  bench.engine.step();
  CHECK(bench.executor.plans.size() == 2);
  CHECK(bench.journal.steps.size() == 1);
  bench.engine.drain();
  // 16 + 16 + 8, then three decodes; no step is planned past the last token.
  CHECK(bench.journal.tokens_per_step() == std::vector<int>{16, 16, 8, 1, 1, 1});
  std::vector<TokenId> expected;
  for (int k = 0; k < 4; ++k) expected.push_back(CheckingExecutor::token_after(id, 40 + k));
  CHECK(bench[id].output_token_ids == expected);
}

TEST_CASE("a request preempted while its last token is in flight finishes from the queue",
          "[core][engine]") {
  EngineSetup setup = make_setup("continuous");
  setup.async_depth = 2;
  setup.kv_cache = {.num_blocks = 4, .block_size = 4};
  Bench bench(setup);
  const RequestId a = bench.submit(8, 6);
  const RequestId b = bench.submit(8, 1);
  bench.engine.step();  // launches both prompts; b's only token is in flight
  bench.engine.step();  // a's first decode needs a block: b is preempted, then its token arrives
  CHECK(bench[b].state == RequestState::Finished);
  CHECK(bench[b].num_preemptions == 1);
  CHECK(bench[b].num_output_tokens() == 1);
  bench.engine.drain();
  CHECK(bench[a].num_output_tokens() == 6);
}

TEST_CASE("a stop token ends its request, whichever token it is", "[core][engine]") {
  // Prompts of 10 tokens: the first token follows 10 positions, the fifth and last follows 14.
  for (const std::int32_t stop_after : {10, 12, 14}) {
    CAPTURE(stop_after);
    Bench bench(make_setup("continuous"));
    bench.executor.returns_tokens = true;
    bench.executor.stops = [&](RequestId request, std::int32_t num_positions) {
      return request == RequestId{0} && num_positions == stop_after;
    };
    const RequestId stopped = bench.submit(10, 5);
    const RequestId other = bench.submit(10, 5);
    for (std::int32_t k = 10; k <= stop_after; ++k) {
      CHECK_FALSE(bench[stopped].has_ended());
      bench.engine.step();
    }
    CHECK(bench[stopped].state == RequestState::Finished);
    CHECK(bench[stopped].end_reason == EndReason::Stop);  // also where the limit ends it too
    CHECK(bench[stopped].num_output_tokens() == stop_after - 9);
    CHECK(bench[stopped].output_token_ids.back() ==
          CheckingExecutor::token_after(stopped, stop_after));
    CHECK(bench[stopped].block_table.empty());
    CHECK(bench.engine.kv_cache().num_used_blocks() == (stop_after == 14 ? 0 : 1));
    bench.engine.check_integrity();
    bench.engine.drain();
    CHECK(bench[other].end_reason == EndReason::Length);
    CHECK(bench[other].num_output_tokens() == 5);
    CHECK(bench.journal.num_emitted.at(stopped) == stop_after - 9);
  }
}

TEST_CASE("the step in flight computes a stopped request for nobody", "[core][engine]") {
  EngineSetup setup = chunked_setup(16);
  setup.async_depth = 2;
  setup.kv_cache = {.num_blocks = 3, .block_size = 16};
  Bench bench(setup);
  bench.executor.returns_tokens = true;
  bench.executor.stops = [](RequestId request, std::int32_t num_positions) {
    return request == RequestId{0} && num_positions == 41;  // its second token
  };
  const RequestId stopped = bench.submit(40, 6);
  const RequestId next = bench.submit(40, 2);  // has to wait for the same three blocks
  for (int i = 0; i < 5; ++i) bench.engine.step();
  // Steps 0 to 4 are launched, 16 + 16 + 8 + 1 + 1 tokens; step 3 brought the stop token.
  CHECK(bench.executor.plans.size() == 5);
  CHECK(bench[stopped].end_reason == EndReason::Stop);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
  bench.engine.step();  // its blocks are taken while step 4 still writes to them
  CHECK(bench.executor.plans.at(5).chunks.front().request == next);
  CHECK(bench.journal.steps.at(4).emitted() == std::vector<bool>{false});
  bench.engine.drain();
  CHECK(bench.journal.tokens_per_step() == std::vector<int>{16, 16, 8, 1, 1, 16, 16, 8, 1});
  CHECK(bench[stopped].num_output_tokens() == 2);
  CHECK(bench[stopped].output_token_ids.size() == 2);
  CHECK(bench[next].output_token_ids ==
        std::vector<TokenId>{CheckingExecutor::token_after(next, 40),
                             CheckingExecutor::token_after(next, 41)});
}

TEST_CASE("a request preempted while its stop token is in flight finishes from the queue",
          "[core][engine]") {
  EngineSetup setup = make_setup("continuous");
  setup.async_depth = 2;
  setup.kv_cache = {.num_blocks = 4, .block_size = 4};
  Bench bench(setup);
  bench.executor.returns_tokens = true;
  bench.executor.stops = [](RequestId request, std::int32_t) { return request == RequestId{1}; };
  const RequestId a = bench.submit(8, 6);
  const RequestId b = bench.submit(8, 6);
  bench.engine.step();  // launches both prompts
  bench.engine.step();  // a's first decode needs a block: b is preempted, then its token arrives
  CHECK(bench[b].state == RequestState::Finished);
  CHECK(bench[b].end_reason == EndReason::Stop);
  CHECK(bench[b].num_preemptions == 1);
  CHECK(bench[b].num_output_tokens() == 1);
  bench.engine.drain();
  CHECK(bench[a].num_output_tokens() == 6);
  CHECK(bench.journal.num_emitted.at(b) == 1);
}

TEST_CASE("a request stopped by the first pass of a step gets nothing from the second",
          "[core][engine]") {
  for (const std::int32_t depth : {1, 2}) {
    CAPTURE(depth);
    EngineSetup setup = make_setup("single_prefill");
    setup.scheduler.max_num_batched_tokens = 64;
    setup.async_depth = depth;
    Bench bench(setup);
    bench.executor.returns_tokens = true;
    bench.executor.stops = [](RequestId request, std::int32_t num_positions) {
      return request == RequestId{0} && num_positions == 10;
    };
    const RequestId stopped = bench.submit(10, 5);
    const RequestId other = bench.submit(10, 3);
    bench.engine.drain();
    // Step 0 computes the prompt and then the first decode; with two in flight, step 1 one more
    // beside the other's prompt and first decode.
    const Journal::Step& first = bench.journal.steps.at(0);
    CHECK(first.record.num_prefill_tokens == 10);
    CHECK(first.record.num_decode_tokens == 1);
    CHECK(first.emitted() == std::vector<bool>{true, false});
    CHECK(bench.journal.steps.at(1).record.num_decode_tokens == depth);
    CHECK(bench[stopped].end_reason == EndReason::Stop);
    CHECK(bench[stopped].output_token_ids ==
          std::vector<TokenId>{CheckingExecutor::token_after(stopped, 10)});
    CHECK(bench[other].output_token_ids ==
          std::vector<TokenId>{CheckingExecutor::token_after(other, 10),
                               CheckingExecutor::token_after(other, 11),
                               CheckingExecutor::token_after(other, 12)});
  }
}

TEST_CASE("a stopped request counts as completed, with the tokens it has", "[core][engine]") {
  TestClock clock;
  CheckingExecutor executor;
  executor.returns_tokens = true;
  executor.stops = [](RequestId, std::int32_t num_positions) { return num_positions == 12; };
  RunRecorder recorder(1);
  EventSink* const sinks[] = {&recorder};
  BenchEngine engine(make_setup("continuous"), executor, clock, sinks);
  engine.submit({0, 10, 50, 0});
  engine.drain();
  const RunRecord record = recorder.finish();
  const RequestRecord& request = record.requests.at(0);
  CHECK(request.reason == EndReason::Stop);
  CHECK(request.completed());
  CHECK(request.max_output_tokens == 50);
  CHECK(request.num_output_tokens == 3);
  CHECK(request.ended == 3 * kNsPerMs);
}

TEST_CASE("closed loop: a client sends its next request when it has its answer", "[core][engine]") {
  Workload workload;
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 2;
  workload.think_time = 5 * kNsPerMs;
  workload.requests.assign(6, RequestSpec{0, 10, 3, 0});
  Bench bench(make_setup("continuous"));
  WorkloadArrivals arrivals(workload);
  CHECK(bench.engine.run(arrivals));
  CHECK(bench.engine.num_ended() == 6);
  // Three steps of 1 ms a request, then 5 ms of thinking: arrivals at 0, 8 and 16 ms.
  for (std::uint32_t i = 0; i < 6; ++i) {
    CHECK(bench[RequestId{i}].arrival == static_cast<TimeNs>(i / 2) * 8 * kNsPerMs);
  }
}

TEST_CASE("closed loop: a refused client sends its next request at once", "[core][engine]") {
  Workload workload;
  workload.mode = ArrivalMode::ClosedLoop;
  workload.concurrency = 3;
  workload.requests.assign(6, RequestSpec{0, 10, 2, 0});
  EngineSetup setup = make_setup("continuous");
  setup.max_num_seqs = 1;
  setup.max_waiting_requests = 1;
  Bench bench(setup);
  WorkloadArrivals arrivals(workload);
  CHECK(bench.engine.run(arrivals));
  // At time 0 one of three is accepted; the refused ones come again at 0, and so on to the last.
  for (std::uint32_t i = 0; i < 6; ++i) CHECK(bench[RequestId{i}].arrival == 0);
  CHECK(bench[RequestId{0}].state == RequestState::Finished);
  CHECK(bench[RequestId{5}].end_reason == EndReason::QueueFull);
}

TEST_CASE("arrivals by step stand still while a static batch waits for time", "[core][engine]") {
  Workload workload;
  workload.mode = ArrivalMode::Steps;
  for (const TimeNs step : {0, 100}) workload.requests.push_back({step, 4, 1, 0});
  EngineSetup setup = make_setup("static");
  setup.scheduler.batch_wait_ms = 5;
  Bench bench(setup);
  WorkloadArrivals arrivals(workload);
  CHECK(bench.engine.run(arrivals));
  CHECK(bench[RequestId{0}].arrival == 0);
  CHECK(bench.journal.steps.at(0).record.planned_at == 5 * kNsPerMs);
  CHECK(bench[RequestId{1}].arrival >= 6 * kNsPerMs);
}

TEST_CASE("arrivals by step and by time", "[core][engine]") {
  Workload workload;
  workload.mode = ArrivalMode::Steps;
  for (const TimeNs step : {0, 0, 2, 40}) workload.requests.push_back({step, 4, 3, 0});
  Bench bench(make_setup("continuous"));
  WorkloadArrivals arrivals(workload);
  CHECK(bench.engine.run(arrivals));
  // Steps 0-2 serve the first two, 2-4 the third; then idle until the fourth's step comes.
  CHECK(bench.journal.tokens_per_step() == std::vector<int>{8, 2, 6, 1, 1, 4, 1, 1});

  workload.mode = ArrivalMode::Timed;
  Bench timed(make_setup("continuous"));
  WorkloadArrivals timed_arrivals(workload);
  workload.requests[3].arrival = kNsPerSecond;
  CHECK(timed.engine.run(timed_arrivals));
  CHECK(timed.journal.steps.at(timed.journal.steps.size() - 3).record.planned_at == kNsPerSecond);
}

TEST_CASE("run ends early when asked to", "[core][engine]") {
  Workload workload;
  workload.requests.assign(1, RequestSpec{0, 10, 5000, 0});
  Bench bench(make_setup("continuous"));
  WorkloadArrivals arrivals(workload);
  CHECK_FALSE(bench.engine.run(arrivals, [](const RunProgress& progress) {
    CHECK(progress.num_total == 1);
    return progress.num_ended == progress.num_total;
  }));
}

TEST_CASE("a run that loses a request is an error", "[core][engine]") {
  // Says after one request that no more will come.
  class LosesRequests final : public ArrivalSource {
   public:
    explicit LosesRequests(const Workload& workload) : all_(workload) {}
    std::optional<RequestSpec> pop_due(TimeNs now, std::int64_t step) override {
      return std::exchange(has_given_, true) ? std::nullopt : all_.pop_due(now, step);
    }
    TimeNs next_time() const override { return has_given_ ? kNever : all_.next_time(); }
    std::optional<std::int64_t> next_step() const override { return std::nullopt; }
    void on_ended(TimeNs now) override { all_.on_ended(now); }
    std::size_t num_total() const override { return all_.num_total(); }

   private:
    WorkloadArrivals all_;
    bool has_given_ = false;
  };
  Workload workload;
  workload.requests.assign(2, RequestSpec{0, 4, 3, 0});
  Bench bench(make_setup("continuous"));
  LosesRequests arrivals(workload);
  CHECK_THROWS_AS(bench.engine.run(arrivals), InvariantError);
}

TEST_CASE("received tokens take blocks and are not computed", "[core][engine][handover]") {
  // 60 of 100 prompt tokens come from elsewhere. The other 40 are two chunks, behind four blocks.
  EngineSetup setup = make_setup("chunked");
  setup.scheduler.prefill_chunk_size = 32;
  Bench bench(setup);
  const RequestId id =
      bench.engine
          .submit({.num_prompt_tokens = 100, .max_output_tokens = 3, .num_received_tokens = 60})
          .id;
  bench.engine.step();
  CHECK(bench.engine.kv_cache().num_used_blocks() == 6);  // of 92 positions
  CHECK(bench[id].num_computed_tokens() == 92);
  CHECK(bench[id].num_prefix_hit_tokens == 0);
  bench.engine.drain();
  CHECK(bench.journal.prefill_chunks(id) == std::vector<int>{32, 8});
  CHECK(bench[id].num_output_tokens() == 3);
}

TEST_CASE("policy vllm receives tokens, too", "[core][engine][handover]") {
  // All but the last prompt token: one step gives the first token, and two decodes follow.
  Bench bench(make_setup("vllm"));
  const RequestId id =
      bench.engine
          .submit({.num_prompt_tokens = 100, .max_output_tokens = 3, .num_received_tokens = 99})
          .id;
  bench.engine.drain();
  CHECK(bench.journal.prefill_chunks(id) == std::vector<int>{1});
  CHECK(bench.journal.tokens_per_step() == std::vector<int>{1, 1, 1});
}

TEST_CASE("a request that is handed over keeps its blocks until it is released",
          "[core][engine][handover]") {
  // Four blocks of 16. The first request keeps three for its 40 tokens, so the second one waits.
  EngineSetup setup = make_setup("chunked");
  setup.kv_cache = {.num_blocks = 4, .block_size = 16};
  Bench bench(setup);
  const RequestId first =
      bench.engine.submit({.num_prompt_tokens = 40, .max_output_tokens = 1, .hands_over = true}).id;
  const RequestId second = bench.submit(32, 2);
  bench.engine.step();
  CHECK(bench[first].end_reason == EndReason::HandedOver);
  CHECK(bench[first].state == RequestState::Finished);
  CHECK(bench[first].block_table.size() == 3);
  CHECK_FALSE(bench.engine.step());  // nothing can be planned
  CHECK(bench.engine.next_time() == kNever);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 3);
  bench.engine.check_integrity();
  bench.engine.release(first);
  CHECK(bench.engine.kv_cache().num_used_blocks() == 0);
  bench.engine.drain();
  CHECK(bench[second].end_reason == EndReason::Length);
  CHECK_THROWS_AS(bench.engine.release(second), InvariantError);
}

TEST_CASE("other engines' policies refuse hand-overs", "[core][engine][handover]") {
  Bench bench(make_setup("sarathi"));
  for (const RequestSpec& spec :
       {RequestSpec{.num_prompt_tokens = 40, .max_output_tokens = 1, .hands_over = true},
        RequestSpec{.num_prompt_tokens = 40, .max_output_tokens = 1, .num_received_tokens = 8}}) {
    const Submission submission = bench.engine.submit(spec);
    CHECK(submission.refusal == EndReason::NeverFits);
    CHECK(submission.message == "policy sarathi neither hands requests over nor receives them");
  }
}

}  // namespace metronome::testing::TEST_FILE
