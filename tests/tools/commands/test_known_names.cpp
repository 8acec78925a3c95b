// SPDX-License-Identifier: Apache-2.0
// Runs on GPUs and models under the names that people type.
#include <string>

#include "tests/catch.h"
#include "tests/command_line.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::contains;

constexpr const char* kScenario = R"(model: llama-3.1-8b
hardware: gb10
engine: {max_model_len: 8192}
scheduler: {policy: vllm}
workload:
  num_requests: 5
  arrivals: {process: poisson, rate: 1}
  prompt_tokens: {distribution: fixed, value: 500}
  output_tokens: {distribution: fixed, value: 50}
)";

TEST_CASE("a run takes GPUs and models as people name them", "[cli]") {
  const testing::ScratchFolder folder;
  const std::string scenario = folder.write("scenario.yaml", kScenario);
  const auto run = [&](const std::string& settings) {
    return testing::run_metronome("run '" + scenario + "' " + settings + " --out '" +
                                  folder.path() + "/out'");
  };
  CHECK(run("-q").exit_code == 0);
  for (const char* gpu : {"rtx-3090", "h100-pcie", "h100-nvl", "a6000", "l40", "v100", "mi350x",
                          "'NVIDIA GeForce RTX 4090'"}) {
    const testing::CommandResult result = run("-q --set hardware=" + std::string(gpu));
    INFO(gpu << ": " << result.err);
    CHECK(result.exit_code == 0);
  }
  for (const char* model :
       {"Qwen/Qwen3-VL-8B-Thinking", "Qwen/Qwen3-30B-A3B-Instruct-2507-FP8",
        "nvidia/Llama-3.3-70B-Instruct-FP8", "google/gemma-3-27b-it", "Qwen/Qwen3.5-4B"}) {
    const testing::CommandResult result =
        run("-q --set hardware=h200 --set model=" + std::string(model));
    INFO(model << ": " << result.err);
    CHECK(result.exit_code == 0);
  }
  const testing::CommandResult named =
      run("--set hardware=h200 --set model=nvidia/Llama-3.3-70B-Instruct-FP8");
  INFO(named.out);
  CHECK(contains(named.out, "quantization=fp8"));
}

TEST_CASE("an unknown GPU gets no wrong neighbour, but the way to describe it", "[cli]") {
  const testing::ScratchFolder folder;
  const std::string scenario = folder.write("scenario.yaml", kScenario);
  for (const char* gpu : {"h30", "gb11", "v200", "rtx-6000", "t5"}) {
    const testing::CommandResult result =
        testing::run_metronome("run '" + scenario + "' --set hardware=" + gpu);
    INFO(gpu << ": " << result.err);
    CHECK(result.exit_code == 2);
    CHECK_FALSE(contains(result.err, "did you mean"));
    CHECK(contains(result.err, "peak_flops, peak_bandwidth, memory_bytes"));
    CHECK(contains(result.err, "docs/guide/gpu_file.md"));
  }
}

TEST_CASE("a run on an unknown architecture warns", "[cli]") {
  const testing::ScratchFolder folder;
  const std::string scenario = folder.write("scenario.yaml", kScenario);
  folder.write("other/config.json", R"({"architectures": ["OtherForCausalLM"],
    "hidden_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 16,
    "num_key_value_heads": 4, "intermediate_size": 8192, "vocab_size": 32000,
    "max_position_embeddings": 8192})");
  const std::string model = " --set model='" + folder.path() + "/other'";
  const testing::CommandResult simulated = testing::run_metronome(
      "run '" + scenario + "'" + model + " --out '" + folder.path() + "/out'");
  INFO(simulated.out << simulated.err);
  CHECK(simulated.exit_code == 0);
  CHECK(contains(simulated.out, "OtherForCausalLM has no row in the list of families"));
  const testing::CommandResult computed =
      testing::run_metronome("run '" + scenario + "' --backend=cpu" + model);
  CHECK(computed.exit_code == 2);
  CHECK(contains(computed.err, "OtherForCausalLM"));
}

}  // namespace
}  // namespace metronome::TEST_FILE
