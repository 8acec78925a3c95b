// SPDX-License-Identifier: Apache-2.0
// Sources: release notes of vLLM, and the scripts of InferenceX as of the versions that they name.
#include "engines/vllm/recipe.h"

#include <algorithm>
#include <iterator>

#include "core/scenario/scenario.h"
#include "engines/arguments/engine_settings.h"
#include "engines/recipes/public_sweep.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

constexpr EngineVersion kFirstAsyncVersion = {0, 14, 0};
constexpr EngineVersion kFirstTunedMiniMax = {0, 19, 0};

// InferenceX's script of MiniMax on Blackwell since its pull requests 996 and 1010 of April 2026. A
// nightly build is from before.
bool is_tuned_minimax(const BenchmarkRun& run, const HardwareSpec& gpu,
                      const RecipeContext& context) {
  const bool is_nightly = !context.version.empty() && !engine_version(context.version);
  return run.model == SweepModel::MiniMaxM2 && is_data_centre_blackwell(gpu) && !is_nightly &&
         !is_before(context.version, kFirstTunedMiniMax);
}

bool has_fp8_kv(const BenchmarkRun& run, const HardwareSpec& gpu) {
  switch (run.model) {
    // Queues at 64 clients show 16 bits on the H100. Their absence shows 8 bits of MiniMax on later
    // GPUs.
    case SweepModel::Llama70b:
    case SweepModel::MiniMaxM2: return gpu.name != "h100-sxm";
    case SweepModel::GptOss120b: return is_data_centre_blackwell(gpu);
    default: return false;
  }
}

std::int64_t script_budget(const BenchmarkRun& run, const HardwareSpec& gpu,
                           const RecipeContext& context) {
  if (is_tuned_minimax(run, gpu, context)) return 2 * run.prompt_tokens;
  const bool is_h200 = gpu.name == "h200";
  if (run.model == SweepModel::MiniMaxM2 && is_h200 && !is_before(context.version, {0, 18, 0})) {
    return run.num_clients <= 32 ? 16384 : 32768;
  }
  return 8192;
}

void add_script(const BenchmarkRun& run, const HardwareSpec& gpu, const RecipeContext& context,
                RecipeSteps& steps) {
  const std::string script = kScript;
  steps.add("engine.max_num_seqs", run.num_clients, script + ": --max-num-seqs of the clients");
  steps.add("engine.async_depth", 2, script + ": --async-scheduling");
  const std::int64_t budget = script_budget(run, gpu, context);
  steps.add("scheduler.max_num_batched_tokens", std::max(budget, run.num_clients),
            script + ": --max-num-batched-tokens");
  if (has_fp8_kv(run, gpu)) {
    steps.add("kv_cache.dtype", "fp8", script + ": --kv-cache-dtype fp8");
  } else {
    add_kv_of_checkpoint(context, steps);
  }
  const bool is_first_kimi = run.model == SweepModel::KimiK2 && !context.version.empty() &&
                             is_before(context.version, {0, 17, 0});
  steps.add("cost_model.gpu_memory_utilization", is_first_kimi ? "0.95" : "0.9",
            script + ": --gpu-memory-utilization");
  const bool has_large_graphs =
      run.model == SweepModel::GptOss120b || is_tuned_minimax(run, gpu, context);
  steps.add("cost_model.max_graph_tokens", has_large_graphs ? 2048 : 512,
            script + ": --max-cudagraph-capture-size, or vLLM's largest graph");
}

// Served steps take longer than the kernels of vLLM 0.24 that the roofline was fitted to. Fitted to
// every fifth point of silicon_sample.csv (aiconfigurator-core 0.12.0), tried on the others:
//   prompts   through experts they take 1.35 times as long (routing is not even, and kernels have
//             gaps), those of gpt-oss on Blackwell 1.1 times; dense ones take 1.2 times as long on
//             Blackwell, and no longer on Hopper
//   steps     experts in blocks of fp8 (Qwen3-235B, MiniMax-M2.5) got faster with 0.14 and 0.18,
//             those in int4 on Blackwell (Kimi-K2.5) with 0.17
//   experts   of gpt-oss start few kernels: 18 us a layer. Every third point counted: times
//             between tokens of the next third are 6.7 % off (10.1 % as other experts).
//   host      before 0.14 each request of a step takes 30 us between steps: times between tokens of
//             Llama-3.1-8B and Qwen3-32B grow so with the clients, on one GPU as on eight
void add_times(const BenchmarkRun& run, const HardwareSpec& gpu, const RecipeContext& context,
               RecipeSteps& steps) {
  const bool is_blackwell = is_data_centre_blackwell(gpu);
  const bool is_block = run.has_experts && run.format == WeightFormat::Fp8Block;
  const bool is_old = is_before(context.version, kFirstAsyncVersion);
  if (is_block) {
    const bool is_older = is_before(context.version, {0, 18, 0});
    steps.add("cost_model.step_factor", is_old ? "1.5" : (is_older ? "1.25" : "1.08"),
              "experts in blocks of fp8, by release");
  }
  constexpr double kGptOssOverhead = 18;
  if (run.format == WeightFormat::Mxfp4 && gpu.expert_overhead_us > kGptOssOverhead) {
    steps.add("cost_model.expert_overhead_us", "18", "experts of gpt-oss start few kernels");
  }
  if (run.has_experts && run.format == WeightFormat::Int4 && is_blackwell &&
      is_before(context.version, {0, 17, 0})) {
    steps.add("cost_model.step_factor", "1.35", "experts in int4 on Blackwell before 0.17");
  }
  if (run.has_experts && !(is_block && is_old)) {
    const bool is_fused = run.format == WeightFormat::Mxfp4 && is_blackwell;
    steps.add("cost_model.prompt_factor", is_fused ? "1.1" : "1.35", "experts in served prompts");
  } else if (!run.has_experts && is_blackwell) {
    steps.add("cost_model.prompt_factor", "1.2", "served prompts on Blackwell");
  }
}

// Without asynchronous scheduling the device waits for the host, and longer with more requests.
void add_planning(const RecipeContext& context, RecipeSteps& steps) {
  if (!is_before(context.version, kFirstAsyncVersion)) return;
  steps.add("engine.async_depth", 1, "no asynchronous scheduling by default before 0.14");
  steps.add("cost_model.host_gap_us", 400, "the host between steps");
  steps.add("cost_model.host_gap_us_per_request", 30, "the host between steps, before 0.14");
}

}  // namespace

std::string nearest_vllm_rules(std::string_view version) {
  return std::string(versions_from(kVllmArguments, version).front());
}

std::vector<ServeDefault> vllm_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                      const RecipeContext& context) {
  RecipeSteps steps(context);
  if (!context.version.empty()) {
    steps.add("scheduler.version", "\"" + nearest_vllm_rules(context.version) + "\"",
              "the rules of the release, or the nearest that are known");
  }
  const BenchmarkRun run = benchmark_run(scenario);
  add_times(run, gpu, context, steps);
  const bool is_swept = is_sweep(run, context);
  if (is_swept && run.is_public()) {
    add_script(run, gpu, context, steps);
    add_clients(run, steps);
    return steps.take();
  }
  add_planning(context, steps);
  // NVIDIA's sweep of 0.12 with a model in fp8 sent 100 prompts again and again, as its client does
  // by default, and found them in the cache: times between tokens are those of decodes alone.
  const bool repeats_prompts = is_swept && run.format == WeightFormat::Fp8 &&
                               scenario.model.find("llama-3.1-8b") != std::string::npos &&
                               engine_version(context.version) == EngineVersion{0, 12, 0};
  if (repeats_prompts) {
    steps.add("client.distinct_prompts", 100, "times of the sweep show cached prompts");
    steps.add("kv_cache.enable_prefix_caching", "true", "the default");
  }
  if (is_swept && run.has_experts) {
    steps.add("client.output_scatter", "0.1", "first tokens of the sweep show no clients in step");
  }
  add_kv_of_checkpoint(context, steps);
  is_swept ? add_clients(run, steps) : add_own_client(run, context, steps);
  return steps.take();
}

}  // namespace metronome
