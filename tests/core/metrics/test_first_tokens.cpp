// SPDX-License-Identifier: Apache-2.0
// The parts of the time to a first token, by hand.
#include "core/metrics/first_tokens.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

constexpr TimeNs kMs = 1'000'000;

// Steps of a run, and requests with what the engine notes of them.
struct ServedRun {
  RunRecord record;

  explicit ServedRun(std::vector<TimeNs> arrivals, std::int32_t num_prompt_tokens) {
    for (const TimeNs arrival : arrivals) {
      RequestRecord& request = record.requests.emplace_back();
      request.arrival = arrival * kMs;
      request.num_prompt_tokens = num_prompt_tokens;
    }
  }
  void step(TimeNs begin, TimeNs end, TimeNs decode_ms, std::vector<PrefillChunk> chunks,
            std::int32_t num_running, std::int32_t num_waiting, std::int32_t num_used_blocks = 0) {
    StepEntry entry;
    entry.planned_at = entry.started_at = begin * kMs;
    entry.finished_at = end * kMs;
    entry.decode_only_ns = decode_ms * kMs;
    entry.num_decode_tokens = decode_ms > 0 ? 1 : 0;
    entry.num_running = num_running;
    entry.num_waiting = num_waiting;
    entry.num_used_blocks = num_used_blocks;
    entry.first_prefill_chunk = static_cast<std::int32_t>(record.prefills.size());
    entry.num_prefill_chunks = static_cast<std::int32_t>(chunks.size());
    for (const PrefillChunk& chunk : chunks) {
      record.prefills.push_back(chunk);
      entry.num_prefill_tokens += chunk.num_tokens;
    }
    record.steps.push_back(entry);
  }
  void served(std::size_t i, TimeNs scheduled, TimeNs first_token) {
    RequestRecord& request = record.requests[i];
    request.first_scheduled = request.last_scheduled = scheduled * kMs;
    request.first_token = request.last_token = request.ended = first_token * kMs;
    request.num_output_tokens = 1;
    request.reason = EndReason::Length;
  }
};

TEST_CASE("a prompt waits behind another, then for its own", "[metrics]") {
  ServedRun made({0, 5}, 100);
  made.step(0, 10, 0, {{RequestId{0}, 0, 50}}, 1, 0);
  made.step(10, 20, 0, {{RequestId{0}, 50, 50}}, 1, 1);
  made.step(20, 32, 2, {{RequestId{1}, 0, 100}}, 2, 0);
  made.served(0, 0, 20);
  made.served(1, 20, 32);
  const FirstTokens tokens(made.record, {8, 0, 0});
  const FirstTokenParts& parts = tokens.parts()[1];
  CHECK(parts[FirstTokenPart::Prompts] == 15 * kMs);
  CHECK(parts[FirstTokenPart::OwnPrefill] == 10 * kMs);
  CHECK(parts[FirstTokenPart::Decodes] == 2 * kMs);
  CHECK(parts.total_ns() == 27 * kMs);
  CHECK(parts.largest() == FirstTokenPart::Prompts);
  const FirstTokenCulprit culprit = tokens.culprit(1);
  CHECK(culprit.request == RequestId{0});
  CHECK(culprit.num_tokens == 100);
  CHECK(culprit.prefill_ns == 15 * kMs);
  CHECK(tokens.latest(1) == std::vector<std::size_t>{1});
}

TEST_CASE("slots and blocks hold the queue", "[metrics]") {
  ServedRun made({0, 1, 1}, 32);
  made.step(0, 4, 0, {{RequestId{0}, 0, 32}}, 1, 0, 2);
  made.step(4, 10, 6, {}, 1, 2, 2);  // one may run
  made.step(10, 14, 0, {{RequestId{1}, 0, 32}}, 1, 1, 2);
  made.step(14, 18, 0, {{RequestId{2}, 0, 32}}, 1, 0, 2);
  made.served(0, 0, 4);
  made.served(1, 10, 14);
  made.served(2, 14, 18);
  const FirstTokens slots(made.record, {1, 100, 16});
  // The step at its arrival had no slot left either.
  CHECK(slots.parts()[1][FirstTokenPart::Slots] == 9 * kMs);
  CHECK(slots.parts()[2][FirstTokenPart::Slots] == 13 * kMs);
  // With room for many, but three blocks, two of which are in use: the next needs two.
  const FirstTokens blocks(made.record, {8, 3, 16});
  CHECK(blocks.parts()[1][FirstTokenPart::Blocks] == 6 * kMs);
  CHECK(blocks.parts()[1][FirstTokenPart::Prompts] == 3 * kMs);
  FirstTokenParts sum;
  CHECK(blocks.beyond(10 * kMs, sum) == 2);
  CHECK(sum.total_ns() == 13 * kMs + 17 * kMs);
}

TEST_CASE("an idle engine and a front end have their parts", "[metrics]") {
  ServedRun made({0}, 10);
  made.record.handed_over = {3 * kMs};
  made.step(4, 9, 0, {{RequestId{0}, 0, 10}}, 1, 0);
  made.served(0, 4, 9);
  const FirstTokens tokens(made.record, {});
  const FirstTokenParts& parts = tokens.parts()[0];
  CHECK(parts[FirstTokenPart::FrontEnd] == 3 * kMs);
  CHECK(parts[FirstTokenPart::Held] == 1 * kMs);
  CHECK(parts[FirstTokenPart::OwnPrefill] == 5 * kMs);
  CHECK(tokens.culprit(0).request == kNoRequest);
}

}  // namespace TEST_FILE
