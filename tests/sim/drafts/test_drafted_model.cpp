// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/engine/decode_run.h"
#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "sim/drafts/drafted_model.h"
#include "sim/drafts/drafter.h"
#include "sim/roofline/roofline.h"
#include "sim/scenario_drafter.h"
#include "sim/simulation.h"
#include "tests/catch.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Costs 1 us a token, 10 us a row of logits and 1 ns a position of context, and keeps the plans.
class FakeModel final : public CostModel {
 public:
  explicit FakeModel(std::vector<StepPlan>& plans) : plans_(plans) {}

  StepCost step_cost(const StepPlan& plan) override {
    plans_.push_back(plan);
    const PassChunks pass = chunks_of(plan, plan.passes.front());
    StepCost cost;
    for (const ScheduledChunk& chunk : pass.chunks) {
      const TimeNs linear = 1'000 * chunk.num_tokens + 10'000 * pass.num_rows(chunk);
      const TimeNs attention = chunk.end_position();
      cost.linear_ns += linear;
      cost.attention_ns += attention;
      if (chunk.kind != ChunkKind::Decode) continue;
      cost.decode_only_ns += linear + attention;
      cost.decode_only_attention_ns += attention;
    }
    cost.total_ns = cost.linear_ns + cost.attention_ns;
    return cost;
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 5'000; }
  std::int64_t kv_capacity_blocks(std::int64_t) const override { return 1; }

 private:
  std::vector<StepPlan>& plans_;
};

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

ScheduledChunk decode(std::uint32_t id, std::int32_t first, std::int32_t num_drafts) {
  return {RequestId{id}, first, 1 + num_drafts, ChunkKind::Decode, true};
}
ScheduledChunk prompt(std::uint32_t id, std::int32_t first, std::int32_t n, bool samples) {
  return {RequestId{id}, first, n, ChunkKind::Prefill, samples};
}

StepPlan step(std::vector<ScheduledChunk> chunks, std::int32_t num_next_drafts) {
  StepPlan plan;
  plan.chunks = std::move(chunks);
  plan.passes = {{0, static_cast<std::int32_t>(plan.chunks.size())}};
  plan.num_next_drafts = num_next_drafts;
  for (const ScheduledChunk& chunk : plan.chunks) {
    (chunk.kind == ChunkKind::Decode ? plan.num_decode_tokens : plan.num_prefill_tokens) +=
        chunk.num_tokens;
  }
  return plan;
}

struct Fakes {
  std::vector<StepPlan> target;
  std::vector<StepPlan> drafter;

  DraftedCostModel model(std::int32_t num_more_tokens, TimeNs pass_overhead_ns = 0) {
    DraftedCostModel::Proposer proposer;
    proposer.cost_model = std::make_unique<FakeModel>(drafter);
    proposer.num_more_tokens = num_more_tokens;
    proposer.pass_overhead_ns = pass_overhead_ns;
    return {std::make_unique<FakeModel>(target), std::move(proposer), {}, {}, {}};
  }
};

TEST_CASE("a drafter computes the step's tokens, and then a token of each request",
          "[sim][drafts]") {
  Fakes fakes;
  DraftedCostModel model = fakes.model(0);
  const StepPlan plan = step({decode(1, 100, 3), prompt(2, 0, 50, true)}, 3);
  const StepCost cost = model.step_cost(plan);

  // The target: 54 tokens, 4 + 1 rows, contexts of 104 and 50.
  const TimeNs target_ns = 54'000 + 50'000 + 154;
  // First pass: the same tokens, a row each. Then twice a token of both requests, behind them.
  const TimeNs first_ns = 54'000 + 20'000 + 154;
  const TimeNs more_ns = 2'000 + 20'000 + 105 + 51 + (2'000 + 20'000 + 106 + 52);
  CHECK(cost.total_ns == target_ns + first_ns + more_ns);
  CHECK(cost.total_ns == cost.linear_ns + cost.attention_ns + cost.comm_ns + cost.overhead_ns);

  // Of the decode alone: 4 tokens and rows; without drafts 1 token and row.
  const TimeNs decode_ns = 4'000 + 40'000 + 104;
  const TimeNs drafting_ns = 4'000 + 10'000 + 104 + (11'000 + 105) + (11'000 + 106);
  CHECK(cost.decode_only_ns == decode_ns + drafting_ns);
  CHECK(cost.draft_ns == decode_ns - (1'000 + 10'000 + 101) + drafting_ns);
  CHECK(cost.decode_only_attention_ns == 104 + 104 + 105 + 106);

  REQUIRE(fakes.drafter.size() == 6);  // three over all, three over decodes
  CHECK(fakes.drafter[0].chunks.size() == 2);
  CHECK(fakes.drafter[2].chunks[1].first_position == 51);
  CHECK(fakes.drafter[2].num_decode_tokens == 2);
  CHECK(fakes.drafter[5].chunks.size() == 1);
}

TEST_CASE("the device waits for the host in each pass of the drafter", "[sim][drafts]") {
  Fakes fakes;
  const StepPlan plan = step({decode(1, 100, 3), prompt(2, 0, 50, true)}, 3);
  const StepCost graph = fakes.model(0).step_cost(plan);
  DraftedCostModel model = fakes.model(0, 700);
  const StepCost cost = model.step_cost(plan);
  CHECK(cost.total_ns == graph.total_ns + 3 * 700);
  CHECK(cost.overhead_ns == graph.overhead_ns + 3 * 700);
  CHECK(cost.draft_ns == graph.draft_ns + 3 * 700);
  // A step of prompts alone has the first pass only.
  const StepPlan prompts = step({prompt(2, 0, 50, false)}, 0);
  CHECK(model.step_cost(prompts).total_ns == fakes.model(0).step_cost(prompts).total_ns + 700);
}

TEST_CASE("a draft model computes the sampled tokens, too", "[sim][drafts]") {
  Fakes fakes;
  DraftedCostModel model = fakes.model(1);
  model.step_cost(step({decode(1, 100, 2), decode(2, 7, 2)}, 2));
  REQUIRE(fakes.drafter.size() == 2);  // decodes alone: priced once
  CHECK(fakes.drafter[0].num_decode_tokens == 8);
  CHECK(fakes.drafter[0].chunks[0].end_position() == 104);
  CHECK(fakes.drafter[1].chunks[0].first_position == 104);
  CHECK(fakes.drafter[1].num_decode_tokens == 2);
}

TEST_CASE("without use for drafts a drafter only fills its KV", "[sim][drafts]") {
  Fakes fakes;
  DraftedCostModel model = fakes.model(0);
  const StepCost cost = model.step_cost(step({prompt(2, 64, 50, false)}, 0));
  CHECK(cost.total_ns == 2 * (50'000 + 114));  // no row in either model
  CHECK(cost.decode_only_ns == 0);
  CHECK(cost.draft_ns == 0);
  REQUIRE(fakes.drafter.size() == 1);
}

TEST_CASE("lookups take host time for each token of the texts", "[sim][drafts]") {
  std::vector<StepPlan> plans;
  DraftedCostModel::Proposer proposer;
  proposer.lookup_us_per_kilotoken = 2;
  const DraftedCostModel model(std::make_unique<FakeModel>(plans), std::move(proposer), {}, {}, {});
  StepPlan plan =
      step({decode(1, 999, 3), decode(2, 499, 0), decode(3, 5'000, 3), prompt(4, 0, 700, true)}, 3);
  plan.admitted = {RequestId{3}, RequestId{4}};
  CHECK(model.host_gap_ns(plan) == 5'000 + 3'000);  // 1,500 tokens
  CHECK(model.kv_capacity_blocks(16) == 1);
}

// An H100 without overheads: bytes alone count at a batch of one.
HardwareSpec bare_hardware() {
  HardwareSpec hardware;
  hardware.name = "bare";
  hardware.peak_flops = 1e15;
  hardware.peak_bandwidth = 1e12;
  hardware.memory_bytes = 80'000'000'000;
  return hardware;
}

Scenario with_method(SpeculativeMethod method, const std::string& target) {
  Scenario scenario;
  scenario.model = target;
  scenario.speculative.method = method;
  return scenario;
}

// Bytes that the drafter reads in a step with one decode of three drafts at position 999, K = 3.
double drafting_bytes(const Scenario& scenario) {
  const ModelConfig target = find_model(scenario.model, {});
  const DrafterModel drafter = find_drafter(scenario, target).value();
  RooflineCostModel target_cost(target, bare_hardware(), {});
  DraftedCostModel model(
      std::make_unique<RooflineCostModel>(target, bare_hardware(), CostModelConfig{}),
      {.cost_model = std::make_unique<RooflineCostModel>(drafter.model, bare_hardware(),
                                                         CostModelConfig{}, drafter.input_params),
       .num_more_tokens = drafter.num_more_tokens,
       .memory = drafter.memory()},
      target, bare_hardware(), {});
  const StepPlan plan = step({decode(1, 999, 3)}, 3);
  return to_ms(model.step_cost(plan).total_ns - target_cost.step_cost(plan).total_ns) * 1e9;
}

TEST_CASE("bytes of each drafter by hand", "[sim][drafts]") {
  // Of Llama-3.1-8B: hidden size 4096, 32 heads, 8 KV heads of 128, MLP of 14336, 128256 tokens.
  const double layer = 2. * (4096 * 48 * 128 + 4096 * 4096 + 3 * 4096 * 14336);
  const double projection = 2. * 2 * 4096 * 4096;
  const double head = 2. * 128256 * 4096;
  const double norms = 2. * 3 * 4096;           // two of the layer, and the last
  const double rows = 2. * 4096 * (4 + 1 + 1);  // embeddings
  const double kv = 4096. * (1003 + 1004 + 1005);
  const double eagle = 3 * (layer + projection + head + norms) + rows + kv;
  CHECK(drafting_bytes(with_method(SpeculativeMethod::Eagle, "llama-3.1-8b")) ==
        Approx(eagle).epsilon(1e-5));
  CHECK(drafting_bytes(with_method(SpeculativeMethod::Mtp, "llama-3.1-8b")) ==
        Approx(eagle).epsilon(1e-5));

  // Llama-3.2-1B: hidden size 2048, 16 layers, 32 heads, 8 KV heads of 64, MLP of 8192.
  Scenario scenario = with_method(SpeculativeMethod::DraftModel, "llama-3.1-8b");
  scenario.speculative.model = "llama-3.2-1b";
  const double weights =
      2. * (16 * (2048. * 48 * 64 + 2048 * 2048 + 3 * 2048 * 8192) + 128256. * 2048 + 33 * 2048);
  const double small_kv = 16 * 2048. * (1004 + 1005 + 1006);
  CHECK(drafting_bytes(scenario) == Approx(3 * weights + 2. * 2048 * 7 + small_kv).epsilon(1e-5));
}

TEST_CASE("an mtp module has the target's experts, an eagle layer is dense", "[sim][drafts]") {
  const ModelConfig target = find_model("qwen3-30b-a3b", {});
  const auto of = [&](SpeculativeMethod method) {
    return find_drafter(with_method(method, "qwen3-30b-a3b"), target).value();
  };
  const DrafterModel mtp = of(SpeculativeMethod::Mtp);
  CHECK(mtp.model.n_layers == 1);
  CHECK(mtp.model.n_moe_layers() == 1);
  CHECK(mtp.model.n_experts == target.n_experts);
  const DrafterModel eagle = of(SpeculativeMethod::Eagle);
  CHECK(eagle.model.n_experts == 0);
  CHECK(eagle.model.ffn_dim >= target.n_experts_per_token * target.expert_ffn_dim);
  CHECK_FALSE(find_drafter(with_method(SpeculativeMethod::Ngram, "qwen3-30b-a3b"), target));
  CHECK_FALSE(find_drafter(with_method(SpeculativeMethod::None, "qwen3-30b-a3b"), target));
}

TEST_CASE("drafters take memory: weights, and KV in every block", "[sim][drafts]") {
  const ModelConfig target = find_model("llama-3.1-8b", {});
  const HardwareSpec hardware = bare_hardware();
  CostModelConfig config;
  config.gpu_memory_utilization = 0.9;
  const double usable = 0.9 * 80e9 - 2e9 - 2. * 8'030'261'248;
  CHECK(kv_capacity_blocks(target, hardware, config, 16) ==
        static_cast<std::int64_t>(usable / (16 * 131072)));

  const DrafterModel eagle =
      find_drafter(with_method(SpeculativeMethod::Eagle, "llama-3.1-8b"), target).value();
  const double eagle_weights = 2. * (218'103'808 + 33'554'432 + 3 * 4096);
  CHECK(eagle.memory().weight_bytes == eagle_weights);
  CHECK(eagle.memory().kv_bytes_per_token == 4096);
  CHECK(kv_capacity_blocks(target, hardware, config, 16, eagle.memory()) ==
        static_cast<std::int64_t>((usable - eagle_weights) / (16 * (131072 + 4096))));

  Scenario scenario = with_method(SpeculativeMethod::DraftModel, "llama-3.1-8b");
  scenario.speculative.model = "llama-3.2-1b";
  const DraftMemory small = find_drafter(scenario, target).value().memory();
  CHECK(small.weight_bytes == 2. * 1'235'814'400);
  CHECK(small.kv_bytes_per_token == 16 * 2048);
  scenario.cost_model.tensor_parallel_size = 4;
  CHECK(find_drafter(scenario, target).value().memory().weight_bytes == 0.5 * 1'235'814'400);
  scenario.speculative.draft_tensor_parallel_size = 1;
  CHECK(find_drafter(scenario, target).value().memory().weight_bytes == 2. * 1'235'814'400);

  HardwareSpec tiny = hardware;
  tiny.memory_bytes = 21'000'000'000;
  CHECK(kv_capacity_blocks(target, tiny, config, 16) > 0);
  std::string message;
  try {
    kv_capacity_blocks(target, tiny, config, 16, small);
  } catch (const UnplacedConfigError& error) {
    message = error.what();
  }
  CHECK(contains(
      message,
      "16.1 GB of weights, 2.5 GB of llama-3.2-1b, and 2.0 GB for activations and the engine, "
      "leave no KV block"));
}

Scenario scenario_of(const std::string& speculative, const std::string& rest) {
  const std::string text =
      "model: llama-3.1-8b\nscheduler: {policy: vllm}\n"
      "engine: {max_model_len: 8192, async_depth: 1}\n"
      "workload:\n  num_requests: 8\n  arrivals: {process: burst}\n"
      "  prompt_tokens: {distribution: fixed, value: 100}\n"
      "  output_tokens: {distribution: fixed, value: 40}\n"
      "speculative: " +
      speculative + "\n" + rest + "\n";
  return parse_scenario(text, "drafts.yaml", {}).variants.front();
}

std::string error_of(const std::string& speculative, const std::string& rest) {
  try {
    prepare_simulation(scenario_of(speculative, rest));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "none";
}

TEST_CASE("mistakes in drafters are one line", "[sim][drafts]") {
  const std::string h100 = "hardware: h100-sxm";
  CHECK(error_of("{method: draft_model, model: llama-3.2-1b}", h100) == "none");
  const std::string vocabulary = error_of("{method: draft_model, model: qwen3-0.6b}", h100);
  INFO(vocabulary);
  CHECK(contains(vocabulary,
                 "drafts.yaml:9: speculative.model: qwen3-0.6b has a vocabulary of 151936 tokens, "
                 "and llama-3.1-8b one of 128256; allowed: a model with the same vocabulary"));
  const std::string size = error_of("{method: eagle, draft_tensor_parallel_size: 3}", h100);
  INFO(size);
  CHECK(contains(size,
                 "speculative.draft_tensor_parallel_size: 3 is neither 1 nor "
                 "cost_model.tensor_parallel_size; allowed: 1, or null"));
  const std::string file = error_of("{method: eagle, cost_file: nowhere}", h100);
  INFO(file);
  CHECK(contains(file, "drafts.yaml:9: speculative.cost_file: "));
}

TEST_CASE("recorded steps had no drafts", "[sim][drafts]") {
  const ScratchFolder folder;
  const std::string path =
      folder.write("replay.json",
                   R"({"metronome_cost_model": 1, "kind": "replay", "hardware": "h100-sxm",
          "model": "llama-3.1-8b", "tensor_parallel_size": 1, "engine": "", "source": "",
          "body": {}})");
  const std::string target = error_of("{method: eagle}", "cost_model: {file: " + path + "}");
  INFO(target);
  CHECK(contains(target, "cost_model.file: "));
  CHECK(contains(target,
                 "replay.json replays the steps of a run, which had no drafts; allowed: "
                 "another kind of cost model, or speculative.method none"));
  const std::string drafter =
      error_of("{method: eagle, cost_file: " + path + "}", "hardware: h100-sxm");
  INFO(drafter);
  CHECK(contains(drafter, "speculative.cost_file: "));
  CHECK(contains(drafter,
                 "replay.json replays the steps of a run, which a drafter does not "
                 "repeat; allowed: another kind of cost model"));
}

TEST_CASE("a simulation prices its drafter", "[sim][drafts]") {
  const std::string h100 = "hardware: h100-sxm";
  const StepPlan plan = step({decode(1, 500, 3), decode(2, 500, 3)}, 3);
  const auto cost_of = [&](const std::string& speculative) {
    Simulation simulation = prepare_simulation(scenario_of(speculative, h100));
    return simulation.cost_model->step_cost(plan);
  };
  const TimeNs verification_ns = cost_of("{method: ngram}").total_ns;
  const TimeNs eagle_ns = cost_of("{method: eagle}").total_ns;
  const TimeNs small_ns = cost_of("{method: draft_model, model: llama-3.2-1b}").total_ns;
  CHECK(verification_ns < eagle_ns);
  CHECK(eagle_ns < small_ns);
  CHECK(cost_of("{method: eagle, num_speculative_tokens: 0}").total_ns == verification_ns);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
