// SPDX-License-Identifier: Apache-2.0
// Short ways to name a scenario and its parts.
#include <filesystem>

#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"

namespace metronome::testing::TEST_FILE {
namespace {

TEST_CASE("a number is short for a fixed length", "[core][config]") {
  const ScenarioFile file = parse_scenario(
      "model: tiny-llama\nhardware: h200\n"
      "workload: {num_requests: 4, arrivals: {rate: 1}, prompt_tokens: 512,\n"
      "  output_tokens: {distribution: lognormal, median: 8, p99: 20}}\n",
      "s.yaml", {"workload.output_tokens=7"});
  const WorkloadConfig& config = file.variants.front().workload;
  CHECK(config.prompt_tokens.value == 512);
  CHECK(config.output_tokens.value == 7);
  const auto error = [](const std::string& length) {
    return error_of([&length] {
      parse_scenario(
          "model: tiny-llama\nhardware: h200\n"
          "workload: {num_requests: 4, arrivals: {rate: 1}, prompt_tokens: " +
              length + ", output_tokens: 7}\n",
          "s.yaml", {});
    });
  };
  const std::string where = "s.yaml:3: workload.prompt_tokens.value: ";
  CHECK(error("0").starts_with(where + "0 is out of range; allowed: 1 "));
  CHECK(error("-4").starts_with(where + "-4 is out of range; allowed: 1 "));
  for (const char* length : {"null", "~", "abc", "1.5", "'512'", "lognormal"}) {
    INFO(length);
    CHECK(error(length).starts_with(where + "must be an integer, got "));
  }
}

TEST_CASE("a shape stands in the place of a model's file", "[core][config]") {
  const std::string workload =
      "hardware: h200\nworkload: {num_requests: 4, arrivals: {rate: 1}, prompt_tokens: 512,\n"
      "  output_tokens: 7}\n";
  const std::string shape =
      "shape: {hidden_size: 256, num_hidden_layers: 4, num_attention_heads: 4, vocab_size: 1000,\n"
      "  num_key_value_heads: 2, intermediate_size: 512, max_position_embeddings: 4096}\n";
  const auto model_of = [&](const std::string& text, const std::vector<std::string>& settings) {
    const ScenarioFile file = parse_scenario(text + workload, "s.yaml", settings);
    return simulated_model(file.variants.front());
  };
  const ModelConfig named = model_of("model: mine\n" + shape, {});
  CHECK(named.name == "mine");
  CHECK(named.approximation.empty());
  CHECK(named.kv_bytes_per_token() == 4 * 2 * 2 * 64 * 2);
  // Q and O of 256 x 256, K and V of 256 x 128, three matrices of an MLP, two norms; two tables and
  // the last norm.
  CHECK(named.n_params() ==
        4 * (2 * 256 * 256 + 2 * 256 * 128 + 3 * 256 * 512 + 2 * 256) + 2 * 256 * 1000 + 256);
  CHECK(model_of(shape, {}).name == "shape");
  CHECK(model_of(shape, {"shape.num_hidden_layers=8"}).n_layers == 8);

  // The resolved scenario is one.
  const ScenarioFile file = parse_scenario(shape + workload, "s.yaml", {});
  const ScenarioFile again = parse_scenario(file.variants.front().to_yaml(), "again.yaml", {});
  CHECK(again.variants.front().model == file.variants.front().model);

  CHECK(error_of([&] { model_of("shape: big\n", {}); }) ==
        "s.yaml:1: shape: must be a mapping, not 'big'; allowed: the keys of a model's "
        "config.json, such as hidden_size");
  CHECK(error_of([&] {
          model_of("shape: {hidden_size: 256}\n", {});
        }).starts_with("s.yaml:1: shape: num_hidden_layers: "));
}

TEST_CASE("every built-in scenario is one, and needs no file", "[core][scenario]") {
  CHECK(built_in_scenarios().size() > 10);
  CHECK(find_built_in_scenario("azure_conversation") == nullptr);  // reads a trace
  for (const BuiltInScenario& known : built_in_scenarios()) {
    INFO(known.name);
    const ScenarioFile file = load_scenario(std::string(known.name), {}, std::nullopt);
    CHECK_FALSE(file.variants.empty());
    CHECK(file.variants.front().workload.trace.file.empty());
  }
}

TEST_CASE("a file hides the built-in scenario of its name, a folder does not", "[core][scenario]") {
  const ScratchFolder scratch;
  const auto described = [&] {
    return run_metronome("workload quickstart", "cd '" + scratch.path() + "' &&");
  };
  REQUIRE(described().exit_code == 0);
  std::filesystem::create_directories(scratch.path() + "/quickstart");
  const CommandResult beside_folder = described();
  INFO(beside_folder.err);
  CHECK(beside_folder.exit_code == 0);
  std::filesystem::remove(scratch.path() + "/quickstart");
  scratch.write("quickstart", "model: [");
  CHECK(contains(described().err, "quickstart:1: malformed YAML"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
