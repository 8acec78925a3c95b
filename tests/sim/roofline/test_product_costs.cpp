// SPDX-License-Identifier: Apache-2.0
// The costs of products that the roofline model keeps.
#include <cstdint>
#include <string>

#include "core/base/rng.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::TEST_FILE {
namespace {

using testing::chance;
using testing::draw;

// One or two passes of decodes, some with drafts, and prefill chunks.
StepPlan draw_plan(Rng& rng) {
  StepPlan plan;
  for (std::int32_t passes = draw(rng, 1, 2); passes > 0; --passes) {
    const auto begin = static_cast<std::int32_t>(plan.chunks.size());
    for (std::int32_t n = draw(rng, 1, 40); n > 0; --n) {
      plan.chunks.push_back(
          {RequestId{0}, draw(rng, 0, 4000), draw(rng, 1, 3), ChunkKind::Decode, true});
    }
    for (std::int32_t n = draw(rng, 0, 2); n > 0; --n) {
      plan.chunks.push_back({RequestId{0}, draw(rng, 0, 3000), 16 * draw(rng, 1, 40),
                             ChunkKind::Prefill, chance(rng, 0.5)});
    }
    plan.passes.push_back({begin, static_cast<std::int32_t>(plan.chunks.size())});
  }
  return plan;
}

}  // namespace

// Costs of other sizes replace some of those that are kept.
TEST_CASE("costs do not depend on the steps before", "[sim][roofline]") {
  CostModelConfig padded;
  padded.batching = Batching::Padded;
  CostModelConfig gathered;
  gathered.gather_kv = true;
  const HardwareSpec hardware = find_hardware("h100-sxm", {});
  for (const char* name : {"llama-3.2-3b", "gpt-oss-20b"}) {
    const ModelConfig model = find_model(name, {});
    for (const CostModelConfig& config : {CostModelConfig(), padded, gathered}) {
      constexpr std::uint64_t kSeed = 3;
      INFO(name << ", seed " << kSeed);
      Rng rng(kSeed, "kept costs");
      RooflineCostModel used(model, hardware, config);
      for (int i = 0; i < 400; ++i) {
        const StepPlan plan = draw_plan(rng);
        const StepCost cost = used.step_cost(plan);
        const StepCost fresh = RooflineCostModel(model, hardware, config).step_cost(plan);
        REQUIRE(cost.linear_ns == fresh.linear_ns);
        REQUIRE(cost.attention_ns == fresh.attention_ns);
        REQUIRE(cost.comm_ns == fresh.comm_ns);
        REQUIRE(cost.overhead_ns == fresh.overhead_ns);
        REQUIRE(cost.decode_only_ns == fresh.decode_only_ns);
      }
    }
  }
}

}  // namespace metronome::TEST_FILE
