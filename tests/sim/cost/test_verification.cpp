// SPDX-License-Identifier: Apache-2.0
// The cost of verifying drafts in every cost model that prices it.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/corrected/corrected_model.h"
#include "sim/cost/graph_size.h"
#include "sim/cost/measured_steps.h"
#include "sim/fitted/fitted_model.h"
#include "sim/fitted/step_features.h"
#include "sim/operators/operator_model.h"
#include "sim/profile/profile_model.h"
#include "sim/roofline/roofline.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/sim/fitted/fitted_lab.h"
#include "tests/sim/operators/operator_lab.h"
#include "tests/sim/profile/profile_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

ModelConfig model(const std::string& name) { return find_model(name, {}); }

struct Priced {
  std::string name;
  std::unique_ptr<CostModel> cost_model;
};

std::unique_ptr<CostModel> roofline(const std::string& name, Batching batching = Batching::Ragged) {
  CostModelConfig config;
  config.batching = batching;
  return std::make_unique<RooflineCostModel>(model(name), find_hardware("h200", {}), config);
}

std::unique_ptr<CostModel> profile(bool knows_kernel) {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  if (knows_kernel) profile.filling = kFilling;
  return std::make_unique<ProfileCostModel>(std::move(profile), synthetic.times.model,
                                            synthetic.times.hardware, CostModelConfig{});
}

std::unique_ptr<CostModel> operators(std::int64_t window) {
  ModelConfig windowed = model("llama-3.1-8b");
  windowed.sliding_window = window;
  return std::make_unique<OperatorCostModel>(operators_of("llama-3.1-8b"), windowed,
                                             find_hardware("h200", {}), CostModelConfig{});
}

std::vector<Priced> priced_models() {
  std::vector<Priced> all;
  all.push_back({"roofline", roofline("llama-3.1-8b")});
  all.push_back({"roofline with windows", roofline("gemma-3-1b")});
  all.push_back({"roofline with experts", roofline("qwen3-30b-a3b")});
  all.push_back({"padded roofline", roofline("gemma-3-1b", Batching::Padded)});
  all.push_back(
      {"fitted", std::make_unique<FittedCostModel>(known_model(), model("gemma-3-1b"),
                                                   find_hardware("h200", {}), CostModelConfig{})});
  all.push_back({"operators", operators(0)});
  all.push_back({"operators with windows", operators(512)});
  all.push_back({"profile", profile(false)});
  all.push_back({"profile of a known kernel", profile(true)});
  all.push_back({"corrected",
                 std::make_unique<CorrectedCostModel>(roofline("llama-3.1-8b"), unit_factors())});
  return all;
}

// Decodes with so many drafts each, beside a prompt if `prompt_tokens` > 0.
StepPlan step(const std::vector<std::int32_t>& contexts, std::int32_t num_drafts,
              std::int32_t prompt_tokens) {
  StepPlan plan;
  std::uint32_t id = 0;
  for (const std::int32_t context : contexts) {
    plan.chunks.push_back({RequestId{id++}, context, 1 + num_drafts, ChunkKind::Decode, true});
    plan.num_decode_tokens += 1 + num_drafts;
  }
  if (prompt_tokens > 0) {
    plan.chunks.push_back({RequestId{id}, 128, prompt_tokens, ChunkKind::Prefill, true});
    plan.num_prefill_tokens = prompt_tokens;
  }
  plan.passes = {{0, static_cast<std::int32_t>(plan.chunks.size())}};
  return plan;
}

TEST_CASE("more drafts never make a step shorter", "[sim][drafts]") {
  Rng rng(11, "verified drafts");
  for (const Priced& priced : priced_models()) {
    for (int i = 0; i < 20; ++i) {
      std::vector<std::int32_t> contexts(static_cast<std::size_t>(draw(rng, 1, 48)));
      for (std::int32_t& context : contexts) context = draw(rng, 1, 3000);
      const std::int32_t prompt_tokens = chance(rng, 0.5) ? draw(rng, 2, 600) : 0;
      StepCost last = priced.cost_model->step_cost(step(contexts, 0, prompt_tokens));
      for (const std::int32_t num_drafts : {1, 3, 7, 15}) {
        INFO(priced.name << ": " << contexts.size() << " decodes of " << num_drafts
                         << " drafts beside " << prompt_tokens);
        const StepCost cost =
            priced.cost_model->step_cost(step(contexts, num_drafts, prompt_tokens));
        CHECK(cost.total_ns >= last.total_ns);
        CHECK(cost.decode_only_ns >= last.decode_only_ns);
        CHECK(cost.decode_only_ns <= cost.total_ns);
        if (prompt_tokens == 0) CHECK(cost.decode_only_ns == cost.total_ns);
        last = cost;
      }
    }
  }
}

TEST_CASE("verification reads the weights and each context once", "[sim][drafts]") {
  // Llama-3.1-8B: 6,979,321,856 weights of projections, 525,336,576 of the head.
  RooflineCostModel cost_model(model("llama-3.1-8b"), find_hardware("h100-sxm", {}), {});
  const StepWork work = cost_model.step_work(step({2000, 100}, 3, 0));
  CHECK(work.projections.flops == 2. * 8 * 6'979'321'856);
  CHECK(work.projections.bytes == 2. * 6'979'321'856);
  CHECK(work.head.flops == 2. * 8 * 525'336'576);
  CHECK(work.head.bytes == 2. * 525'336'576);
  // 32 layers of 32 heads of 128: queries at 2000 to 2003 see 2001 to 2004 keys.
  CHECK(work.decode_attention.flops == 4. * 4096 * 32 * (8010 + 410));
  CHECK(work.decode_attention.bytes == 4096. * 32 * (2004 + 104));
}

TEST_CASE("a drafter's pass has one row of logits for each request", "[sim][drafts]") {
  RooflineCostModel cost_model(model("llama-3.1-8b"), find_hardware("h100-sxm", {}), {});
  StepPlan plan = step({2000, 100}, 3, 50);
  CHECK(cost_model.step_work(plan).head.flops == 2. * 9 * 525'336'576);
  plan.has_last_rows_only = true;
  CHECK(cost_model.step_work(plan).head.flops == 2. * 3 * 525'336'576);
}

TEST_CASE("operators: tokens, rows and contexts of decodes with drafts", "[sim][drafts]") {
  const ModelConfig llama = model("llama-3.1-8b");
  const OperatorTimes times = operators_of("llama-3.1-8b");
  OperatorCostModel cost_model(times, llama, find_hardware("h200", {}), {});
  const StepCost cost = cost_model.step_cost(step({996, 996, 996, 996}, 3, 0));
  bool is_outside = false;
  const double attention_us = 32 * times.attention.decodes.at(4, 1000, is_outside);
  CHECK(static_cast<double>(cost.attention_ns) == Approx(attention_us * 1e3).margin(1));
  const StepCost plain = cost_model.step_cost(step(std::vector<std::int32_t>(16, 999), 0, 0));
  CHECK(cost.linear_ns == plain.linear_ns);  // 16 tokens and rows
  CHECK(cost.overhead_ns == plain.overhead_ns);
  CHECK_FALSE(cost.is_extrapolated);
  // 4 query heads share a KV head: more than 32 tokens are two tiles.
  CHECK_FALSE(cost_model.step_cost(step({996}, 31, 0)).is_extrapolated);
  CHECK(cost_model.step_cost(step({996}, 32, 0)).is_extrapolated);
}

TEST_CASE("fitted: features of decodes with drafts", "[sim][drafts]") {
  const StepPlan plan = step({100, 50}, 3, 20);
  const StepFeatures pass =
      pass_features(model("llama-3.1-8b"), chunks_of(plan, plan.passes.front()));
  CHECK(pass.tokens == 28);
  CHECK(pass.rows == 9);
  CHECK(pass.decodes == 2);
  CHECK(pass.drafts == 6);
  CHECK(pass.decode_kv == 104 + 54);
  const StepPlan alone = step({100, 50}, 3, 0);
  CHECK(decodes_of(pass) ==
        pass_features(model("llama-3.1-8b"), chunks_of(alone, alone.passes.front())));
}

TEST_CASE("graphs of decodes with drafts have sizes of their own", "[sim][drafts]") {
  CHECK(graph_tokens(9, 512) == 16);
  CHECK(graph_tokens(9, 512, 3) == 12);  // 3, 6, 12, 24, ...
  CHECK(graph_tokens(3, 512) == 4);
  CHECK(graph_tokens(3, 512, 3) == 3);
  CHECK(graph_tokens(15, 512, 3) == 16);  // 24 is larger
  CHECK(graph_tokens(600, 512, 3) == 600);
  const StepPlan mixed = step({5, 9}, 2, 30);
  const PassChunks pass = chunks_of(mixed, mixed.passes.front());
  CHECK(sum_pass(pass, PassPart::All).tokens_of_each == 1);
  CHECK(sum_pass(pass, PassPart::Decodes).tokens_of_each == 3);
  StepPlan uneven = step({5, 9}, 2, 0);
  CHECK(sum_pass(chunks_of(uneven, uneven.passes.front()), PassPart::All).tokens_of_each == 3);
  uneven.chunks.back().num_tokens = 2;
  CHECK(sum_pass(chunks_of(uneven, uneven.passes.front()), PassPart::All).tokens_of_each == 1);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
