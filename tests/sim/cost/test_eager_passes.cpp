// SPDX-License-Identifier: Apache-2.0
// The host's part of passes that no CUDA graph launches.
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "sim/cost/eager_passes.h"
#include "sim/simulation.h"
#include "tests/catch.h"
#include "tests/pass_plans.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

// Kernels of 10 us a token and 1 us for each decode alone.
class TokenCosts final : public CostModel {
 public:
  StepCost step_cost(const StepPlan& plan) override {
    StepCost cost;
    cost.linear_ns = 10'000 * plan.num_prefill_tokens + 1'000 * plan.num_decode_tokens;
    cost.total_ns = cost.linear_ns;
    cost.decode_only_ns = 1'000 * plan.num_decode_tokens;
    return cost;
  }
  TimeNs host_gap_ns(const StepPlan&) const override { return 7; }
  std::int64_t kv_capacity_blocks(std::int64_t block_tokens) const override {
    return 1000 / block_tokens;
  }
};

// 20 layers of 100 us: a pass takes 2 ms, if it is not one of 8 decodes or 16 tokens with prompts.
EagerPasses eager(std::int64_t max_prompt_graph_tokens = 16) {
  return {std::make_unique<TokenCosts>(), {100, 8, max_prompt_graph_tokens}, 20};
}

StepPlan step_of(std::int32_t num_prompt_tokens, std::int32_t num_decodes) {
  std::vector<ScheduledChunk> chunks(static_cast<std::size_t>(num_decodes), decode(100));
  if (num_prompt_tokens > 0) chunks.push_back(prefill(0, num_prompt_tokens));
  StepPlan plan = one_pass(std::move(chunks));
  plan.num_prefill_tokens = num_prompt_tokens;
  plan.num_decode_tokens = num_decodes;
  return plan;
}

// Decodes, then prompts, each in a pass.
StepPlan two_passes(std::int32_t num_prompt_tokens, std::int32_t num_decodes) {
  StepPlan plan = step_of(num_prompt_tokens, num_decodes);
  plan.passes = {{0, num_decodes}, {num_decodes, num_decodes + 1}};
  return plan;
}

void check_cost(const StepCost& cost, TimeNs total_ns, TimeNs overhead_ns, TimeNs decode_only_ns) {
  CHECK(cost.total_ns == total_ns);
  CHECK(cost.overhead_ns == overhead_ns);
  CHECK(cost.linear_ns + cost.overhead_ns == cost.total_ns);
  CHECK(cost.decode_only_ns == decode_only_ns);
}

// A scenario with these lines, too.
Scenario scenario_of(const std::string& lines) {
  const ScratchFolder folder;
  const std::string path = folder.write("s.yaml",
                                        "model: llama-3.1-8b\nhardware: h200\n"
                                        "workload:\n  num_requests: 1\n"
                                        "  arrivals: {process: poisson, rate: 1}\n"
                                        "  prompt_tokens: {distribution: fixed, value: 100}\n"
                                        "  output_tokens: {distribution: fixed, value: 10}\n" +
                                            lines);
  return load_scenario(path, {}, std::nullopt).variants.back();
}

// Milliseconds of a step of such a scenario.
double step_ms(const std::string& lines, const StepPlan& plan) {
  return to_ms(prepare_simulation(scenario_of(lines)).cost_model->step_cost(plan).total_ns);
}

}  // namespace

TEST_CASE("passes in graphs take what their kernels take", "[eager]") {
  EagerPasses model = eager();
  check_cost(model.step_cost(step_of(0, 8)), 8'000, 0, 8'000);
  check_cost(model.step_cost(step_of(10, 6)), 106'000, 0, 6'000);
  check_cost(model.step_cost(step_of(16, 0)), 160'000, 0, 0);
  check_cost(model.step_cost(two_passes(16, 8)), 168'000, 0, 8'000);
}

TEST_CASE("other passes take no less than their launches", "[eager]") {
  EagerPasses model = eager();
  check_cost(model.step_cost(step_of(0, 9)), 2'000'000, 1'991'000, 2'000'000);
  check_cost(model.step_cost(step_of(17, 0)), 2'000'000, 1'830'000, 0);
  // The decodes alone would be a graph; then not even they would.
  check_cost(model.step_cost(step_of(10, 7)), 2'000'000, 1'893'000, 7'000);
  check_cost(model.step_cost(step_of(10, 9)), 2'000'000, 1'891'000, 2'000'000);
  // The device is slower than the host.
  check_cost(model.step_cost(step_of(200, 0)), 2'000'000, 0, 0);
  check_cost(model.step_cost(step_of(300, 4)), 3'004'000, 0, 4'000);
  check_cost(model.step_cost(step_of(300, 9)), 3'009'000, 0, 2'000'000);
}

TEST_CASE("each pass of a step has launches of its own", "[eager]") {
  EagerPasses model = eager();
  check_cost(model.step_cost(two_passes(17, 8)), 2'008'000, 1'830'000, 8'000);
  check_cost(model.step_cost(two_passes(16, 9)), 2'160'000, 1'991'000, 2'000'000);
  check_cost(model.step_cost(two_passes(17, 9)), 4'000'000, 3'821'000, 2'000'000);
  check_cost(model.step_cost(two_passes(300, 9)), 5'000'000, 1'991'000, 2'000'000);
}

TEST_CASE("factors multiply decodes and prompts before launches count", "[eager]") {
  const EagerPasses::Launches launches = {.us_per_layer = 100,
                                          .max_graph_tokens = 8,
                                          .max_prompt_graph_tokens = 16,
                                          .step_factor = 2,
                                          .prompt_factor = 3};
  EagerPasses model(std::make_unique<TokenCosts>(), launches, 20);
  check_cost(model.step_cost(step_of(0, 8)), 16'000, 8'000, 16'000);
  check_cost(model.step_cost(step_of(10, 6)), 612'000, 506'000, 12'000);
  check_cost(model.step_cost(step_of(17, 0)), 2'000'000, 1'830'000, 0);
  check_cost(model.step_cost(step_of(200, 0)), 12'000'000, 10'000'000, 0);
}

TEST_CASE("gaps and capacity are those of the kernels' model", "[eager]") {
  const EagerPasses model = eager();
  CHECK(model.host_gap_ns({}) == 7);
  CHECK(model.kv_capacity_blocks(10) == 100);
}

TEST_CASE("launches of a layer follow the engine and its kind", "[eager]") {
  const auto us = [](const std::string& policy, const std::string& model, int gpus) {
    const std::string lines =
        "scheduler: {policy: " + policy +
        "}\ncost_model: {max_graph_tokens: 0, tensor_parallel_size: " + std::to_string(gpus) +
        "}\nvariants: [{name: one, model: " + model + "}]\n";
    const auto layers = static_cast<double>(find_model(model, {}).n_layers);
    return std::round(1000 * step_ms(lines, step_of(1, 0)) / layers);
  };
  CHECK(us("vllm", "llama-3.1-8b", 1) == 300);
  CHECK(us("vllm", "llama-3.1-8b", 2) == 600);
  CHECK(us("vllm", "qwen3-30b-a3b", 1) == 1150);
  CHECK(us("vllm", "qwen3-30b-a3b", 4) == 1150);
  CHECK(us("vllm", "deepseek-v3", 8) == 1700);        // latent attention
  CHECK(us("vllm", "qwen3.5-397b-a17b", 8) == 1700);  // linear attention
  CHECK(us("vllm", "qwen3.5-9b", 1) == 850);
  CHECK(us("token_budget", "qwen3-30b-a3b", 1) == 1150);
  CHECK(us("sglang", "llama-3.1-8b", 2) == 600);
  CHECK(us("sglang", "deepseek-v3", 8) == 2200);
  CHECK(us("tensorrt_llm", "llama-3.1-8b", 2) == 500);
  CHECK(us("tensorrt_llm", "qwen3-30b-a3b", 1) == 700);
  CHECK(us("tensorrt_llm", "deepseek-v3", 8) == 2300);
}

TEST_CASE("engines launch prompts as they do", "[eager]") {
  // 100 tokens take the kernels 5.7 ms; without a graph 32 layers take 9.6 ms.
  const StepPlan prompt = step_of(100, 0);
  const StepPlan decodes = step_of(0, 33);
  const auto eager_ms = Approx(9.6).epsilon(1e-9);
  const std::string few = "engine: {max_num_seqs: 16}\n";  // graphs of 32 tokens
  for (const char* policy : {"vllm", "token_budget", "sarathi"}) {
    INFO(policy);
    const std::string scheduler = std::string("scheduler: {policy: ") + policy + "}\n";
    const std::string graphs = scheduler + few + "cost_model: {max_graph_tokens: ";
    CHECK(step_ms(graphs + "32}\n", prompt) == eager_ms);
    CHECK(step_ms(graphs + "32}\n", decodes) == eager_ms);
    CHECK(step_ms(graphs + "100}\n", prompt) < 6);
    CHECK(step_ms(graphs + "100, max_prompt_graph_tokens: 99}\n", prompt) == eager_ms);
    CHECK(step_ms(graphs + "32, eager_us_per_layer: 1000}\n", prompt) == Approx(32));
    CHECK(step_ms(graphs + "32, eager_us_per_layer: 0}\n", prompt) < 6);
  }
  const std::string own = few + "cost_model: {max_graph_tokens: 32}\n";
  CHECK(step_ms("scheduler: {policy: sglang}\n" + own, prompt) < 6);
  CHECK(step_ms("scheduler: {policy: sglang}\n" + own, decodes) == eager_ms);
  CHECK(step_ms("scheduler: {policy: sglang}\ncost_model: {max_graph_tokens: 0}\n", prompt) ==
        eager_ms);
  CHECK(
      step_ms("scheduler: {policy: tensorrt_llm}\n" + few + "cost_model: {max_graph_tokens: 512}\n",
              prompt) == eager_ms);
  CHECK(step_ms("scheduler: {policy: llama_cpp}\n" + own, prompt) < 6);
}

TEST_CASE("TensorRT-LLM has graphs of up to 128 requests, if it is not told otherwise", "[eager]") {
  const std::string policy = "scheduler: {policy: tensorrt_llm}\n";
  // 32 layers of 300 us, where the kernels of so many decodes take less.
  CHECK(step_ms(policy, step_of(0, 128)) < 9);
  CHECK(step_ms(policy, step_of(0, 129)) == Approx(9.6));
  CHECK(step_ms(policy + "cost_model: {max_graph_tokens: 256}\n", step_of(0, 129)) < 9);
  CHECK(step_ms(policy + "engine: {max_num_seqs: 64}\n", step_of(0, 64)) < 9);
  CHECK(step_ms(policy + "engine: {max_num_seqs: 64}\n", step_of(0, 65)) == Approx(9.6));
  CHECK(step_ms("scheduler: {policy: vllm}\n", step_of(0, 129)) < 9);
}

TEST_CASE("SGLang launches DeepSeek-V3 on Blackwell kernel by kernel", "[eager]") {
  const auto ms = [](const char* gpu) {
    return step_ms(
        "scheduler: {policy: sglang}\ncost_model: {tensor_parallel_size: 8}\n"
        "variants: [{name: one, model: deepseek-v3, hardware: " +
            std::string(gpu) + "}]\n",
        step_of(100, 0));
  };
  CHECK(ms("b200") == Approx(61 * 2.2));
  CHECK(ms("h200") < 60);
}

TEST_CASE("SGLang launches models with a vision tower kernel by kernel, but Qwen3.5", "[eager]") {
  const auto ms = [](const std::string& model) {
    return step_ms("scheduler: {policy: sglang}\nvariants:\n  - name: one\n    model: " + model +
                       "\n    kv_cache: {enable_prefix_caching: false}\n",
                   step_of(100, 0));
  };
  CHECK(ms("qwen3-vl-8b") == Approx(36 * 0.3));
  CHECK(ms("qwen3.5-9b") < 10);
}

TEST_CASE("another policy keeps the host and its graphs", "[eager]") {
  const HostSettings host =
      host_settings(scenario_of("scheduler: {policy: token_budget}\nengine: {max_num_seqs: 64}\n"
                                "variants: [{name: one, model: qwen3-30b-a3b}]\n"));
  using Settings = std::vector<Setting>;
  CHECK(host.times == Settings{{"cost_model.host_gap_us", 400.0},
                               {"cost_model.host_gap_us_per_request", 0.0},
                               {"cost_model.eager_us_per_layer", 1150.0},
                               {"cost_model.fuses_conversions", false}});
  CHECK(host.graphs == Settings{{"cost_model.max_graph_tokens", 128},
                                {"cost_model.max_prompt_graph_tokens", 128}});
  const HostSettings tensorrt_llm =
      host_settings(scenario_of("scheduler: {policy: tensorrt_llm}\n"));
  CHECK(tensorrt_llm.times.back() == Setting{"cost_model.fuses_conversions", true});
  CHECK(tensorrt_llm.graphs.front() == Setting{"cost_model.max_graph_tokens", 128});
}

}  // namespace metronome::testing::TEST_FILE
