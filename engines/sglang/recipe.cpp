// SPDX-License-Identifier: Apache-2.0
// Sources: the scripts of InferenceX as of SGLang 0.5.5 to 0.5.10, and times of servers whose
// settings nobody recorded.
#include "engines/sglang/recipe.h"

#include <algorithm>

#include "core/scenario/scenario.h"
#include "engines/recipes/public_sweep.h"

namespace metronome {
namespace {

constexpr EngineVersion kFirstPromptGraphs = {0, 5, 11};

// Flags of a script: --chunked-prefill-size (and --max-prefill-tokens), --max-running-requests,
// --cuda-graph-max-bs, --mem-fraction-static, --kv-cache-dtype.
struct SglangScript {
  std::int64_t chunk = 32768;
  std::int64_t running = 128;
  std::int64_t graph = 0;
  const char* memory = "0.82";
  bool has_fp8_kv = true;
  bool limits_prompts = true;  // sets --max-prefill-tokens to the chunk
};

SglangScript deepseek_script(const BenchmarkRun& run, bool is_hopper) {
  if (run.format == WeightFormat::Nvfp4) {
    return {
        .chunk = 16384, .running = 256, .graph = 256, .memory = "0.85", .limits_prompts = false};
  }
  if (is_hopper) {
    const std::int64_t running = run.prompt_tokens == run.output_tokens ? 512 : 256;
    return {.running = running, .graph = running, .has_fp8_kv = false};
  }
  if (run.num_gpus == 4) return {.chunk = 8192, .running = 32, .graph = 32, .memory = "0.95"};
  return {.graph = 128};
}

SglangScript qwen_script(const BenchmarkRun& run, const HardwareSpec& gpu, bool is_hopper) {
  const bool is_b300 = gpu.compute_capability > 10.05;
  SglangScript script = {.graph = run.num_clients};
  if (run.format == WeightFormat::Plain) {
    script.has_fp8_kv = false;
  } else if (run.format == WeightFormat::Nvfp4) {
    script.memory = is_b300 ? "0.8" : "0.85";
  } else if (is_hopper) {
    script.chunk = 16384;
    script.memory = "0.8";
  } else if (is_b300) {
    script.chunk = 16384;
    script.running = run.num_clients;
    script.memory = "0.8";
  }
  return script;
}

// --scheduler-recv-interval. Scripts for Hopper leave it alone.
std::int64_t receive_interval(const BenchmarkRun& run, const HardwareSpec& gpu, bool is_hopper) {
  if (is_hopper) return 1;
  const bool is_b300_fp8 = gpu.compute_capability > 10.05 && run.format == WeightFormat::Fp8Block;
  if (run.model == SweepModel::Qwen35 && is_b300_fp8) return 10;
  return run.num_clients < 16 ? 10 : 30;
}

void add_script(const BenchmarkRun& run, const HardwareSpec& gpu, RecipeSteps& steps) {
  const bool is_hopper = !is_data_centre_blackwell(gpu);
  const SglangScript script = run.model == SweepModel::DeepSeekR1
                                  ? deepseek_script(run, is_hopper)
                                  : qwen_script(run, gpu, is_hopper);
  const std::string from = kScript;
  steps.add("scheduler.chunked_prefill_size", script.chunk, from + ": --chunked-prefill-size");
  if (script.limits_prompts) {
    steps.add("scheduler.max_prefill_tokens", script.chunk, from + ": --max-prefill-tokens");
  }
  steps.add("scheduler.scheduler_recv_interval", receive_interval(run, gpu, is_hopper),
            from + ": --scheduler-recv-interval");
  steps.add("engine.max_num_seqs", script.running, from + ": --max-running-requests");
  steps.add("kv_cache.dtype", script.has_fp8_kv ? "fp8" : "bf16", from + ": --kv-cache-dtype");
  steps.add("cost_model.gpu_memory_utilization", script.memory, from + ": --mem-fraction-static");
  steps.add("cost_model.max_graph_tokens", script.graph, from + ": --cuda-graph-max-bs");
}

// Served steps take longer than the kernels that the roofline was fitted to. Fitted to every third
// point of silicon_sample.csv (aiconfigurator-core 0.12.0), tried on the others:
//   prompts   through experts they take 1.3 times as long, as routing is not even and kernels have
//             gaps; 2.5 times in blocks of fp8 before 0.5.9; DeepSeek-R1 on a B300 5 times up to
//             0.5.10, for no known reason: 8,192 tokens took 1 to 3 s there, and 0.3 s on a B200
//             Qwen3.5 in fp8 1.7 times before 0.5.10
//   steps     Qwen3.5 took a quarter longer before 0.5.10
//   host      it launches a layer of Qwen3.5 in fp8 in 4 ms before 0.5.10. That and the prompts
//             were fitted to every second point: first tokens of the others are 10.3 % off (29.4 %
//             with the usual launches).
void add_times(const BenchmarkRun& run, const HardwareSpec& gpu, const RecipeContext& context,
               RecipeSteps& steps) {
  const bool is_b300 = gpu.compute_capability > 10.05 && gpu.compute_capability < 10.4;
  const bool is_block = run.format == WeightFormat::Fp8Block;
  const bool is_old = is_before(context.version, kFirstPromptGraphs);
  const bool is_nightly = !context.version.empty() && !engine_version(context.version);
  const bool is_old_qwen = run.model == SweepModel::Qwen35 &&
                           (is_nightly || is_before(context.version, {0, 5, 10}));
  if (is_old_qwen && is_block) {
    steps.add("cost_model.prompt_factor", "1.7", "Qwen3.5 in fp8 before 0.5.10");
    steps.add("cost_model.eager_us_per_layer", 4000, "launches of a layer of Qwen3.5 in fp8");
  } else if (run.model == SweepModel::DeepSeekR1 && is_b300 && is_old) {
    steps.add("cost_model.prompt_factor", "5", "DeepSeek on a B300 up to 0.5.10");
  } else if (run.has_experts && is_block && is_before(context.version, {0, 5, 9})) {
    steps.add("cost_model.prompt_factor", "2.5", "experts in blocks of fp8 before 0.5.9");
  } else if (run.has_experts) {
    steps.add("cost_model.prompt_factor", "1.3", "experts in served prompts");
  } else if (is_block) {
    steps.add("cost_model.prompt_factor", "1.2", "served prompts in blocks of fp8");
  }
  if (is_old_qwen) {
    steps.add("cost_model.step_factor", "1.25", "Qwen3.5 before 0.5.10");
  }
}

}  // namespace

std::vector<ServeDefault> sglang_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                        const RecipeContext& context) {
  RecipeSteps steps(context);
  const BenchmarkRun run = benchmark_run(scenario);
  const bool is_script = run.model == SweepModel::DeepSeekR1 || run.model == SweepModel::Qwen35;
  const bool is_nightly = !context.version.empty() && !engine_version(context.version);
  if (is_before(context.version, kFirstPromptGraphs) || (is_script && is_nightly)) {
    steps.add("cost_model.max_prompt_graph_tokens", 0, "no CUDA graphs for prompts up to 0.5.10");
  }
  add_times(run, gpu, context, steps);
  if (!is_sweep(run, context)) {
    add_own_client(run, context, steps);
    return steps.take();
  }
  if (is_script) {
    add_script(run, gpu, steps);
    add_clients(run, steps);
    return steps.take();
  }
  // Prompts go first, so clients with equal outputs stay in step: NVIDIA's sweeps on an H100 show
  // it, those on an H200 do not.
  if (!run.is_public() && gpu.name == "h100-sxm") {
    steps.add("client.output_scatter", 0, "first tokens of the sweep show clients in step");
  }
  add_clients(run, steps);
  // With its cache on, as by default, it does not count with whole outputs
  // (PrefillAdder.add_one_req). Prompts share nothing, so that is all the cache does.
  steps.add("sampling.ignore_eos", "false", "outputs are estimated, as with the radix cache");
  if (is_before(context.version, kFirstPromptGraphs)) {
    steps.add("scheduler.chunked_prefill_size", 8192, "the default up to 0.5.10");
    const std::int64_t running = std::max<std::int64_t>(1024, run.num_clients);
    steps.add("engine.max_num_seqs", running, "the pool holds more requests than there are");
    steps.add("cost_model.gpu_memory_utilization", "0.85",
              "--mem-fraction-static is chosen near this share");
    steps.add("cost_model.max_graph_tokens", std::max<std::int64_t>(160, run.num_clients),
              "--cuda-graph-max-bs 160, or what the clients need");
  }
  return steps.take();
}

}  // namespace metronome
