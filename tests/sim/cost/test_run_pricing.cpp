// SPDX-License-Identifier: Apache-2.0
// A cost model prices a step whose decodes are a run as it prices the step with every decode
// listed.
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/engine/decode_run.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "sim/corrected/corrected_fit.h"
#include "sim/corrected/corrected_model.h"
#include "sim/fitted/fitted_model.h"
#include "sim/operators/operator_model.h"
#include "sim/profile/profile_model.h"
#include "sim/replay/replay_model.h"
#include "sim/roofline/roofline.h"
#include "sim/step_noise.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/sim/fitted/fitted_lab.h"
#include "tests/sim/operators/operator_lab.h"
#include "tests/sim/profile/profile_lab.h"

namespace metronome::testing::TEST_FILE {
namespace {

// A step of both kinds. `with_run` refers to `members`.
struct Pair {
  RunMembers members;
  StepPlan with_run;
  StepPlan listed;
};

// The run has taken steps, lost members and gained others; some were preempted before.
void draw_run(Rng& rng, RunMembers& run) {
  const std::int32_t num_joining = draw(rng, 1, 40);
  for (std::int32_t i = 0; i < num_joining; ++i) {
    const std::int32_t position = draw(rng, 1, chance(rng, 0.3) ? 8000 : 600);
    const bool was_preempted = chance(rng, 0.1);
    run.append(RequestId{static_cast<std::uint32_t>(i)}, position, was_preempted ? 1 : 0);
    if (chance(rng, 0.5)) run.take_steps(1);
  }
  std::vector<std::int32_t> leaving;
  for (std::int32_t i = 1; i < run.size(); ++i) {
    if (chance(rng, 0.2)) leaving.push_back(i);
  }
  run.erase(leaving);
}

std::unique_ptr<Pair> draw_step(Rng& rng) {
  auto pair = std::make_unique<Pair>();
  draw_run(rng, pair->members);
  StepPlan& plan = pair->with_run;
  plan.step_index = draw(rng, 0, 1000);
  const std::int32_t num_decodes = pair->members.size();
  plan.run.num_decodes = num_decodes;
  plan.run.members = &pair->members;
  plan.num_decode_tokens = num_decodes;
  std::uint32_t next_request = 100;
  for (std::int32_t left = draw(rng, 0, 2); left > 0; --left) {  // decodes behind the run
    const std::int32_t position = draw(rng, 1, 3000);
    plan.chunks.push_back({RequestId{next_request++}, position, 1, ChunkKind::Decode, true});
    ++plan.num_decode_tokens;
  }
  for (std::int32_t left = draw(rng, 0, 3); left > 0; --left) {
    const std::int32_t first = chance(rng, 0.5) ? 0 : draw(rng, 1, 5000);
    const std::int32_t num_tokens = draw(rng, 1, 900);
    plan.chunks.push_back(
        {RequestId{next_request++}, first, num_tokens, ChunkKind::Prefill, chance(rng, 0.5)});
    plan.num_prefill_tokens += num_tokens;
  }
  const auto num_chunks = static_cast<std::int32_t>(plan.num_chunks());
  if (plan.num_prefill_tokens > 0 && chance(rng, 0.5)) {
    plan.passes = {{0, plan.num_decode_tokens}, {plan.num_decode_tokens, num_chunks}};
  } else {
    plan.passes = {{0, num_chunks}};
  }
  pair->listed = plan;
  pair->listed.run = {};
  pair->members.list(plan.chunks, 0, false, pair->listed.chunks);
  return pair;
}

ModelConfig model(const std::string& name) { return find_model(name, {}); }
HardwareSpec hardware() { return find_hardware("h200", {}); }

std::unique_ptr<CostModel> roofline(const std::string& name, Batching batching = Batching::Ragged) {
  CostModelConfig config;
  config.batching = batching;
  return std::make_unique<RooflineCostModel>(model(name), hardware(), config);
}

FittedModel scattered_model() {
  FittedModel fitted = known_model();
  fitted.host_gap_chunk_ns = 3'000;
  scatter_evenly(fitted, 0.9, 0.2);
  return fitted;
}

std::unique_ptr<CostModel> fitted(const std::string& name) {
  return std::make_unique<FittedCostModel>(scattered_model(), model(name), hardware(),
                                           CostModelConfig{});
}

std::unique_ptr<CostModel> profile(bool corrects_lengths) {
  const SyntheticProfile synthetic;
  Profile profile = profile_of(synthetic);
  profile.filling = kFilling;
  profile.corrects_lengths = corrects_lengths;
  return std::make_unique<ProfileCostModel>(std::move(profile), synthetic.times.model,
                                            synthetic.times.hardware, CostModelConfig{});
}

std::unique_ptr<CostModel> operators(std::int64_t window) {
  ModelConfig windowed = model("llama-3.1-8b");
  windowed.sliding_window = window;
  return std::make_unique<OperatorCostModel>(operators_of("llama-3.1-8b"), windowed, hardware(),
                                             CostModelConfig{});
}

struct Priced {
  std::string name;
  std::unique_ptr<CostModel> cost_model;
};

std::vector<Priced> priced_models() {
  std::vector<Priced> all;
  all.push_back({"roofline", roofline("llama-3.1-8b")});
  all.push_back({"roofline with windows", roofline("gemma-3-1b")});
  all.push_back({"padded roofline", roofline("llama-3.1-8b", Batching::Padded)});
  all.push_back({"padded roofline with windows", roofline("gemma-3-1b", Batching::Padded)});
  all.push_back({"fitted", fitted("llama-3.1-8b")});
  all.push_back({"fitted with windows", fitted("gemma-3-1b")});
  all.push_back({"operators", operators(0)});
  all.push_back({"operators with windows", operators(512)});
  all.push_back({"profile", profile(false)});
  all.push_back({"profile with unequal lengths", profile(true)});
  all.push_back({"corrected",
                 std::make_unique<CorrectedCostModel>(roofline("llama-3.1-8b"), unit_factors())});
  all.push_back({"with noise", std::make_unique<NoisyCostModel>(fitted("llama-3.1-8b"),
                                                                scattered_model().scatter, 7)});
  return all;
}

void check_equal(CostModel& cost_model, const Pair& pair) {
  const StepCost run = cost_model.step_cost(pair.with_run);
  const StepCost listed = cost_model.step_cost(pair.listed);
  CHECK(run.total_ns == listed.total_ns);
  CHECK(run.linear_ns == listed.linear_ns);
  CHECK(run.attention_ns == listed.attention_ns);
  CHECK(run.comm_ns == listed.comm_ns);
  CHECK(run.overhead_ns == listed.overhead_ns);
  CHECK(run.decode_only_ns == listed.decode_only_ns);
  CHECK(run.decode_only_attention_ns == listed.decode_only_attention_ns);
  CHECK(run.is_extrapolated == listed.is_extrapolated);
  CHECK(cost_model.host_gap_ns(pair.with_run) == cost_model.host_gap_ns(pair.listed));
}

}  // namespace

TEST_CASE("a run of decodes costs what its decodes cost", "[sim][run]") {
  for (const Priced& priced : priced_models()) {
    for (std::uint64_t seed = 0; seed < 300; ++seed) {
      Rng rng(seed, "priced runs");
      const auto pair = draw_step(rng);
      INFO(priced.name << ", seed " << seed);
      check_equal(*priced.cost_model, *pair);
    }
  }
}

TEST_CASE("a replay finds a step by its run", "[sim][run]") {
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Rng rng(seed, "replayed runs");
    const auto pair = draw_step(rng);
    const auto other = draw_step(rng);
    INFO("seed " << seed);
    CHECK(step_composition(pair->with_run) == step_composition(pair->listed));
    const std::vector<RecordedStep> steps = {
        {step_composition(other->listed), 900'000, 2'000, false, kNoTime},
        {step_composition(pair->listed), 300'000, 1'000, false, kNoTime}};
    ReplayCostModel replay(steps, fitted("llama-3.1-8b"), false);
    CHECK(replay.step_cost(pair->with_run).total_ns == 300'000);
    check_equal(replay, *pair);
  }
}

}  // namespace metronome::testing::TEST_FILE
