// SPDX-License-Identifier: Apache-2.0
// The rate of answers while prompts are computed, and the slowest ten seconds, by hand.
#include <cmath>

#include "core/metrics/answer_rates.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

constexpr TimeNs kS = kNsPerSecond;

// A record made of steps. Requests are added as their tokens come.
struct Made {
  RunRecord record;

  explicit Made(std::size_t num_requests, std::int32_t num_prompt_tokens) {
    record.requests.resize(num_requests);
    for (RequestRecord& request : record.requests) request.num_prompt_tokens = num_prompt_tokens;
  }
  // A step from `start` to `end` seconds, with chunks of prompts, and so many tokens.
  void step(double start, double end, std::vector<PrefillChunk> chunks, std::int32_t num_emitted) {
    StepEntry entry;
    entry.started_at = entry.planned_at = static_cast<TimeNs>(start * kS);
    entry.finished_at = static_cast<TimeNs>(end * kS);
    entry.first_prefill_chunk = static_cast<std::int32_t>(record.prefills.size());
    entry.num_prefill_chunks = static_cast<std::int32_t>(chunks.size());
    for (const PrefillChunk& chunk : chunks) {
      record.prefills.push_back(chunk);
      entry.num_prefill_tokens += chunk.num_tokens;
    }
    entry.num_emitted = num_emitted;
    record.steps.push_back(entry);
  }
  // The requests' tokens, in order of requests: runs of steps.
  void runs(std::size_t request, std::vector<TokenRun> runs) {
    record.requests[request].first_run = static_cast<std::uint32_t>(record.runs.size());
    record.runs.insert(record.runs.end(), runs.begin(), runs.end());
  }
};

TEST_CASE("a stalled answer counts in the seconds of prefill", "[metrics]") {
  Made made(2, 100);
  made.step(0, 1, {{RequestId{0}, 0, 100}}, 1);  // the first token of request 0
  made.step(1, 2, {}, 1);
  made.step(2, 6, {{RequestId{1}, 0, 50}}, 0);  // it stalls for four seconds
  made.step(6, 7, {}, 1);                       // a decode between two chunks
  made.step(7, 10, {{RequestId{1}, 50, 50}}, 2);
  made.step(10, 11, {}, 2);
  made.runs(0, {{0, 2}, {3, 3}});
  made.runs(1, {{4, 2}});
  const AnswerRates rates = answer_rates(made.record);
  // From 2 to 10 s request 0 is in decode alone and gets the tokens at 7 and 10 s.
  CHECK(rates.during_prefill == 2.0 / 8);
  // From 1 to 11 s: tokens at 2 and 7, two at 10, two at 11. There is no other window.
  CHECK(rates.slowest_10s == 6.0 / 10);
}

TEST_CASE("engines of a fleet have their own seconds", "[metrics]") {
  Made made(4, 100);
  for (std::uint32_t r = 0; r < 2; ++r) {  // the steps of the case above, once for each engine
    made.record.replicas.push_back({.first_step = made.record.steps.size(), .num_steps = 6});
    const auto first = static_cast<std::int32_t>(made.record.steps.size());
    made.step(0, 1, {{RequestId{2 * r}, 0, 100}}, 1);
    made.step(1, 2, {}, 1);
    made.step(2, 6, {{RequestId{2 * r + 1}, 0, 50}}, 0);
    made.step(6, 7, {}, 1);
    made.step(7, 10, {{RequestId{2 * r + 1}, 50, 50}}, 2);
    made.step(10, 11, {}, 2);
    made.runs(2 * r, {{first, 2}, {first + 3, 3}});
    made.runs(2 * r + 1, {{first + 4, 2}});
  }
  const AnswerRates rates = answer_rates(made.record);
  CHECK(rates.during_prefill == 2.0 / 8);
  CHECK(rates.slowest_10s == 6.0 / 10);
}

TEST_CASE("each request in decode counts its seconds", "[metrics]") {
  Made made(3, 10);
  made.step(0, 1, {{RequestId{0}, 0, 10}, {RequestId{1}, 0, 10}}, 2);
  made.step(2, 4, {{RequestId{2}, 0, 10}}, 3);  // the device was idle for a second
  made.step(4, 5, {}, 3);
  made.runs(0, {{0, 3}});
  made.runs(1, {{0, 3}});
  made.runs(2, {{1, 2}});
  const AnswerRates rates = answer_rates(made.record);
  CHECK(rates.during_prefill == 2.0 / 4);  // two tokens, two requests for two seconds
  CHECK(std::isnan(rates.slowest_10s));    // five seconds in all
}

TEST_CASE("without prompts beside an answer there is no rate", "[metrics]") {
  Made made(1, 10);
  made.step(0, 1, {{RequestId{0}, 0, 10}}, 1);
  made.step(1, 2, {}, 1);
  made.runs(0, {{0, 2}});
  CHECK(std::isnan(answer_rates(made.record).during_prefill));
  CHECK(std::isnan(answer_rates(RunRecord()).during_prefill));
}

TEST_CASE("the slowest ten seconds may begin behind any token", "[metrics]") {
  Made made(1, 10);
  made.step(0, 1, {{RequestId{0}, 0, 10}}, 1);
  for (int i = 1; i < 30; ++i) made.step(i, i + 1, {}, 1);
  made.step(30, 39, {}, 1);  // a stall of nine seconds
  for (int i = 39; i < 50; ++i) made.step(i, i + 1, {}, 1);
  made.runs(0, {{0, 42}});
  // Behind the token at 30 s: those at 39 and 40 s.
  CHECK(answer_rates(made.record).slowest_10s == 0.2);
}

}  // namespace TEST_FILE
