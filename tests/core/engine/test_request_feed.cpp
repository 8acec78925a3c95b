// SPDX-License-Identifier: Apache-2.0

#include "core/metrics/digest.h"
#include "core/metrics/output_log.h"
#include "core/run/run.h"
#include "engines/sglang/settings.h"
#include "sim/token_executor.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/engine_harness.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

EngineSetup small_setup(const std::string& policy) {
  EngineSetup setup;
  setup.scheduler.policy = policy;
  setup.kv_cache.num_blocks = 64;
  setup.kv_cache.block_size = 16;
  setup.kv_cache.enable_prefix_caching = policy == "vllm";
  setup.max_num_seqs = 8;
  setup.max_model_len = 256;
  setup.step_shape = StepShape::Mixed;
  arrange_cache(*find_policy(policy), setup);
  return setup;
}

// Hands in a workload by its arrivals, as a server would whose clients keep to them.
class TimedFeed final : public RequestFeed {
 public:
  explicit TimedFeed(const Workload& workload) : workload_(workload) {}

  std::size_t num_forgotten_groups = 0;
  std::function<void(Engine&)> on_exchange;

  void exchange(Engine& engine, TimeNs now, bool receives) override {
    if (on_exchange) on_exchange(engine);
    engine_ = &engine;
    while (receives && next_ < workload_.requests.size() &&
           workload_.requests[next_].arrival <= now) {
      engine.submit(workload_.requests[next_++]);
    }
    num_forgotten_groups = 0;
    for (std::size_t g = 0; g < engine.requests().size() / RequestTable::kGroupSize; ++g) {
      if (!engine.requests().has_group(g)) ++num_forgotten_groups;
    }
  }
  std::optional<TimeNs> wait_for_input(TimeNs wake) override {
    if (next_ < workload_.requests.size()) return std::min(wake, workload_.requests[next_].arrival);
    if (wake == kNever) return std::nullopt;
    return wake;
  }
  OutputToken output_token(RequestId request, std::int32_t i) const override {
    return {static_cast<TokenId>(static_cast<std::int32_t>(index(request)) * 1000 + i), i == 6};
  }
  SamplingParams sampling(RequestId) const override { return {}; }
  std::span<const TokenId> prompt_ids(RequestId request) const override {
    const std::size_t i = index(request);
    return std::span(workload_.token_ids)
        .subspan(workload_.token_begin[i], workload_.token_begin[i + 1] - workload_.token_begin[i]);
  }

 private:
  const Workload& workload_;
  std::size_t next_ = 0;
  Engine* engine_ = nullptr;
};

Workload drawn_workload(Rng& rng, std::int32_t num_requests, TimeNs longest_pause) {
  Workload workload;
  workload.token_begin.push_back(0);
  TimeNs at = 0;
  for (std::int32_t i = 0; i < num_requests; ++i) {
    const std::int32_t length = draw(rng, 1, 100);
    workload.requests.push_back({at, length, draw(rng, 1, 12), 0});
    // Some prompts begin alike, for the prefix cache.
    const std::int32_t family = draw(rng, 0, 2);
    for (std::int32_t t = 0; t < length; ++t) {
      workload.token_ids.push_back(TokenId{t < 48 && family > 0 ? family * 500 + t : 3000 + i});
    }
    workload.token_begin.push_back(workload.token_ids.size());
    at += rng.uniform_int(0, longest_pause);
  }
  return workload;
}

}  // namespace

TEST_CASE("requests that come while the engine runs are served as those of a workload", "[feed]") {
  const std::uint64_t seed = GENERATE(1u, 2u, 3u);
  const std::string policy = GENERATE("chunked", "vllm", "static", "sglang");
  const std::int32_t depth = GENERATE(1, 2);
  INFO("seed " << seed << ", policy " << policy << ", " << depth << " steps in flight");
  Rng rng(seed, "feed");
  const Workload workload = drawn_workload(rng, 300, 4 * kNsPerMs);
  EngineSetup setup = small_setup(policy);
  setup.async_depth = depth;
  setup.scheduler.edit<SglangConfig>().scheduler_recv_interval =
      static_cast<std::int32_t>(1 + 3 * seed);
  arrange_cache(*find_policy(policy), setup);

  EventDigest expected, served;
  EventSink* expected_sinks[] = {&expected};
  EventSink* served_sinks[] = {&served};
  CheckingExecutor first, second;
  TestClock first_clock, second_clock;
  const RunOutcome outcome =
      run_workload(setup, first, first_clock, workload, expected_sinks, {}, 100);
  CHECK(outcome.completed);
  TimedFeed feed(workload);
  serve_requests(setup, second, second_clock, feed, served_sinks);
  CHECK(served.hex() == expected.hex());
}

TEST_CASE("an engine that serves without end forgets requests that are over", "[feed]") {
  constexpr std::int32_t kNumRequests = 6 * static_cast<std::int32_t>(RequestTable::kGroupSize);
  Rng rng(4, "feed");
  const Workload workload = drawn_workload(rng, kNumRequests, 4 * kNsPerMs);
  const std::string policy = GENERATE("chunked", "vllm");
  const EngineSetup setup = small_setup(policy);
  EventDigest expected, served;
  EventSink* expected_sinks[] = {&expected};
  EventSink* served_sinks[] = {&served};
  CheckingExecutor first, second;
  TestClock first_clock, second_clock;
  run_workload(setup, first, first_clock, workload, expected_sinks, {}, 100);
  TimedFeed feed(workload);
  std::size_t most = 0;
  feed.on_exchange = [&](Engine& engine) {
    most = std::max(most, feed.num_forgotten_groups);
    if (most > 0) {
      CHECK_FALSE(engine.requests().has(RequestId{0}));
      CHECK_FALSE(engine.abort(RequestId{0}));
    }
    if (engine.num_steps() % 1000 == 0) engine.check_integrity();
  };
  serve_requests(setup, second, second_clock, feed, served_sinks);
  CHECK(most >= 4);
  CHECK(served.hex() == expected.hex());
}

TEST_CASE("a request that is still served keeps its group", "[feed]") {
  constexpr auto kGroup = static_cast<std::int32_t>(RequestTable::kGroupSize);
  Workload workload;
  workload.token_begin.push_back(0);
  for (std::int32_t i = 0; i < 3 * kGroup; ++i) {
    // The tenth request outlasts thousands of others.
    workload.requests.push_back({i * kNsPerMs, 1, i == 10 ? 250 * 16 : 1, 0});
    workload.token_ids.push_back(TokenId{i});
    workload.token_begin.push_back(workload.token_ids.size());
  }
  EngineSetup setup = small_setup("chunked");
  setup.max_model_len = 5000;
  setup.kv_cache.num_blocks = 512;
  CheckingExecutor executor;
  TestClock clock;
  TimedFeed feed(workload);
  bool was_seen = false;
  feed.on_exchange = [&](Engine& engine) {
    if (engine.requests().size() < 3 * kGroup) return;
    if (engine.requests().has(RequestId{10}) && !engine.requests()[RequestId{10}].has_ended()) {
      was_seen = was_seen || !engine.requests().has_group(1);
      CHECK(engine.requests().has_group(0));
    }
  };
  serve_requests(setup, executor, clock, feed, {});
  CHECK(was_seen);
}

TEST_CASE("a simulated step has the output tokens of the feed", "[feed]") {
  Rng rng(5, "feed");
  const Workload workload = drawn_workload(rng, 40, kNsPerMs);
  EngineSetup setup = small_setup("chunked");
  setup.async_depth = GENERATE(1, 2);
  arrange_cache(*find_policy("chunked"), setup);
  CheckingExecutor timed;
  TimedFeed feed(workload);
  TokenExecutor with_tokens(timed, feed);
  OutputLog outputs;
  Journal journal;
  EventSink* sinks[] = {&outputs, &journal};
  TestClock clock;
  serve_requests(setup, with_tokens, clock, feed, sinks);
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    INFO("request " << i);
    // The seventh token ends an answer.
    const std::int32_t length = std::min(workload.requests[i].max_output_tokens, 7);
    std::vector<TokenId> expected;
    for (std::int32_t t = 0; t < length; ++t) {
      expected.push_back(feed.output_token(static_cast<RequestId>(i), t).token);
    }
    CHECK(outputs.outputs()[i].token_ids == expected);
  }
  for (const Event& event : journal.events) {
    if (event.kind != EventKind::Ended) continue;
    const bool is_long = workload.requests[index(event.request)].max_output_tokens >= 7;
    CHECK(event.reason == (is_long ? EndReason::Stop : EndReason::Length));
  }
}

TEST_CASE("resetting the prefix cache makes later prompts miss it", "[feed]") {
  Workload workload;
  workload.token_begin.push_back(0);
  for (std::int32_t i = 0; i < 4; ++i) {
    workload.requests.push_back({i * 100 * kNsPerMs, 65, 2, 0});
    for (std::int32_t t = 0; t < 65; ++t) workload.token_ids.push_back(TokenId{t});
    workload.token_begin.push_back(workload.token_ids.size());
  }
  const EngineSetup setup = small_setup("vllm");
  CheckingExecutor executor;
  TestClock clock;
  TimedFeed feed(workload);
  std::vector<std::int32_t> hits;
  std::size_t num_seen = 0;
  feed.on_exchange = [&](Engine& engine) {
    if (engine.num_ended() == num_seen) return;
    num_seen = engine.num_ended();
    hits.push_back(engine.requests()[static_cast<RequestId>(num_seen - 1)].num_prefix_hit_tokens);
    if (num_seen == 2) engine.reset_prefix_cache();
  };
  serve_requests(setup, executor, clock, feed, {});
  CHECK(hits == std::vector<std::int32_t>{0, 64, 0, 64});
}

}  // namespace TEST_FILE
