// SPDX-License-Identifier: Apache-2.0
#include "engines/recipes/public_sweep.h"

#include <string_view>

#include "core/base/names.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"

namespace metronome {
namespace {

struct SweepName {
  std::string_view part;  // of a name, in lower case
  SweepModel model;
};
constexpr SweepName kNames[] = {
    {"llama-3.1-70b", SweepModel::Llama70b},  {"llama-3.3-70b", SweepModel::Llama70b},
    {"gpt-oss-120b", SweepModel::GptOss120b}, {"minimax-m2", SweepModel::MiniMaxM2},
    {"deepseek-v3", SweepModel::DeepSeekR1},  {"deepseek-r1", SweepModel::DeepSeekR1},
    {"kimi-k2", SweepModel::KimiK2},          {"qwen3.5-397b", SweepModel::Qwen35},
};

// The largest length that the workload can draw.
std::int64_t longest(const LengthConfig& length) {
  return length.distribution == LengthDistribution::Fixed ? length.value : length.max;
}

}  // namespace

const char* const kScript = "InferenceX's script for it";

SweepModel sweep_model(const std::string& name) {
  const std::string lower = lower_ascii(name.substr(name.find_last_of('/') + 1));
  if (lower.find("distill") != lower.npos) return SweepModel::None;
  for (const SweepName& known : kNames) {
    if (lower.find(known.part) != lower.npos) return known.model;
  }
  return SweepModel::None;
}

BenchmarkRun benchmark_run(const Scenario& scenario) {
  const ModelConfig model = simulated_model(scenario);
  BenchmarkRun run;
  run.model = sweep_model(scenario.model);
  run.format = model.n_experts > 0 ? model.expert_format : model.linear_format;
  run.has_experts = model.n_experts > 0;
  run.has_states = model.n_linear_layers() > 0;
  run.num_gpus = scenario.cost_model.tensor_parallel_size;
  const WorkloadConfig& workload = scenario.workload;
  if (workload.arrivals.process == ArrivalProcess::ClosedLoop) {
    run.num_clients = workload.arrivals.concurrency;
  }
  run.prompt_tokens = longest(workload.prompt_tokens);
  run.output_tokens = longest(workload.output_tokens);
  return run;
}

bool is_sweep(const BenchmarkRun& run, const RecipeContext& context) {
  return context.is_benchmark && !context.has_own_flags && run.num_clients > 0;
}

void add_own_client(const BenchmarkRun& run, const RecipeContext& context, RecipeSteps& steps) {
  if (!context.is_benchmark || run.num_clients == 0) return;
  steps.add("client.preset", "bench", "HTTP and tokenising, as a benchmark's client sees them");
}

void add_clients(const BenchmarkRun& run, RecipeSteps& steps) {
  if (run.is_public()) {
    steps.add("client.preset", "inferencex",
              "the client of InferenceX: prompts and outputs of 0.8 of the named length to all");
  } else {
    steps.add("client.preset", "aiperf",
              "a closed loop of clients, whose outputs scatter by up to a tenth");
  }
  steps.add("engine.max_model_len", run.prompt_tokens + 2 * run.output_tokens + 256,
            "the longest request, with some room");
  steps.add("kv_cache.enable_prefix_caching", "false", "prompts of a benchmark share nothing");
}

void add_kv_of_checkpoint(const RecipeContext& context, RecipeSteps& steps) {
  const std::string name = lower_ascii(context.model);
  const bool is_quantised =
      name.ends_with("-fp8") || name.ends_with("-nvfp4") || name.ends_with("-fp4");
  if (!name.starts_with("nvidia/") || !is_quantised) return;
  steps.add("kv_cache.dtype", "fp8",
            "kv_cache_quant_algo of NVIDIA's checkpoint (hf_quant_config.json)");
}

}  // namespace metronome
