// SPDX-License-Identifier: Apache-2.0
#include <cstdint>
#include <vector>

#include "core/metrics/step_history.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Steps of a server that idles now and then, plans ahead, and fails at times.
std::vector<StepEntry> draw_steps(Rng& rng, std::int32_t num_steps) {
  std::vector<StepEntry> steps;
  const bool plans_ahead = chance(rng, 0.5);
  const bool knows_decodes = chance(rng, 0.7);
  // The first step that has one of the rare fields; most runs have none.
  const std::int32_t first_rare = chance(rng, 0.5) ? num_steps : draw(rng, 0, num_steps);
  TimeNs now = draw(rng, 0, 1'000'000);
  TimeNs planned = now;
  std::int32_t num_chunks = 0;
  for (std::int32_t i = 0; i < num_steps; ++i) {
    StepEntry step;
    if (chance(rng, 0.02)) now += std::int64_t{draw(rng, 0, 2'000'000'000)} * 1000;
    step.planned_at = plans_ahead ? planned : now;
    step.started_at = now + draw(rng, 0, 300'000);
    step.finished_at = step.started_at + draw(rng, 0, 30'000'000);
    planned = now;
    now = step.finished_at;
    step.num_decode_tokens = draw(rng, 0, 200);
    step.num_prefill_tokens = chance(rng, 0.3) ? draw(rng, 1, 100'000) : 0;
    step.num_running = draw(rng, 0, 300);
    step.num_waiting = draw(rng, 0, 1 << 20);
    step.num_used_blocks = draw(rng, 0, INT32_MAX);
    step.num_preempted = chance(rng, 0.05) ? draw(rng, 1, INT32_MAX) : 0;
    if (i >= first_rare) {
      step.failed = chance(rng, 0.05);
      step.extrapolated = chance(rng, 0.2);
      step.draft_ns = chance(rng, 0.3) ? draw(rng, 0, 1'000'000) : 0;
      step.encode_ns = chance(rng, 0.1) ? draw(rng, 0, 1'000'000) : 0;
      step.num_draft_tokens = chance(rng, 0.3) ? draw(rng, 0, 100) : 0;
      step.num_accepted_tokens = draw(rng, 0, step.num_draft_tokens);
    }
    step.num_emitted = draw(rng, 0, step.num_decode_tokens + 3);
    step.num_continued = i >= first_rare ? draw(rng, 0, step.num_emitted) : 0;
    step.first_prefill_chunk = num_chunks;
    step.num_prefill_chunks = step.num_prefill_tokens > 0 ? draw(rng, 1, 4) : 0;
    num_chunks += step.num_prefill_chunks;
    if (knows_decodes && !chance(rng, 0.1)) {
      step.decode_only_ns = step.duration_ns() + draw(rng, -1'000'000, 10);
    }
    steps.push_back(step);
  }
  return steps;
}

}  // namespace

TEST_CASE("a step history gives back every step", "[metrics][steps]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "step history");
    INFO("seed " << seed);
    const std::int32_t num_steps = draw(rng, 0, 600);
    std::vector<StepEntry> steps = draw_steps(rng, num_steps);
    StepHistory history;
    for (const StepEntry& step : steps) history.push_back(step);
    if (chance(rng, 0.5)) {
      std::vector<std::int32_t> num_continued;
      for (StepEntry& step : steps) {
        step.num_continued = draw(rng, 0, 1000);
        num_continued.push_back(step.num_continued);
      }
      history.set_continued(num_continued);
    }
    REQUIRE(history.size() == steps.size());
    std::vector<StepEntry> iterated;
    for (const StepEntry& step : history) iterated.push_back(step);
    CHECK(iterated == steps);
    const std::int32_t from = draw(rng, 0, num_steps);
    iterated.resize(static_cast<std::size_t>(from));
    for (auto it = history.from(iterated.size()); !(it == history.end()); ++it) {
      iterated.push_back(*it);
    }
    CHECK(iterated == steps);
    constexpr std::int32_t kBlock = PackedColumn::kBlock;
    const std::int32_t begin = draw(rng, 0, num_steps / kBlock);
    const std::int32_t end =
        chance(rng, 0.5) ? num_steps : draw(rng, begin, num_steps / kBlock) * kBlock;
    std::vector<StepEntry> expected;
    for (std::int32_t i = begin * kBlock; i < end; ++i) {
      expected.push_back(steps[static_cast<std::size_t>(i)]);
      expected.back().num_continued = 0;
    }
    const auto part =
        history.part(static_cast<std::size_t>(begin * kBlock), static_cast<std::size_t>(end));
    std::vector<StepEntry> in_part;
    for (const StepEntry& step : *part) in_part.push_back(step);
    CHECK(in_part == expected);
    std::size_t num_outputs = 0;
    history.for_each_output([&](std::size_t i, const StepHistory::Output& output) {
      REQUIRE(i == num_outputs++);
      REQUIRE(output.finished_at == steps[i].finished_at);
      REQUIRE(output.num_emitted == steps[i].num_emitted);
      REQUIRE(output.num_continued == steps[i].num_continued);
    });
    CHECK(num_outputs == steps.size());
    bool are_equal = true;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      are_equal &= history[i] == steps[i];
      are_equal &= history.finished_at(i) == steps[i].finished_at;
      are_equal &= history.planned_at(i) == steps[i].planned_at;
      are_equal &= history.num_prefill_tokens(i) == steps[i].num_prefill_tokens;
      are_equal &= history.num_emitted(i) == steps[i].num_emitted;
      are_equal &= history.num_continued(i) == steps[i].num_continued;
    }
    CHECK(are_equal);
    if (!steps.empty()) CHECK(history.back() == steps.back());
  }
}

TEST_CASE("repeated steps are recorded as they would be one by one", "[metrics][steps]") {
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Rng rng(seed, "repeated steps");
    INFO("seed " << seed);
    StepHistory history;
    std::vector<StepEntry> steps;
    while (steps.size() < 700) {
      const std::vector<StepEntry> drawn = draw_steps(rng, draw(rng, 1, 300));
      if (chance(rng, 0.5)) {
        history.push_back(drawn.front());
        steps.push_back(drawn.front());
      }
      // As many steps like the first one at the times of the others.
      std::vector<StepTimes> times;
      for (const StepEntry& step : drawn) {
        times.push_back({.planned_at = step.planned_at,
                         .started_at = step.started_at,
                         .finished_at = step.finished_at,
                         .decode_only_ns = step.decode_only_ns,
                         .draft_ns = step.draft_ns,
                         .encode_ns = step.encode_ns,
                         .is_extrapolated = step.extrapolated,
                         .num_used_blocks = step.num_used_blocks});
        StepEntry entry = drawn.front();
        entry.planned_at = step.planned_at;
        entry.started_at = step.started_at;
        entry.finished_at = step.finished_at;
        entry.decode_only_ns = step.decode_only_ns;
        entry.draft_ns = step.draft_ns;
        entry.encode_ns = step.encode_ns;
        entry.extrapolated = step.extrapolated;
        entry.num_used_blocks = step.num_used_blocks;
        steps.push_back(entry);
      }
      history.push_back(drawn.front(), times);
    }
    std::vector<StepEntry> iterated;
    for (const StepEntry& step : history) iterated.push_back(step);
    CHECK(iterated == steps);
  }
}

TEST_CASE("decodes that go on take a few bytes a step", "[metrics][steps]") {
  constexpr std::int32_t kNumSteps = 100'000;
  StepHistory history;
  TimeNs now = 0;
  for (std::int32_t i = 0; i < kNumSteps; ++i) {
    StepEntry step;
    step.planned_at = now;
    step.started_at = now + 250'000;
    step.finished_at = now = step.started_at + 20'000'000 + 100 * i;
    step.num_decode_tokens = step.num_running = step.num_emitted = step.num_continued = 64;
    step.num_used_blocks = 4 * i;
    step.decode_only_ns = step.duration_ns();
    history.push_back(step);
  }
  CHECK(history.num_bytes() < 11 * kNumSteps);
}

}  // namespace metronome::testing::TEST_FILE
