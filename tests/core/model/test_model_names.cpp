// SPDX-License-Identifier: Apache-2.0
// Models under the names that people type.
#include <optional>
#include <set>
#include <string>

#include "core/model/model_catalogue.h"
#include "core/scenario/scenario.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/scratch_folder.h"

namespace metronome::TEST_FILE {
namespace {

using testing::contains;
using testing::error_of;

struct Named {
  const char* name;
  const char* model;
  std::optional<WeightFormat> format = {};
};

constexpr auto kFp8 = WeightFormat::Fp8;
constexpr auto kBlocks = WeightFormat::Fp8Block;
constexpr auto kInt4 = WeightFormat::Int4;
constexpr auto kNvfp4 = WeightFormat::Nvfp4;

constexpr Named kKnown[] = {
    {"qwen3-8b", "qwen3-8b"},
    {"Qwen3-8B", "qwen3-8b"},
    {"qwen3_8b", "qwen3-8b"},
    {"Qwen/Qwen3-8B", "qwen3-8b"},
    {"qwen/qwen3-8b", "qwen3-8b"},
    {"Qwen/Qwen3-8B-Base", "qwen3-8b-base"},
    {"Llama3.1:8b", "llama-3.1-8b"},
    {"llama-3.3-70b", "llama-3.1-70b"},
    {"llama-3.3-70b-instruct", "llama-3.1-70b"},
    {"unsloth/Llama-3.3-70B-Instruct", "llama-3.1-70b"},
    {"unsloth/gemma-3-27b-it", "gemma-3-27b"},
    {"google/gemma-3-27b-it", "gemma-3-27b"},
    {"gemma-3-27b", "gemma-3-27b"},
    {"Qwen/Qwen3-VL-8B-Thinking", "qwen3-vl-8b"},
    {"qwen3-vl-8b-thinking", "qwen3-vl-8b"},
    {"Qwen/Qwen3.5-4B", "qwen3.5-4b"},
    {"Qwen3.6-35B-A3B", "qwen3.5-35b-a3b"},
    {"Qwen3.8-27B", "qwen3.5-27b"},
    {"Kimi-K2.7", "kimi-k2.5"},
    {"moonshotai/Kimi-K2-Thinking", "kimi-k2.5"},
    {"MiniMax-M2.7", "minimax-m2.7"},
    {"GLM-5.3", "glm-5.3"},
    {"gemma-4-26b-a4b", "gemma-4-26b-a4b"},
    {"deepseek-r1", "deepseek-v3"},
    {"deepseek-ai/DeepSeek-R1-0528", "deepseek-v3"},
    {"deepseek-r1-distill-llama-70b", "llama-3.1-70b"},
    {"deepseek-r1-distill-qwen-32b", "deepseek-r1-distill-qwen-32b"},
    {"mistral-7b", "mistral-7b-v0.3"},
    {"gpt-oss-120b-mxfp4", "gpt-oss-120b", WeightFormat::Mxfp4},
    {"Qwen/Qwen3-8B-FP8", "qwen3-8b", kBlocks},
    {"qwen3-8b-fp8", "qwen3-8b", kBlocks},
    {"RedHatAI/Qwen3-8B-FP8-dynamic", "qwen3-8b", kFp8},
    {"Qwen/Qwen3-30B-A3B-Instruct-2507-FP8", "qwen3-30b-a3b-2507", kBlocks},
    {"Qwen/Qwen3-4B-Instruct-2507", "qwen3-4b-2507"},
    {"unsloth/Qwen3-4B-Thinking-2507-bnb-4bit", "qwen3-4b-2507", kInt4},
    {"nvidia/Llama-3.3-70B-Instruct-FP8", "llama-3.1-70b", kFp8},
    {"nvidia/Llama-3.1-8B-Instruct-NVFP4", "llama-3.1-8b", kNvfp4},
    {"nvidia/Llama-3.1-8B-Instruct-FP4", "llama-3.1-8b", kNvfp4},
    {"llama-3.1-8b-fp8", "llama-3.1-8b", kFp8},
    {"neuralmagic/Meta-Llama-3.1-8B-Instruct-quantized.w8a8", "llama-3.1-8b", kFp8},
    {"RedHatAI/Meta-Llama-3.1-8B-Instruct-quantized.w4a16", "llama-3.1-8b", kInt4},
    {"hugging-quants/Meta-Llama-3.1-70B-Instruct-AWQ-INT4", "llama-3.1-70b", kInt4},
    {"amd/Llama-3.1-70B-Instruct-FP8-KV", "llama-3.1-70b", kFp8},
    {"Qwen/Qwen2.5-72B-Instruct-GPTQ-Int4", "qwen2.5-72b", kInt4},
    {"Qwen/Qwen2.5-72B-Instruct-GPTQ-Int8", "qwen2.5-72b", kFp8},
    {"Qwen/Qwen2.5-7B-Instruct-AWQ", "qwen2.5-7b", kInt4},
    {"cyankiwi/Qwen3-30B-A3B-Instruct-2507-AWQ-4bit", "qwen3-30b-a3b-2507", kInt4},
    {"someone/Qwen3-14B-AWQ", "qwen3-14b", kInt4},
    {"unsloth/Qwen3-8B-GGUF:Q4_K_M", "qwen3-8b", kInt4},
    {"Qwen3-8B-Q8_0", "qwen3-8b", kFp8},
    {"mlx-community/Qwen3-8B-4bit", "qwen3-8b", kInt4},
    {"unsloth/gpt-oss-20b-BF16", "gpt-oss-20b", WeightFormat::Plain},
    {"Qwen/Qwen2.5-VL-7B-Instruct-AWQ", "qwen2.5-vl-7b", kInt4},
    {"zai-org/GLM-4.7-Flash", "glm-4.7-flash", {}},
    {"google/gemma-3n-E4B-it", "gemma-3n-e4b", {}},
    {"ibm-granite/granite-4.0-h-small-FP8", "granite-4.0-h-small", kFp8},
    {"mistralai/Ministral-3-14B-Instruct-2512", "ministral-3-14b", {}},
    {"mistralai/Ministral-8B-Instruct-2410", "ministral-8b-2410", {}},
    {"allenai/Olmo-3-32B-Think", "olmo-3-32b", {}},
    {"nvidia/NVIDIA-Nemotron-Nano-9B-v2", "nemotron-nano-9b-v2", {}},
    {"deepseek-ai/DeepSeek-R1-0528-Qwen3-8B", "deepseek-r1-0528-qwen3-8b", {}},
    // A repository of GGUF files: llama-server takes its Q4_K_M.
    {"unsloth/Qwen3-8B-GGUF", "qwen3-8b", kInt4},
    {"someone/Qwen3-8B-GGUF", "qwen3-8b", kInt4},
    {"ggml-org/gpt-oss-20b-GGUF", "gpt-oss-20b", kInt4},
    {"unsloth/Qwen3-8B-Q8_0-GGUF", "qwen3-8b", kFp8},
    // The maker in front.
    {"bartowski/Qwen_Qwen3-32B-GGUF", "qwen3-32b", kInt4},
    {"bartowski/openai_gpt-oss-20b-GGUF:MXFP4", "gpt-oss-20b", WeightFormat::Mxfp4},
    {"bartowski/Meta-Llama-3.1-8B-Instruct-GGUF", "llama-3.1-8b", kInt4},
    {"bartowski/mistralai_Mistral-Small-3.2-24B-Instruct-2506-GGUF", "mistral-small-3.1-24b",
     kInt4},
    {"nvidia/NVIDIA-Nemotron-3-Nano-30B-A3B-FP8", "nemotron-3-nano-30b-a3b", kFp8},
    {"nvidia/NVIDIA-Nemotron-3-Super-120B-A12B-NVFP4", "nemotron-3-super-120b-a12b", kNvfp4},
    {"nvidia/DeepSeek-R1-0528-NVFP4-v2", "deepseek-v3", kNvfp4},
    {"nvidia/Phi-4-reasoning-plus-NVFP4", "phi-4-reasoning", kNvfp4},
    {"deepseek-r1:70b", "llama-3.1-70b", {}},
    {"unsloth/Qwen2.5-Coder-32B-Instruct-128K-GGUF", "qwen2.5-32b-128k", kInt4},
    {"qwen3-32b-128k", "qwen3-32b-128k", {}},
    {"meta-llama/Llama-2-7b-hf-8k", "llama-2-7b-8k", {}},
    {"qwen3-32b-16384k", "qwen3-32b-16384k", {}},
};

TEST_CASE("names of models as people type them", "[core][model]") {
  for (const Named& expected : kKnown) {
    INFO(expected.name);
    const FoundModel named = named_model(expected.name);
    CHECK(named.model == expected.model);
    CHECK(named.format == expected.format);
  }
  for (const char* none :
       {"", "fp8", "instruct", "qwen3", "qwen3-9b", "Qwen3-8B-1M", "someone/Qwen3-8B", "./qwen3-8b",
        "../Qwen3-8B-FP8", "/models/Qwen3-8B-FP8", "a/b/Qwen3-8B-FP8", "qwen3-8b-abc",
        "qwen3-8b-fp9", "gpt-4"}) {
    INFO(none);
    CHECK(named_model(none).model.empty());
  }
  CHECK(nearest_model("lama-3.2-3b") == "llama-3.2-3b");
  CHECK(nearest_model("Qwn/Qwn3-8B-FP8") == "qwen3-8b");
  CHECK(nearest_model("llama-3.1-9b").empty());
  CHECK(nearest_model("gpt-4").empty());
  CHECK(nearest_model("qwen3-31b").empty());
  CHECK(nearest_model("Qwen/Qwen2-VL-7B-Instruct").empty());
}

TEST_CASE("every name of a model means one shape", "[core][model]") {
  std::set<std::string> repositories;
  for (const ModelConfig& model : all_models()) {
    INFO(model.name);
    CHECK(named_model(model.name).model == model.name);
    for (const std::string& repository : repositories_of(model.name)) {
      INFO(repository);
      CHECK(repositories.insert(repository).second);
      CHECK(named_model(repository).model == model.name);
      CHECK_FALSE(named_model(repository).format);
    }
  }
  // A row with only what differs has the rest of its relative.
  const ModelConfig base = find_model("qwen3-4b", {});
  ModelConfig later = find_model("Qwen/Qwen3-4B-Instruct-2507", {});
  CHECK(later.max_position_embeddings == 262144);
  CHECK(later.rope_theta == 5e6);
  later.max_position_embeddings = base.max_position_embeddings;
  later.rope_theta = base.rope_theta;
  later.name = base.name;
  CHECK(later == base);
}

TEST_CASE("a model's name says how its weights are stored", "[core][model]") {
  const ModelConfig plain = find_model("llama-3.1-70b", {});
  const ModelConfig fp8 = find_model("nvidia/Llama-3.3-70B-Instruct-FP8", {});
  CHECK(fp8.linear_format == WeightFormat::Fp8);
  CHECK(100 * fp8.weight_bytes() < 53 * plain.weight_bytes());
  // The format of a model's own file is no other.
  CHECK_FALSE(named_format("openai/gpt-oss-20b-mxfp4"));
  CHECK_FALSE(named_format("MiniMax-M2.5-FP8"));
  CHECK_FALSE(named_format("qwen3-8b-bf16"));
  CHECK_FALSE(named_format("unsloth/gpt-oss-20b-GGUF"));
  CHECK(named_format("unsloth/DeepSeek-R1-GGUF") == WeightFormat::Int4);
  CHECK(named_format("nvidia/DeepSeek-R1-0528-NVFP4") == WeightFormat::Nvfp4);
  CHECK(named_format("gpt-oss-20b-bf16") == WeightFormat::Plain);
  // mxfp4 stores experts alone.
  CHECK(named_format("amd/Llama-3.1-70B-Instruct-MXFP4") == WeightFormat::Nvfp4);
}

Scenario scenario_of(const std::string& model, const std::string& more = "") {
  return parse_scenario(
             "model: " + model + "\nhardware: h200\n" + more +
                 "workload:\n  num_requests: 1\n  arrivals: {process: poisson, rate: 1}\n"
                 "  prompt_tokens: {distribution: fixed, value: 500}\n"
                 "  output_tokens: {distribution: fixed, value: 50}\n",
             "s.yaml", {})
      .variants.front();
}

TEST_CASE("a scenario stores weights as the model's name says", "[core][model]") {
  const Scenario named = scenario_of("nvidia/Llama-3.3-70B-Instruct-FP8");
  CHECK(named.model == "llama-3.1-70b");
  CHECK(named.quantization == Quantization::Fp8);
  REQUIRE(named.serve_defaults.size() == 1);
  CHECK(named.serve_defaults.front().key == "quantization");
  CHECK(named.serve_defaults.front().value == "fp8");
  CHECK(
      contains(named.to_yaml(), "\"quantization\": \"fp8\",  # as the model's name says: nvidia/"));
  // The user's own word wins.
  const Scenario own = scenario_of("nvidia/Llama-3.3-70B-Instruct-FP8", "quantization: none\n");
  CHECK(own.quantization == Quantization::None);
  CHECK(own.serve_defaults.empty());
  const Scenario known = scenario_of("llama-3.1-70b");
  CHECK(known.quantization == Quantization::Auto);
  CHECK(known.serve_defaults.empty());
  CHECK(scenario_of("Qwen/Qwen3-8B").quantization == Quantization::Auto);
}

TEST_CASE("a folder of a model's name is that folder", "[core][model]") {
  const testing::ScratchFolder folder;
  folder.write("Qwen3-8B-FP8/config.json", "{}");
  CHECK(contains(error_of([&] { find_model(folder.path() + "/Qwen3-8B-FP8", {}); }),
                 "architectures: is missing"));
  CHECK(contains(error_of([&] { find_model(folder.path() + "/Qwen3-8B", {}); }),
                 "no such file or repository"));
}

}  // namespace
}  // namespace metronome::TEST_FILE
