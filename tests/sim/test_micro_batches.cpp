// SPDX-License-Identifier: Apache-2.0
// Steps in passes of a limited size: the cuts that were recorded from llama.cpp, and their price.
#include "sim/micro_batches.h"
#include "tests/catch.h"
#include "tests/pass_plans.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

// Writes down the passes that it is asked about.
class Passes final : public CostModel {
 public:
  explicit Passes(std::vector<std::vector<std::int32_t>>* seen) : seen_(seen) {}
  StepCost step_cost(const StepPlan& plan) override {
    seen_->clear();
    num_samples = 0;
    for (const ForwardPass& pass : plan.passes) {
      std::vector<std::int32_t>& tokens = seen_->emplace_back();
      for (std::int32_t c = pass.begin; c < pass.end; ++c) {
        const ScheduledChunk& chunk = plan.chunks[static_cast<std::size_t>(c)];
        tokens.push_back(chunk.num_tokens);
        num_samples += chunk.samples_token ? 1 : 0;
      }
    }
    return {};
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 7; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 9; }

  static inline int num_samples = 0;

 private:
  std::vector<std::vector<std::int32_t>>* seen_;
};

StepPlan plan_of(std::vector<ScheduledChunk> chunks) {
  StepPlan plan = one_pass(std::move(chunks));
  for (const ScheduledChunk& chunk : plan.chunks) {
    (chunk.kind == ChunkKind::Decode ? plan.num_decode_tokens : plan.num_prefill_tokens) +=
        chunk.num_tokens;
  }
  return plan;
}

TEST_CASE("a step is cut in order, as llama.cpp cuts it", "[sim]") {
  std::vector<std::vector<std::int32_t>> seen;
  MicroBatches batches(std::make_unique<Passes>(&seen), 24);
  using Tokens = std::vector<std::vector<std::int32_t>>;
  batches.step_cost(plan_of({prefill(0, 64)}));
  CHECK(seen == Tokens{{24}, {24}, {16}});
  CHECK(Passes::num_samples == 1);
  // Unified KV: a decode, then 33 and 7 tokens of two prompts: 24, 17.
  batches.step_cost(plan_of({decode(5), prefill(0, 33), prefill(0, 7)}));
  CHECK(seen == Tokens{{1, 23}, {10, 7}});
  CHECK(Passes::num_samples == 3);
  batches.step_cost(plan_of({prefill(0, 24)}));
  CHECK(seen == Tokens{{24}});
  CHECK(batches.host_gap_ns({}) == 7);
  CHECK(batches.kv_capacity_blocks(1) == 9);
}

}  // namespace TEST_FILE
