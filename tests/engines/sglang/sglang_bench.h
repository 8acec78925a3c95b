// SPDX-License-Identifier: Apache-2.0
// Benches of the sglang policy, and their steps as text.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/planned.h"

namespace metronome::testing {

using Steps = std::vector<std::string>;

inline EngineSetup sglang(std::int64_t num_blocks = 10'000, std::int32_t block_size = 1) {
  EngineSetup setup = make_setup("sglang");
  setup.kv_cache = {.num_blocks = num_blocks, .block_size = block_size};
  arrange_cache(setup);
  return setup;
}

// A step as text: "p3:40" is 40 prompt tokens of request 3, "d3" its decode.
inline std::string text_of(const Journal::Step& step) {
  std::string text;
  for (const ScheduledChunk& chunk : step.chunks) {
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    if (!text.empty()) text += ' ';
    text += (is_decode ? 'd' : 'p') + std::to_string(index(chunk.request));
    if (!is_decode) text += ':' + std::to_string(chunk.num_tokens);
  }
  return text;
}

inline Steps steps_of(const Bench& bench) {
  Steps steps;
  for (const Journal::Step& step : bench.journal.steps) steps.push_back(text_of(step));
  return steps;
}

inline std::string next_step(Bench& bench) {
  bench.engine.step();
  return text_of(bench.journal.steps.back());
}

inline void run_steps(Bench& bench, int count) {
  for (int i = 0; i < count; ++i) bench.engine.step();
}

// To the end, also when that comes with a plan that only refuses.
inline void drain(Bench& bench) {
  while (bench.engine.has_work()) REQUIRE((bench.engine.step() || !bench.engine.has_work()));
}

// Submits (prompt, output) each.
using Requests = std::vector<std::pair<int, int>>;
inline void submit(Bench& bench, const Requests& requests) {
  for (const auto& [prompt, output] : requests) bench.submit(prompt, output);
}

// The later ones come after so many steps.
inline Steps run(const EngineSetup& setup, const Requests& requests, const Requests& later = {},
                 int num_steps = 1) {
  Bench bench(setup);
  submit(bench, requests);
  run_steps(bench, num_steps);
  submit(bench, later);
  bench.engine.drain();
  return steps_of(bench);
}

// Prompts made of segments (content, tokens), in order of submission.
class OrderedPrompts {
 public:
  using Segments = std::vector<PromptSegment>;
  explicit OrderedPrompts(const std::vector<Segments>& prompts)
      : prompts_(prompts), shared_(prompts) {}

  RequestId submit(Bench& bench, std::int32_t output) {
    std::int32_t num_tokens = 0;
    for (const PromptSegment& segment : prompts_.at(next_++)) num_tokens += segment.num_tokens;
    return bench.submit(num_tokens, output);
  }
  const PrefixHasher* hasher() const { return shared_.hasher(); }

 private:
  std::vector<Segments> prompts_;
  SharedPrompts shared_;
  std::size_t next_ = 0;
};

// One output token for each. The rest come when the first few have ended.
inline Steps run(const EngineSetup& setup, const std::vector<OrderedPrompts::Segments>& segments,
                 int num_first) {
  OrderedPrompts prompts(segments);
  Bench bench(setup, prompts.hasher());
  for (int i = 0; i < num_first; ++i) prompts.submit(bench, 1);
  bench.engine.drain();
  for (std::size_t i = static_cast<std::size_t>(num_first); i < segments.size(); ++i) {
    prompts.submit(bench, 1);
  }
  bench.engine.drain();
  return steps_of(bench);
}

inline constexpr std::uint64_t kGroup = content_id(ContentKind::Group, 1);
inline PromptSegment own(std::int32_t num_tokens) {  // shared by nobody
  static std::uint64_t next = 0;
  return {content_id(ContentKind::TraceBlock, next++), num_tokens};
}

}  // namespace metronome::testing
