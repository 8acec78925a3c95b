// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "core/metrics/digest.h"
#include "core/metrics/run_record.h"
#include "tests/catch.h"
#include "tests/fake_run.h"

namespace TEST_FILE {
using namespace metronome;
using metronome::testing::decode;
using metronome::testing::FakeChunk;
using metronome::testing::FakeRun;
using metronome::testing::prefill;

namespace {

std::vector<TokenRun> runs_of(const RunRecord& record, RequestId id) {
  const auto runs = record.runs_of(index(id));
  return {runs.begin(), runs.end()};
}

// Checks one request's record, token by token.
void check_against_tokens(const RunRecord& record, const FakeRun& run, std::size_t i) {
  const RequestRecord& request = record.requests[i];
  const std::vector<TimeNs>& times = run.token_times[i];
  std::vector<std::int32_t> steps;
  for (const TokenRun& tokens : record.runs_of(i)) {
    REQUIRE(tokens.num_steps > 0);
    for (std::int32_t t = 0; t < tokens.num_steps; ++t) steps.push_back(tokens.first_step + t);
  }
  REQUIRE(steps == run.token_steps[i]);
  REQUIRE(static_cast<std::size_t>(request.num_output_tokens) == times.size());
  REQUIRE(request.first_token == (times.empty() ? kNoTime : times.front()));
  REQUIRE(request.last_token == (times.empty() ? kNoTime : times.back()));
  if (times.size() < 2) {
    REQUIRE_FALSE(request.has_itl());
    return;
  }
  std::size_t longest = 1;
  TimeNs shortest = times[1] - times[0];
  for (std::size_t t = 1; t < times.size(); ++t) {
    if (times[t] - times[t - 1] > times[longest] - times[longest - 1]) longest = t;
    shortest = std::min(shortest, times[t] - times[t - 1]);
  }
  REQUIRE(request.max_itl_ns == times[longest] - times[longest - 1]);
  REQUIRE(request.max_itl_step == steps[longest]);
  REQUIRE(request.min_itl_ns == shortest);
}

// A run in which anything may happen to anyone.
void play_random_run(std::uint64_t seed, FakeRun& run) {
  std::mt19937_64 random(seed);
  const auto below = [&](std::uint64_t n) { return random() % n; };
  const std::size_t num_requests = 1 + below(12);
  const std::size_t num_steps = 1 + below(150);
  const std::uint64_t steadiness = 2 + below(40);  // how rarely a request skips a step
  std::vector<RequestId> live;
  for (std::size_t i = 0; i < num_requests; ++i) {
    live.push_back(run.submit(static_cast<TimeNs>(i), 1 + static_cast<std::int32_t>(below(90))));
  }
  TimeNs now = static_cast<TimeNs>(num_requests);
  for (std::size_t s = 0; s < num_steps && !live.empty(); ++s) {
    const TimeNs finish = now + static_cast<TimeNs>(below(3) == 0 ? below(1000) : below(4));
    run.next.failed = below(25) == 0;
    std::vector<FakeChunk> chunks;
    for (const RequestId id : live) {
      if (below(steadiness) == 0) continue;
      const bool gives = !run.next.failed && below(steadiness) != 0;
      if (below(6) == 0) {
        chunks.push_back(prefill(id, 0, 1 + static_cast<std::int32_t>(below(64)), gives));
        if (below(3) != 0) continue;
      }
      chunks.push_back(decode(id, gives));
    }
    run.step(now, finish, chunks);
    now = finish;
    if (below(10) == 0) {
      const std::size_t victim = below(live.size());
      run.end(live[victim], now, below(2) == 0 ? EndReason::Stop : EndReason::Aborted);
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    }
  }
}

}  // namespace

TEST_CASE("tokens of consecutive steps make one run", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(5, 100, 3);
  run.admit(a, 10);
  run.next.num_running = 1;
  run.next.num_waiting = 2;
  run.next.num_used_blocks = 7;
  run.step(10, 20, {prefill(a, 0, 64, false)});
  run.step(20, 35, {prefill(a, 64, 36, true)});
  run.step(35, 40, {decode(a)});
  run.step(40, 52, {decode(a)});
  run.end(a, 52);
  const RunRecord record = recorder.finish();

  REQUIRE(record.requests.size() == 1);
  const RequestRecord& request = record.requests[0];
  CHECK(runs_of(record, a) == std::vector<TokenRun>{{1, 3}});
  CHECK(request.arrival == 5);
  CHECK(request.first_scheduled == 10);
  CHECK(request.last_scheduled == 10);
  CHECK(request.ttft_ns() == 30);
  CHECK(request.e2el_ns() == 47);
  CHECK(record.queue_ns(0) == 5);
  CHECK(request.tpot_ns() == 8.5);
  CHECK(request.max_itl_ns == 12);
  CHECK(request.max_itl_step == 3);
  CHECK(request.min_itl_ns == 5);
  CHECK(request.jitter_ns() == 7);
  CHECK(request.num_prompt_tokens == 100);
  CHECK(request.num_output_tokens == 3);
  CHECK(request.num_prefill_chunks == 2);
  CHECK(request.priority == 3);
  CHECK(request.completed());
  REQUIRE(record.steps.size() == 4);
  CHECK(record.steps[0].num_prefill_tokens == 64);
  CHECK(record.steps[0].num_running == 1);
  CHECK(record.steps[0].num_waiting == 2);
  CHECK(record.steps[0].num_used_blocks == 7);
  CHECK(record.steps.num_emitted(0) == 0);
  CHECK(record.steps.num_emitted(1) == 1);
  CHECK(record.steps.num_continued(1) == 0);
  CHECK(record.steps.num_continued(2) == 1);
}

TEST_CASE("a preempted request has two runs and the longest gap between them", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 8);
  const RequestId b = run.submit(0, 8);
  run.admit(a, 0);
  run.admit(b, 0);
  run.step(0, 10, {prefill(a, 0, 8, true), prefill(b, 0, 8, true)});
  run.preempt(b, 10);
  run.step(10, 20, {decode(a)});
  run.admit(b, 20);
  run.step(20, 31, {decode(a), prefill(b, 0, 9, true)});
  run.step(31, 40, {decode(a), decode(b)});
  run.end(a, 40);
  run.end(b, 40);
  const RunRecord record = recorder.finish();

  CHECK(runs_of(record, a) == std::vector<TokenRun>{{0, 4}});
  CHECK(runs_of(record, b) == std::vector<TokenRun>{{0, 1}, {2, 2}});
  CHECK(record.requests[1].num_preemptions == 1);
  CHECK(record.requests[1].first_scheduled == 0);
  CHECK(record.requests[1].last_scheduled == 20);
  CHECK(record.requests[1].max_itl_ns == 21);
  CHECK(record.requests[1].max_itl_step == 2);
  CHECK(record.requests[1].num_prefill_chunks == 2);
  REQUIRE(record.preemptions.size() == 1);
  CHECK(record.preemptions[0].request == b);
}

TEST_CASE("two tokens in one step are a gap of zero", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 9);
  run.step(0, 10, {prefill(a, 0, 9, true), decode(a)});
  run.step(10, 20, {decode(a)});
  run.end(a, 20);
  const RunRecord record = recorder.finish();
  CHECK(runs_of(record, a) == std::vector<TokenRun>{{0, 1}, {0, 2}});
  CHECK(record.requests[0].num_output_tokens == 3);
  CHECK(record.requests[0].min_itl_ns == 0);
  CHECK(record.requests[0].max_itl_ns == 10);
  CHECK(record.steps.num_emitted(0) == 2);
  CHECK(record.steps.num_continued(0) == 0);
  CHECK(record.steps.num_continued(1) == 1);
}

TEST_CASE("a failed step gives no tokens and interrupts the others' runs", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 4);
  const RequestId b = run.submit(0, 4);
  run.step(0, 10, {prefill(a, 0, 4, true), prefill(b, 0, 4, true)});
  run.next.failed = true;
  run.step(10, 20, {decode(b, false)});
  run.end(b, 20, EndReason::StepFailed);
  run.step(20, 30, {decode(a)});
  run.end(a, 30);
  const RunRecord record = recorder.finish();
  CHECK(record.steps[1].failed);
  CHECK(record.steps.num_emitted(1) == 0);
  CHECK(runs_of(record, a) == std::vector<TokenRun>{{0, 1}, {2, 1}});
  CHECK(runs_of(record, b) == std::vector<TokenRun>{{0, 1}});
  CHECK_FALSE(record.requests[1].completed());
  CHECK(record.requests[0].max_itl_ns == 20);
}

TEST_CASE("the prefill chunks of every step are kept, in the order planned", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 500);
  const RequestId b = run.submit(0, 900);
  const RequestId c = run.submit(0, 900);
  run.step(0, 10,
           {prefill(a, 0, 100, false), prefill(b, 64, 300, false), prefill(c, 0, 300, false)});
  run.step(10, 20, {decode(a)});
  run.step(20, 30, {prefill(c, 300, 600, true)});
  const RunRecord record = recorder.finish();
  CHECK(record.steps[0].num_prefill_chunks == 3);
  CHECK(record.steps[1].num_prefill_chunks == 0);
  CHECK(record.steps[2].first_prefill_chunk == 3);
  REQUIRE(record.prefills.size() == 4);
  CHECK(record.prefills[0] == PrefillChunk{a, 0, 100});
  CHECK(record.prefills[1] == PrefillChunk{b, 64, 300});
  CHECK(record.prefills[2] == PrefillChunk{c, 0, 300});
  CHECK(record.prefills[3] == PrefillChunk{c, 300, 600});
}

TEST_CASE("a refused request is on record without ever being accepted", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.arrive(7, 30);
  const RequestId b = run.arrive(9, 40);
  run.end(b, 9, EndReason::QueueFull);
  run.end(a, 10, EndReason::NeverFits);
  const RunRecord record = recorder.finish();
  REQUIRE(record.requests.size() == 2);
  CHECK(record.requests[0].arrival == 7);
  CHECK(record.requests[0].num_prompt_tokens == 30);
  CHECK(record.requests[1].reason == EndReason::QueueFull);
  CHECK(record.requests[1].first_scheduled == kNoTime);
  CHECK(record.requests[1].first_token == kNoTime);
  CHECK(record.runs.empty());
}

TEST_CASE("finish leaves an empty recorder", "[core][record]") {
  RunRecorder recorder;
  FakeRun run({&recorder});
  const RequestId a = run.submit(0, 4);
  run.step(0, 10, {prefill(a, 0, 4, true)});
  recorder.finish();
  const RunRecord record = recorder.finish();
  CHECK(record.steps.empty());
  CHECK(record.requests.empty());
  CHECK(record.runs.empty());
}

TEST_CASE("the folded record gives back every token of random runs", "[core][record][property]") {
  for (std::uint64_t seed = 0; seed < 1500; ++seed) {
    INFO("seed " << seed);
    RunRecorder recorder;
    FakeRun run({&recorder});
    play_random_run(seed, run);
    const RunRecord record = recorder.finish();
    for (std::size_t i = 0; i < record.requests.size(); ++i) check_against_tokens(record, run, i);
  }
}

namespace {

// A short story with every kind of event; `change` alters one detail of it.
std::uint64_t digest_of_story(int change) {
  EventDigest digest;
  FakeRun run({&digest});
  const RequestId a = run.submit(change == 1 ? 1 : 0, 8);
  const RequestId b = run.submit(2, 8);
  run.admit(change == 2 ? b : a, 2);
  run.admit(change == 2 ? a : b, 2);
  if (change == 3) run.next.num_used_blocks = 1;
  run.step(2, 10, {prefill(a, 0, change == 4 ? 7 : 8, true), prefill(b, 0, 8, true)});
  run.next.failed = change == 5;
  std::vector<FakeChunk> chunks;
  for (int i = 0; i < 7; ++i) chunks.push_back(decode(a, change != 6 + i));
  if (change == 13) chunks[1].request = b;
  if (change == 14) chunks[2].request = b;
  run.step(10, change == 15 ? 21 : 20, chunks);
  run.preempt(change == 16 ? a : b, 20);
  run.end(a, 20, change == 17 ? EndReason::Stop : EndReason::Length);
  if (change != 18) run.end(b, 20, EndReason::Aborted);
  return digest.value();
}

}  // namespace

TEST_CASE("the digest is the same everywhere", "[core][digest]") {
  CHECK(EventDigest().hex() == "87798b3a60e79208");
  EventDigest digest;
  FakeRun run({&digest});
  const RequestId a = run.submit(0, 8);
  run.step(0, 10, {prefill(a, 0, 8, true)});
  run.step(10, 20, {decode(a), decode(a), decode(a), decode(a), decode(a), decode(a)});
  run.end(a, 20);
  CHECK(digest.hex() == "9ec223981da66641");
}

TEST_CASE("every detail and its order change the digest", "[core][digest]") {
  std::set<std::uint64_t> seen;
  for (int change = 0; change <= 18; ++change) {
    INFO("change " << change);
    CHECK(seen.insert(digest_of_story(change)).second);
    CHECK(digest_of_story(change) == digest_of_story(change));
  }
}

TEST_CASE("the digest scatters: chunks that differ in one small number never collide",
          "[core][digest]") {
  std::set<std::uint64_t> seen;
  std::size_t num_stories = 0;
  for (std::int32_t position = 0; position < 64; ++position) {
    for (std::int32_t num_tokens = 1; num_tokens <= 64; ++num_tokens) {
      for (const bool is_emitted : {false, true}) {
        EventDigest digest;
        FakeRun run({&digest});
        const RequestId a = run.arrive(0, 8);
        run.step(0, 10, {prefill(a, position, num_tokens, is_emitted)});
        seen.insert(digest.value());
        ++num_stories;
      }
    }
  }
  CHECK(seen.size() == num_stories);
}

}  // namespace TEST_FILE
