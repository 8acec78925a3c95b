// SPDX-License-Identifier: Apache-2.0
// gpu/plan/cut_passes: steps larger than the memory for activations.
#include "core/base/error.h"
#include "gpu/plan/cut_passes.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

ScheduledChunk chunk(std::uint32_t request, std::int32_t first, std::int32_t num_tokens,
                     bool samples = true) {
  return {.request = RequestId{request},
          .first_position = first,
          .num_tokens = num_tokens,
          .kind = num_tokens == 1 ? ChunkKind::Decode : ChunkKind::Prefill,
          .samples_token = samples,
          .generation = static_cast<std::uint8_t>(request)};
}

// "0:5+3 1:9+1*|0:8+2*": request, first position, tokens; * samples, | between passes.
std::string text_of(const StepPlan& plan) {
  std::string text;
  for (const ForwardPass& pass : plan.passes) {
    if (!text.empty()) text += "|";
    for (std::int32_t i = pass.begin; i < pass.end; ++i) {
      const ScheduledChunk& c = plan.chunks[static_cast<std::size_t>(i)];
      if (i > pass.begin) text += " ";
      text += std::to_string(index(c.request)) + ":" + std::to_string(c.first_position) + "+" +
              std::to_string(c.num_tokens) + (c.samples_token ? "*" : "");
    }
  }
  return text;
}

std::string cut_text(const StepPlan& plan, std::int32_t max_tokens) {
  StepPlan cut;
  cut_passes(plan, max_tokens, cut);
  return text_of(cut);
}

StepPlan random_plan(Rng& rng) {
  StepPlan plan;
  plan.step_index = draw(rng, 0, 1000);
  for (int pass = draw(rng, 1, 3); pass > 0; --pass) {
    const auto begin = static_cast<std::int32_t>(plan.chunks.size());
    const int num_chunks = draw(rng, 1, 6);
    for (int i = 0; i < num_chunks; ++i) {
      const std::int32_t num_tokens = chance(rng, 0.4) ? 1 : draw(rng, 1, 40);
      const bool samples_token = chance(rng, 0.7);
      plan.chunks.push_back(
          chunk(static_cast<std::uint32_t>(i), draw(rng, 0, 50), num_tokens, samples_token));
    }
    plan.passes.push_back({begin, begin + num_chunks});
  }
  return plan;
}

// The pieces of each pass, put together again, are the pass; none is larger than it may be, and
// none smaller than it must be.
void check_cut(const StepPlan& plan, std::int32_t max_tokens) {
  StepPlan cut = plan;  // what it held before does not matter
  cut_passes(plan, max_tokens, cut);
  REQUIRE(cut.step_index == plan.step_index);
  std::size_t next = 0;  // of cut.passes
  std::int32_t end = 0;
  for (const ForwardPass& pass : plan.passes) {
    std::vector<ScheduledChunk> whole;
    std::int32_t num_left = 0;
    for (std::int32_t i = pass.begin; i < pass.end; ++i) {
      num_left += plan.chunks[static_cast<std::size_t>(i)].num_tokens;
    }
    while (num_left > 0) {
      REQUIRE(next < cut.passes.size());
      const ForwardPass piece = cut.passes[next++];
      REQUIRE(piece.begin == end);
      end = piece.end;
      std::int32_t num_tokens = 0;
      for (std::int32_t i = piece.begin; i < piece.end; ++i) {
        const ScheduledChunk& c = cut.chunks[static_cast<std::size_t>(i)];
        num_tokens += c.num_tokens;
        const bool goes_on = i == piece.begin && !whole.empty() && !whole.back().samples_token &&
                             whole.back().request == c.request &&
                             whole.back().end_position() == c.first_position;
        if (!goes_on) {
          whole.push_back(c);
          continue;
        }
        CHECK(whole.back().kind == c.kind);
        CHECK(whole.back().generation == c.generation);
        whole.back().num_tokens += c.num_tokens;
        whole.back().samples_token = c.samples_token;
      }
      CHECK(num_tokens == std::min(max_tokens, num_left));
      num_left -= num_tokens;
    }
    StepPlan expected;
    expected.chunks.assign(plan.chunks.begin() + pass.begin, plan.chunks.begin() + pass.end);
    expected.passes = {{0, pass.end - pass.begin}};
    StepPlan actual;
    actual.chunks = whole;
    actual.passes = {{0, static_cast<std::int32_t>(whole.size())}};
    CHECK(text_of(actual) == text_of(expected));
  }
  CHECK(next == cut.passes.size());
  CHECK(end == static_cast<std::int32_t>(cut.chunks.size()));
}

}  // namespace

TEST_CASE("a decode with drafts stays whole", "[gpu][plan]") {
  StepPlan plan;
  plan.chunks = {chunk(0, 9, 6, false), chunk(1, 20, 3, true), chunk(2, 30, 4, true)};
  plan.chunks[1].kind = plan.chunks[2].kind = ChunkKind::Decode;
  plan.passes = {{0, 3}};
  CHECK(cut_text(plan, 8) == "0:9+6|1:20+3* 2:30+4*");
  CHECK(cut_text(plan, 4) == "0:9+4|0:13+2|1:20+3*|2:30+4*");
  CHECK(cut_text(plan, 13) == "0:9+6 1:20+3* 2:30+4*");
}

TEST_CASE("passes with room stay as they are", "[gpu][plan]") {
  StepPlan plan;
  plan.step_index = 7;
  plan.chunks = {chunk(0, 5, 1), chunk(1, 0, 9, false), chunk(2, 3, 1)};
  plan.passes = {{0, 2}, {2, 3}};
  CHECK(cut_text(plan, 10) == "0:5+1* 1:0+9|2:3+1*");
  CHECK(cut_text(plan, 1000) == text_of(plan));
}

TEST_CASE("a chunk goes on in the next pass and samples with its last piece", "[gpu][plan]") {
  StepPlan plan;
  plan.chunks = {chunk(0, 5, 1), chunk(1, 20, 9), chunk(2, 3, 1), chunk(3, 0, 4, false)};
  plan.passes = {{0, 4}};
  CHECK(cut_text(plan, 4) == "0:5+1* 1:20+3|1:23+4|1:27+2* 2:3+1* 3:0+1|3:1+3");
  CHECK(cut_text(plan, 5) == "0:5+1* 1:20+4|1:24+5*|2:3+1* 3:0+4");
  CHECK(cut_text(plan, 10) == "0:5+1* 1:20+9*|2:3+1* 3:0+4");  // no empty piece of request 1
  StepPlan cut;
  cut_passes(plan, 4, cut);
  for (const ScheduledChunk& piece : cut.chunks) {  // also where a piece is one token
    CHECK((piece.kind == ChunkKind::Decode) == (index(piece.request) % 2 == 0));
    CHECK(piece.generation == index(piece.request));
  }
}

TEST_CASE("cut passes put together are the plan, whatever the sizes", "[gpu][plan]") {
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    Rng rng(seed, "cut passes");
    const StepPlan plan = random_plan(rng);
    for (const std::int32_t max_tokens : {1, 2, 7, 16, 40, 1000}) {
      INFO("seed " << seed << ", passes of " << max_tokens);
      // A chunk that does not sample, with the next one of the same request at its end, would look
      // like one that was cut: requests within a pass differ.
      check_cut(plan, max_tokens);
    }
  }
  StepPlan cut;
  CHECK_THROWS_AS(cut_passes(StepPlan(), 0, cut), InvariantError);
}

}  // namespace metronome::testing::TEST_FILE
