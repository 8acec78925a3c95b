// SPDX-License-Identifier: Apache-2.0
// Runs the policy of docs/guide/write_a_policy.md, which `check` compiles beside this file. Prompts
// share 32 tokens a step, a prompt is old after four steps, and each request wants one token.
//
// A prompt of 96 tokens begins. Then one of 32 comes before each step. Three of them pass the long
// one, which is old in step 4 and passes the fourth. The last request shares 64 tokens, four
// blocks, with the long one, and computes the 16 others in a step.
#include <iostream>
#include <map>
#include <vector>

#include "core/config/config_reader.h"
#include "core/engine/engine.h"
#include "core/engine/policies/registry.h"

namespace metronome {
extern const PolicyInfo kAgedShortest;
}

using namespace metronome;

namespace {

struct Device final : Executor {
  void launch(const StepPlan& plan, const RequestTable&, TimeNs now) override {
    for (const ScheduledChunk& chunk : plan.chunks) {
      chunks[static_cast<int>(chunk.request)].push_back(chunk.num_tokens);
      steps[static_cast<int>(chunk.request)].push_back(static_cast<int>(plan.step_index));
    }
    result.step_index = plan.step_index;
    result.finished_at = (result.started_at = now) + 1'000'000;
  }
  const StepResult& collect() override { return result; }
  StepResult result;
  std::map<int, std::vector<int>> chunks;
  std::map<int, std::vector<int>> steps;
};

// Requests 0 and 5 begin alike; the others are unique.
struct Prompts final : PromptSource {
  std::span<const TokenId> prompt_ids(RequestId) const override { return {}; }
  std::span<const PromptSegment> prompt_segments(RequestId id) const override {
    static constexpr PromptSegment kLong[] = {{1, 64}, {2, 32}};
    static constexpr PromptSegment kLast[] = {{1, 64}, {3, 16}};
    if (id == RequestId{0}) return kLong;
    if (id == RequestId{5}) return kLast;
    return {};
  }
};

// One step, at the time that the engine says.
void step(Engine& engine) {
  engine.take_turn(engine.next_time());
  if (engine.awaits_step()) engine.take_turn(engine.next_time());
}

}  // namespace

int main() {
  register_policy(kAgedShortest);
  EngineSetup setup;
  const ConfigNode section = parse_config_text(
      "{policy: aged_shortest, max_num_batched_tokens: 32, aging_steps: 4}", "scheduler");
  ConfigReader reader(section, "scheduler");
  visit_fields(reader, setup.scheduler);
  reader.finish();
  setup.kv_cache = {.num_blocks = 100, .block_size = 16, .enable_prefix_caching = true};
  setup.max_num_seqs = 8;
  setup.max_model_len = 256;
  arrange_cache(kAgedShortest, setup);
  const Prompts prompts;
  const PrefixHasher hasher(&prompts);
  Device device;
  Engine engine(setup, device, {}, &hasher);
  engine.submit({.num_prompt_tokens = 96, .max_output_tokens = 1});
  step(engine);
  for (int i = 0; i < 4; ++i) {
    engine.submit({.arrival = engine.now(), .num_prompt_tokens = 32, .max_output_tokens = 1});
    step(engine);
  }
  while (engine.has_work()) step(engine);
  engine.submit({.arrival = engine.now(), .num_prompt_tokens = 80, .max_output_tokens = 1});
  while (engine.has_work()) step(engine);
  engine.check_integrity();

  using Lists = std::map<int, std::vector<int>>;
  const Lists chunks = {{0, {32, 32, 32}}, {1, {32}}, {2, {32}}, {3, {32}}, {4, {32}}, {5, {16}}};
  const Lists steps = {{0, {0, 4, 5}}, {1, {1}}, {2, {2}}, {3, {3}}, {4, {6}}, {5, {7}}};
  if (device.chunks == chunks && device.steps == steps) return 0;
  for (const auto& [id, sizes] : device.chunks) {
    std::cerr << "request " << id << ':';
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      std::cerr << "  " << sizes[i] << " tokens in step " << device.steps[id][i];
    }
    std::cerr << '\n';
  }
  return 1;
}
