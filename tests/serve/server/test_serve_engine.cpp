// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <thread>

#include "core/metrics/digest.h"
#include "core/metrics/output_log.h"
#include "core/metrics/run_record.h"
#include "core/run/workload_input.h"
#include "core/scenario/scenario.h"
#include "cpu/cpu_backend.h"
#include "serve/server/live_engine.h"
#include "sim/simulation.h"
#include "sim/virtual_clock.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"
#include "tests/scratch_folder.h"
#include "tests/serve/server/serve_lab.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

Simulation simulation_of(const std::string& scheduler, const std::string& more = {}) {
  return served_simulation("engine: {max_num_seqs: 16, max_model_len: 2048" + more +
                           "}\nkv_cache: {num_blocks: 300}\nslo: {ttft_ms: 200, itl_ms: 8}\n"
                           "scheduler: {" +
                           scheduler + "}\n");
}

LiveRequest request_of(std::uint64_t ticket, std::int32_t prompt, std::int32_t output) {
  LiveRequest request;
  request.ticket = Ticket{ticket};
  std::vector<TokenId> ids;
  for (std::int32_t i = 0; i < prompt; ++i) {
    ids.push_back(TokenId{static_cast<std::int32_t>(ticket) * 7 + i});
  }
  request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(ids));
  request.max_output_tokens = output;
  request.sampling.seed = ticket;
  return request;
}

std::vector<LiveRequest> one(LiveRequest request) {
  std::vector<LiveRequest> requests;
  requests.push_back(std::move(request));
  return requests;
}

}  // namespace

TEST_CASE("a served simulation decides as a run of the same requests, to the nanosecond",
          "[serve]") {
  const char* scheduler = GENERATE(
      "policy: chunked, prefill_chunk_size: 64", "policy: vllm, max_num_batched_tokens: 128",
      "policy: sglang, chunked_prefill_size: 128",
      "policy: sglang, chunked_prefill_size: 128, scheduler_recv_interval: 7", "policy: slo",
      "policy: static");
  const std::string more = GENERATE("", ", async_depth: 2");
  INFO(scheduler << more);
  Rng rng(11, scheduler);
  Simulation simulation = simulation_of(scheduler, more);
  EventDigest served_digest;
  RunRecorder recorder;
  Workload workload;
  workload.token_begin.push_back(0);
  std::vector<LiveRequest> sent;
  {
    Served served(simulation, 20, 1000, {&served_digest, &recorder});
    for (std::uint64_t i = 0; i < 60; ++i) {
      const std::int32_t num_output_tokens = draw(rng, 1, 30);
      sent.push_back(request_of(i, draw(rng, 1, 400), num_output_tokens));
      REQUIRE(served.engine.submit(one(sent.back())));
      std::this_thread::sleep_for(std::chrono::microseconds(draw(rng, 0, 2000)));
    }
    served.wait_for_ends(60);
    served.engine.close();
  }
  const RunRecord record = recorder.finish();
  REQUIRE(record.requests.size() == 60);
  CHECK(record.requests[0].arrival == 0);
  for (std::size_t i = 0; i < 60; ++i) {
    CHECK(record.requests[i].num_output_tokens == sent[i].max_output_tokens);
    workload.requests.push_back({record.requests[i].arrival,
                                 static_cast<std::int32_t>(sent[i].prompt->size()),
                                 sent[i].max_output_tokens, 0});
    workload.token_ids.insert(workload.token_ids.end(), sent[i].prompt->begin(),
                              sent[i].prompt->end());
    workload.token_begin.push_back(workload.token_ids.size());
  }
  Simulation again = simulation_of(scheduler, more);
  EventDigest digest;
  EventSink* sinks[] = {&digest};
  VirtualClock clock;
  again.run(workload, clock, sinks);
  CHECK(served_digest.hex() == digest.hex());
}

TEST_CASE("every request gets what its seed says, in order", "[serve]") {
  Simulation simulation = simulation_of("policy: vllm, max_num_batched_tokens: 128");
  Served served(simulation, 1000, 1000);
  Rng rng(12, "texts");
  std::vector<LiveRequest> requests;
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::int32_t num_output_tokens = draw(rng, 1, 40);
    requests.push_back(request_of(i, draw(rng, 1, 60), num_output_tokens));
    if (chance(rng, 0.5)) requests.back().answer_tokens = draw(rng, 1, 40);
  }
  REQUIRE(served.engine.submit(requests));
  served.wait_for_ends(200);
  std::map<std::uint64_t, std::vector<TokenId>> texts;
  std::map<std::uint64_t, EndReason> reasons;
  for (const LiveEvent& event : served.events) {
    const auto ticket = static_cast<std::uint64_t>(event.ticket);
    CHECK(reasons.count(ticket) == 0);  // nothing comes after the end
    CHECK_FALSE(event.is_stop);         // an answer that has its length ends with text
    if (event.kind == LiveEventKind::Token) texts[ticket].push_back(event.token);
    if (event.kind == LiveEventKind::Ended) reasons[ticket] = event.reason;
  }
  for (std::uint64_t i = 0; i < 200; ++i) {
    const std::int32_t length = requests[i].answer_tokens;
    const std::int32_t most = requests[i].max_output_tokens;
    const bool stops = length > 0 && length <= most;
    std::vector<TokenId> expected;
    for (std::int32_t t = 0; t < (stops ? length : most); ++t) {
      expected.push_back(served.text.token(i, t));
    }
    INFO("request " << i);
    CHECK(texts[i] == expected);
    CHECK(reasons[i] == (stops ? EndReason::Stop : EndReason::Length));
  }
}

TEST_CASE("a stop token ends a simulated answer, but not before its min_tokens", "[serve]") {
  Simulation simulation = simulation_of("policy: vllm, max_num_batched_tokens: 128");
  Served served(simulation, 1000, 1000);
  std::vector<LiveRequest> requests;
  for (std::uint64_t i = 0; i < 40; ++i) {
    requests.push_back(request_of(i, 10, 60));
    requests.back().sampling.stop_token_ids = {TokenId{299}, TokenId{'e'}};
    requests.back().min_tokens = i % 2 == 0 ? 0 : 20;
    if (i % 5 == 0) requests.back().answer_tokens = 200;
  }
  REQUIRE(served.engine.submit(requests));
  served.wait_for_ends(40);
  std::map<std::uint64_t, std::int32_t> num_tokens;
  std::map<std::uint64_t, bool> is_stop;  // the last token
  for (const LiveEvent& event : served.events) {
    const auto ticket = static_cast<std::uint64_t>(event.ticket);
    if (event.kind == LiveEventKind::Token) {
      ++num_tokens[ticket];
      CHECK_FALSE(is_stop[ticket]);
      is_stop[ticket] = event.is_stop;
    }
    if (event.kind == LiveEventKind::Ended) CHECK(event.reason == EndReason::Stop);
  }
  for (std::uint64_t i = 0; i < 40; ++i) {
    std::int32_t last = requests[i].min_tokens;
    while (served.text.token(i, last) != TokenId{'e'}) ++last;
    INFO("request " << i);
    CHECK(num_tokens[i] == last + 1);
    CHECK(is_stop[i]);
  }
}

TEST_CASE("a request that nobody waits for ends and gives its blocks back", "[serve]") {
  const char* scheduler = GENERATE("policy: vllm, max_num_batched_tokens: 128",
                                   "policy: sglang, scheduler_recv_interval: 30");
  INFO(scheduler);
  Simulation simulation = simulation_of(scheduler);
  RunRecorder recorder;
  {
    Served served(simulation, 1, 1000, {&recorder});  // 1,000 tokens take seconds
    Rng rng(13, "aborts");
    for (std::uint64_t i = 0; i < 100; ++i) {
      REQUIRE(served.engine.submit(one(request_of(i, draw(rng, 1, 100), 2000 / 2))));
      if (chance(rng, 0.5)) {
        std::this_thread::sleep_for(std::chrono::microseconds(draw(rng, 0, 500)));
      }
      served.engine.abort(Ticket{i});
      served.engine.abort(Ticket{i});  // twice is once
    }
    served.engine.abort(Ticket{12345});  // nobody's
    // Requests that were taken back before the engine saw them never were.
    REQUIRE(served.engine.submit(one(request_of(1000, 10, 5))));
    while (served.events.empty() || served.events.back().ticket != Ticket{1000} ||
           served.events.back().kind != LiveEventKind::Ended) {
      std::vector<LiveEvent> fresh;
      served.engine.drain_events(fresh);
      std::move(fresh.begin(), fresh.end(), std::back_inserter(served.events));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (int tries = 0; served.engine.drain_stats().kv_use > 0 && tries < 5000; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    const LiveStats stats = served.engine.drain_stats();
    CHECK(stats.kv_use == 0);
    CHECK(stats.num_running == 0);
    CHECK(stats.num_waiting == 0);
  }
  const RunRecord record = recorder.finish();
  int num_aborted = 0;
  for (const RequestRecord& request : record.requests) {
    num_aborted += request.reason == EndReason::Aborted ? 1 : 0;
    CHECK(request.reason != EndReason::None);
  }
  CHECK(num_aborted + 1 == static_cast<int>(record.requests.size()));
}

TEST_CASE("a hurried engine ends the requests that were aborted", "[serve]") {
  Simulation simulation = simulation_of("policy: vllm, max_num_batched_tokens: 128");
  RunRecorder recorder;
  {
    Served served(simulation, 0.001, 100, {&recorder});  // the first step takes seconds
    for (std::uint64_t i = 0; i < 20; ++i) {
      REQUIRE(served.engine.submit(one(request_of(i, 100, 1000))));
    }
    while (served.engine.drain_stats().num_running == 0) {
      std::vector<LiveEvent> fresh;
      served.engine.drain_events(fresh);
      const bool is_admitted = std::any_of(fresh.begin(), fresh.end(), [](const LiveEvent& event) {
        return event.kind == LiveEventKind::Admitted;
      });
      if (is_admitted) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    for (std::uint64_t i = 0; i < 20; ++i) served.engine.abort(Ticket{i});
    served.engine.close();
    served.clock.hurry();
  }
  const RunRecord record = recorder.finish();
  REQUIRE_FALSE(record.requests.empty());
  for (const RequestRecord& request : record.requests) {
    CHECK(request.reason == EndReason::Aborted);
  }
}

TEST_CASE("a queue that is full takes no more", "[serve]") {
  Simulation simulation = simulation_of("policy: vllm, max_num_batched_tokens: 128");
  Served served(simulation, 0.001, 4);  // nothing ends while this test looks
  std::uint64_t next = 0;
  int num_taken = 0;
  const auto submit = [&](int count) {
    std::vector<LiveRequest> requests;
    for (int i = 0; i < count; ++i) requests.push_back(request_of(next++, 10, 5));
    const bool is_taken = served.engine.submit(std::move(requests));
    num_taken += is_taken ? count : 0;
    return is_taken;
  };
  // An empty queue takes any number; at most 16 run.
  CHECK(submit(40));
  CHECK_FALSE(submit(1));
  for (int i = 0; i < num_taken; ++i) served.engine.abort(Ticket{static_cast<std::uint64_t>(i)});
  served.clock.stop();
  served.engine.close();
  CHECK_FALSE(submit(1));
}

TEST_CASE("a served model computes what it computes in a run", "[serve][cpu]") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("s.yaml",
                   "seed: 3\nmodel: tiny-llama\nengine: {max_num_seqs: 4, max_model_len: 256}\n"
                   "scheduler: {policy: chunked, prefill_chunk_size: 16}\n"
                   "sampling: {temperature: 0.8, ignore_eos: true, logprobs: 1}\n"
                   "workload:\n  num_requests: 6\n  arrivals: {process: poisson, rate: 500}\n"
                   "  prompt_tokens: {distribution: uniform, min: 10, max: 80}\n"
                   "  output_tokens: {distribution: fixed, value: 8}\n");
  const Scenario scenario = load_scenario(path, {}, std::nullopt, "cpu").variants.front();
  const Workload workload = make_workload(scenario.workload, scenario.seed);
  CpuBackend backend;
  const std::unique_ptr<PreparedRun> run = backend.prepare(scenario);
  run->load([] {});
  OutputLog expected;
  EventSink* sinks[] = {&expected};
  TestClock clock;
  run->run(workload, clock, sinks, {});

  SamplingParams params;
  params.temperature = 0.8;
  params.ignore_eos = true;
  params.num_logprobs = 1;
  params.seed = scenario.seed;
  const WorkloadInput input(workload, scenario.seed, run->model.vocab_size, params);
  Served served(*run, 0, 100);
  for (std::uint64_t i = 0; i < 6; ++i) {
    LiveRequest request;
    request.ticket = Ticket{i};
    std::vector<TokenId> prompt;
    input.prompt(static_cast<RequestId>(i), prompt);
    request.prompt = std::make_shared<const std::vector<TokenId>>(std::move(prompt));
    request.sampling = input.sampling(static_cast<RequestId>(i));
    request.max_output_tokens = 8;
    REQUIRE(served.engine.submit(one(std::move(request))));
  }
  served.wait_for_ends(6);
  std::vector<OutputLog::Output> outputs(6);
  for (const LiveEvent& event : served.events) {
    if (event.kind != LiveEventKind::Token) continue;
    OutputLog::Output& output = outputs[static_cast<std::size_t>(event.ticket)];
    output.token_ids.push_back(event.token);
    output.logprobs.push_back(event.logprobs);
  }
  for (std::size_t i = 0; i < 6; ++i) {
    CHECK(outputs[i].token_ids == expected.outputs()[i].token_ids);
    CHECK(outputs[i].logprobs == expected.outputs()[i].logprobs);
    CHECK(outputs[i].logprobs.front().size() == 2);
  }
}

TEST_CASE("simulated time shows what was waited for, not how late it was", "[serve]") {
  ServeClock clock(1000);
  CHECK(clock.now() == 0);
  CHECK(clock.stamp() == 0);
  CHECK(clock.start());
  CHECK_FALSE(clock.start());
  clock.wait_until(5 * kNsPerSecond);  // five milliseconds
  CHECK(clock.now() == 5 * kNsPerSecond);
  CHECK(clock.real_seconds(5 * kNsPerSecond) == 0.005);
  CHECK(clock.stamp() >= 5 * kNsPerSecond);
  clock.wait_until(3 * kNsPerSecond);
  CHECK(clock.now() == 5 * kNsPerSecond);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  clock.wait_until(6 * kNsPerSecond);  // long ago in real time
  CHECK(clock.now() == 6 * kNsPerSecond);
  CHECK(clock.drain_max_lag() > kNsPerSecond);
  CHECK(clock.drain_max_lag() == 0);
  clock.hurry();
  clock.wait_until(3'600'000 * kNsPerSecond);  // an hour
  CHECK(clock.now() == 3'600'000 * kNsPerSecond);
  ServeClock stopped(1);
  stopped.start();
  stopped.stop();
  CHECK_THROWS_AS(stopped.wait_until(3600 * kNsPerSecond), ServeClock::Stopped);

  ServeClock fast(1e15);
  fast.start();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // 634,000 years
  CHECK(fast.stamp() == TimeNs{1} << 62);

  ServeClock real;
  CHECK(real.now() == 0);
  real.start();
  real.wait_until(2 * kNsPerMs);
  CHECK(real.now() >= 2 * kNsPerMs);
}

}  // namespace TEST_FILE
