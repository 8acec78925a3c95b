// SPDX-License-Identifier: Apache-2.0
// Recipes of engines: releases by name, and the settings of servers that were measured.
#include <algorithm>
#include <fstream>
#include <string>
#include <vector>

#include "core/base/json.h"
#include "core/scenario/scenario.h"
#include "core/scenario/serving_recipe.h"
#include "engines/recipes/public_sweep.h"
#include "engines/vllm/recipe.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace metronome::testing::TEST_FILE {
namespace {

RecipeContext context_of(const Scenario& scenario, const std::string& model,
                         const std::string& version) {
  const auto source = scenario.source;
  return {.is_given = [source](std::string_view key) { return source->find_path(key) != nullptr; },
          .model = model,
          .version = version};
}

Scenario scenario_of(const std::string& text) {
  return parse_scenario(text, "line", {}).variants.front();
}

// The scenario with its recipe.
Scenario with_recipe(const std::string& text, const std::string& model,
                     const std::string& version) {
  const Scenario scenario = scenario_of(text);
  std::vector<std::string> assignments;
  for (const ServeDefault& step : serving_recipe(scenario, context_of(scenario, model, version))) {
    CHECK_FALSE(step.reason.empty());
    assignments.push_back(step.key + "=" + step.value);
  }
  return parse_scenario(text, "line", assignments).variants.front();
}

std::string benchmark(const std::string& lines,
                      const std::string& arrivals = "{process: closed_loop, concurrency: 24}") {
  return "workload:\n  num_requests: 20\n  arrivals: " + arrivals +
         "\n  prompt_tokens: 1000\n  output_tokens: 500\n" + lines;
}

}  // namespace

TEST_CASE("releases are read as engines name them", "[engines][recipe]") {
  CHECK(engine_version("0.17.0") == EngineVersion{0, 17, 0});
  CHECK(engine_version("v0.5.10.post1") == EngineVersion{0, 5, 10});
  CHECK(engine_version("1.2.0rc6.post3") == EngineVersion{1, 2, 0});
  CHECK(engine_version("0.33") == EngineVersion{0, 33, 0});
  CHECK_FALSE(engine_version(""));
  CHECK_FALSE(engine_version("nightly-dev-20260402"));
  CHECK(is_before("0.9.2", {0, 14, 0}));
  CHECK_FALSE(is_before("0.14.0", {0, 14, 0}));
  CHECK_FALSE(is_before("nightly", {0, 14, 0}));
}

TEST_CASE("a release of vLLM has the nearest rules that are known", "[engines][recipe]") {
  CHECK(nearest_vllm_rules("0.11.2") == "0.19");
  CHECK(nearest_vllm_rules("0.22.1") == "0.22");
  CHECK(nearest_vllm_rules("0.40.0") == "0.33");
  CHECK(nearest_vllm_rules("1.0.0") == "0.33");
  CHECK(nearest_vllm_rules("") == "0.33");
}

TEST_CASE("models of the public sweep are known by name", "[engines][recipe]") {
  CHECK(sweep_model("deepseek-v3") == SweepModel::DeepSeekR1);
  CHECK(sweep_model("/models/nvidia--Kimi-K2.5-NVFP4") == SweepModel::KimiK2);
  CHECK(sweep_model("deepseek-r1-distill-llama-70b") == SweepModel::None);
  CHECK(sweep_model("llama-3.1-8b") == SweepModel::None);
}

// The settings with which these servers were compared with their measurements.
TEST_CASE("recipes give the settings of measured servers", "[engines][recipe]") {
  std::ifstream lines(source_dir() + "/tests/fixtures/measured_servers.jsonl");
  REQUIRE(lines);
  std::string line;
  while (std::getline(lines, line)) {
    const Json server = Json::parse(line);
    INFO(server.at("id").get<std::string>());
    const Scenario scenario =
        with_recipe(server.at("scenario").dump(), server.at("model").get<std::string>(),
                    server.at("version").get<std::string>());
    for (const Json::Member& expected : server.at("expect").items()) {
      INFO(expected.key);
      CHECK(scenario.value(expected.key) == expected.value);
    }
  }
}

TEST_CASE("a recipe leaves what the user gave", "[engines][recipe]") {
  const std::string given = benchmark(
      "model: llama-3.1-70b\nhardware: h200\nquantization: fp8\nengine: {max_num_seqs: 7}\n"
      "scheduler: {policy: vllm}\n");
  CHECK(with_recipe(given, "llama-3.1-70b", "").engine.max_num_seqs == 7);
}

TEST_CASE("planning ahead follows the release of vLLM, but in the public sweep",
          "[engines][recipe]") {
  const std::string own =
      benchmark("model: qwen3-32b\nhardware: h100-sxm\nscheduler: {policy: vllm}\n");
  CHECK(with_recipe(own, "Qwen/Qwen3-32B", "0.12.0").engine.async_depth == 1);
  CHECK(with_recipe(own, "Qwen/Qwen3-32B", "0.14.0").engine.async_depth == 2);
  const std::string swept = benchmark(
      "model: llama-3.1-70b\nhardware: h200\nquantization: fp8\nscheduler: {policy: vllm}\n");
  CHECK(with_recipe(swept, "llama-3.1-70b", "0.11.0").engine.async_depth == 2);
}

TEST_CASE("without a closed loop there is no benchmark's client", "[engines][recipe]") {
  const Scenario scenario =
      scenario_of(benchmark("model: llama-3.1-70b\nhardware: h200\nscheduler: {policy: vllm}\n",
                            "{process: poisson, rate: 2}"));
  const std::vector<ServeDefault> steps =
      serving_recipe(scenario, context_of(scenario, "llama-3.1-70b", "0.19.0"));
  CHECK_FALSE(is_default_of(steps, "client.preset"));
  CHECK_FALSE(is_default_of(steps, "engine.max_num_seqs"));
  CHECK(is_default_of(steps, "scheduler.version"));
}

TEST_CASE("no script counts for a server with flags of its own", "[engines][recipe]") {
  for (const char* const policy : {"vllm", "sglang", "tensorrt_llm"}) {
    const Scenario scenario = scenario_of(
        benchmark("model: deepseek-v3\nhardware: b200\ncost_model: {tensor_parallel_size: 8}\n"
                  "scheduler: {policy: " +
                  std::string(policy) + "}\n"));
    RecipeContext context = context_of(scenario, "deepseek-ai/DeepSeek-R1", "");
    context.has_own_flags = true;
    const std::vector<ServeDefault> steps = serving_recipe(scenario, context);
    CHECK(is_default_of(steps, "client.preset"));
    for (const ServeDefault& step : steps) {  // defaults of the release alone
      CHECK((step.key != "engine.max_num_seqs" || step.value == "2048"));
    }
    CHECK_FALSE(is_default_of(steps, "cost_model.max_graph_tokens"));
  }
}

TEST_CASE("releases that launch or start kernels otherwise say so", "[engines][recipe]") {
  const auto cost_of = [](const std::string& policy, const std::string& model,
                          const std::string& gpu, const std::string& version) {
    return with_recipe(benchmark("model: " + model + "\nhardware: " + gpu +
                                 "\ncost_model: {tensor_parallel_size: 8}\nscheduler: {policy: " +
                                 policy + "}\n"),
                       model, version)
        .cost_model;
  };
  CHECK(cost_of("tensorrt_llm", "gpt-oss-120b", "h200", "1.1.0").eager_us_per_layer == 1800);
  CHECK_FALSE(cost_of("tensorrt_llm", "gpt-oss-120b", "b200", "1.2.0").eager_us_per_layer);
  CHECK(cost_of("vllm", "gpt-oss-120b", "h200", "0.18.0").expert_overhead_us == 18);
  CHECK_FALSE(cost_of("vllm", "minimax-m2.5", "h200", "0.18.0").expert_overhead_us);
  CHECK_FALSE(cost_of("vllm", "gpt-oss-120b", "rtx-4090", "0.18.0").expert_overhead_us);  // has 12
  const std::string qwen = "qwen3.5-397b-a17b\nquantization: fp8_block";
  CHECK(cost_of("sglang", qwen, "h200", "0.5.9").eager_us_per_layer == 4000);
  CHECK_FALSE(cost_of("sglang", qwen, "h200", "0.5.10").eager_us_per_layer);
}

TEST_CASE("checkpoints of NVIDIA ask for an fp8 cache", "[engines][recipe]") {
  const std::string given = benchmark(
      "model: llama-3.1-8b\nhardware: h200\nquantization: fp8\nscheduler: {policy: vllm}\n");
  CHECK(with_recipe(given, "nvidia/Llama-3.1-8B-Instruct-FP8", "0.12.0").kv_dtype == KvDtype::Fp8);
  CHECK(with_recipe(given, "RedHatAI/Llama-3.1-8B-Instruct-FP8", "0.12.0").kv_dtype ==
        KvDtype::Auto);
}

}  // namespace metronome::testing::TEST_FILE
