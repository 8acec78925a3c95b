// SPDX-License-Identifier: Apache-2.0
// Sources: the scripts of InferenceX from October 2025 (its commit a267b4b) to February 2026, and
// times of servers whose settings nobody recorded.
#include "engines/tensorrt_llm/recipe.h"

#include <algorithm>

#include "core/scenario/scenario.h"
#include "engines/recipes/public_sweep.h"

namespace metronome {
namespace {

constexpr EngineVersion kFirstOf2026 = {1, 2, 0};

void add_waits(RecipeSteps& steps, const char* share, std::int64_t num_steps) {
  const std::string script = kScript;
  steps.add("scheduler.batch_wait_max_tokens_ratio", share,
            script + ": batch_wait_max_tokens_ratio");
  steps.add("scheduler.batch_wait_timeout_iters", num_steps, script + ": batch_wait_timeout_iters");
}

void add_deepseek(const BenchmarkRun& run, const HardwareSpec& gpu, const RecipeContext& context,
                  RecipeSteps& steps) {
  const std::string script = kScript;
  const bool is_of_2025 = is_before(context.version, kFirstOf2026);
  const bool has_fp4 = run.format == WeightFormat::Nvfp4;
  std::int64_t length = run.prompt_tokens + run.output_tokens + 200;
  std::int64_t tokens = (run.num_clients + run.prompt_tokens + 127) / 64 * 64;
  std::int64_t graph = has_fp4 ? 512 : 256;
  if (gpu.name == "h200") graph = 128;
  if (!is_of_2025) {
    tokens = std::max<std::int64_t>(8192, tokens);
    length = std::max<std::int64_t>(8192, length);
    graph = run.num_clients;
    const bool are_alike = run.prompt_tokens == run.output_tokens;
    if (!has_fp4 && are_alike && run.num_clients >= 64) add_waits(steps, "0.8", 40);
  }
  steps.add("scheduler.max_num_tokens", tokens,
            script + ": --max_num_tokens of clients and prompt");
  steps.add("engine.max_num_seqs", 2048, "--max_batch_size, its default");
  steps.add("engine.max_model_len", length, script + ": --max_seq_len");
  steps.add("cost_model.max_graph_tokens", graph, script + ": cuda_graph_config.max_batch_size");
  // Scripts give KV 0.75 to 0.8 of what weights leave. With those it is 0.9 of all, or more where
  // weights fill the GPU.
  const bool is_full = !has_fp4 && run.num_gpus == 4;
  steps.add("cost_model.gpu_memory_utilization", is_full ? "0.97" : "0.9",
            script + ": free_gpu_memory_fraction 0.75 to 0.8, beside weights");
  steps.add("kv_cache.dtype", "fp8", script + ": kv_cache_config.dtype");
}

void add_dense_or_gpt_oss(const BenchmarkRun& run, const HardwareSpec& gpu, RecipeSteps& steps) {
  const std::string script = kScript;
  const bool is_gpt_oss = run.model == SweepModel::GptOss120b;
  steps.add("scheduler.max_num_tokens", is_gpt_oss ? 20000 : 16384, script + ": --max_num_tokens");
  const bool are_short = run.prompt_tokens == 1024 && run.output_tokens == 1024;
  if (!is_gpt_oss && are_short && run.num_gpus < 8) add_waits(steps, "0.9", 20);
  if (!is_gpt_oss || is_data_centre_blackwell(gpu)) {
    steps.add("kv_cache.dtype", "fp8", script + ": kv_cache_config.dtype");
  }
}

// The settings of NVIDIA's own sweeps, which nobody recorded, as far as times tell them.
void add_own_sweep(const BenchmarkRun& run, const Scenario& scenario, const RecipeContext& context,
                   RecipeSteps& steps) {
  add_kv_of_checkpoint(context, steps);
  const bool is_quantised = run.format != WeightFormat::Plain;
  if (scenario.model.find("qwen3-32b") != std::string::npos && is_quantised) {
    steps.add("kv_cache.dtype", "fp8", "checkpoints of ModelOpt ask for it");
  }
  steps.add("scheduler.max_num_tokens", std::max<std::int64_t>(8192, run.prompt_tokens),
            "its default, or the prompt");
  if (run.has_experts) {
    steps.add("client.output_scatter", "0.02", "first tokens of the sweep show clients near step");
  }
  // First tokens of Llama-3.1-8B in 1.0.0rc3 come as if one client always waited for another's
  // whole answer, at every length, number of GPUs and number of clients: its server held one
  // request less than there were clients. Qwen3 in the same version shows nothing of it.
  const bool is_short_of_one = engine_version(context.version) == EngineVersion{1, 0, 0} &&
                               scenario.model.find("llama-3.1-8b") != std::string::npos;
  if (is_short_of_one && run.num_clients > 1) {
    steps.add("engine.max_num_seqs", run.num_clients - 1, "first tokens of the sweep show it");
  }
}

// Served steps take longer than the kernels of vLLM that the roofline was fitted to. Fitted to
// every fourth point of silicon_sample.csv (aiconfigurator-core 0.12.0), tried on the others:
//   prompts   DeepSeek-R1 in fp8 takes 1.3 times as long since 1.2, gpt-oss on Hopper alike, and
//             dense models 1.15 times in 1.0
//   steps     DeepSeek-R1 in fp8 takes 1.2 times as long before 1.2
//   layers    all-reduces of dense models and of experts in fp8 on Hopper have the norms inside;
//             experts start fewer kernels than vLLM's: 3 us a layer there, none on Blackwell
//   host      it launches a layer of gpt-oss on Hopper in 1.8 ms, and one of experts in fp8 in
//             0.95 ms: short prompts on several GPUs take as long as on one. Of gpt-oss every
//             second point counted: first tokens of the others are 15.6 % off (31.6 % with 0.7 ms).
void add_times(const BenchmarkRun& run, const HardwareSpec& gpu, const RecipeContext& context,
               RecipeSteps& steps) {
  const bool is_blackwell = is_data_centre_blackwell(gpu);
  const bool is_gpt_oss = run.format == WeightFormat::Mxfp4;
  const bool is_block = run.has_experts && run.format == WeightFormat::Fp8Block;
  if (is_gpt_oss && is_blackwell) {
    steps.add("cost_model.expert_overhead_us", 0, "experts of gpt-oss on Blackwell in one kernel");
  } else if (is_gpt_oss) {
    steps.add("cost_model.prompt_factor", "1.3", "experts in served prompts");
    steps.add("cost_model.eager_us_per_layer", 1800, "launches of a layer of gpt-oss on Hopper");
  } else if (run.model == SweepModel::DeepSeekR1 && is_block) {
    const bool is_old = is_before(context.version, kFirstOf2026);
    steps.add(is_old ? "cost_model.step_factor" : "cost_model.prompt_factor",
              is_old ? "1.2" : "1.3", "DeepSeek in fp8, by release");
  } else if (is_block && !is_blackwell) {
    steps.add("cost_model.expert_overhead_us", 3, "experts in fp8 start few kernels");
    steps.add("cost_model.eager_us_per_layer", 950, "launches of a layer of experts in fp8");
    steps.add("cost_model.tp_overhead_us", 0, "all-reduces have the norms inside");
  } else if (!run.has_experts && is_before(context.version, {1, 1, 0})) {
    steps.add("cost_model.prompt_factor", "1.15", "served prompts in 1.0");
  } else if (!run.has_experts) {
    steps.add("cost_model.tp_overhead_us", 0, "all-reduces have the norms inside");
  }
}

// Of TorchLlmArgs and KvCacheConfig (tensorrt_llm/llmapi/llm_args.py).
void add_defaults(const BenchmarkRun& run, RecipeSteps& steps) {
  const std::string reason = "its default";
  steps.add("engine.max_num_seqs", 2048, "max_batch_size, " + reason);
  steps.add("scheduler.max_num_tokens", 8192, reason);
  steps.add("scheduler.enable_chunked_context", "false", "enable_chunked_prefill, " + reason);
  steps.add("kv_cache.block_size", 32, "tokens_per_block, " + reason);
  // The policy caches no states.
  if (!run.has_states) {
    steps.add("kv_cache.enable_prefix_caching", "true", "enable_block_reuse, " + reason);
  }
  steps.add("cost_model.gpu_memory_utilization", "0.9", "free_gpu_memory_fraction, " + reason);
}

}  // namespace

std::vector<ServeDefault> tensorrt_llm_recipe(const Scenario& scenario, const HardwareSpec& gpu,
                                              const RecipeContext& context) {
  RecipeSteps steps(context);
  const BenchmarkRun run = benchmark_run(scenario);
  steps.add("engine.async_depth", 2, "the overlap scheduler, its default");
  add_times(run, gpu, context, steps);
  if (!is_sweep(run, context)) {
    add_defaults(run, steps);
    add_kv_of_checkpoint(context, steps);
    add_own_client(run, context, steps);
    return steps.take();
  }
  const bool is_script = run.model == SweepModel::DeepSeekR1 || run.model == SweepModel::Llama70b ||
                         (run.model == SweepModel::GptOss120b && gpu.name != "h100-sxm");
  if (is_script) {
    steps.add("scheduler.enable_chunked_context", "false",
              "trtllm-serve chunks no prompts by default");
  }
  if (run.model == SweepModel::DeepSeekR1) {
    add_deepseek(run, gpu, context, steps);
    add_clients(run, steps);
    return steps.take();
  }
  if (is_script) {
    add_dense_or_gpt_oss(run, gpu, steps);
  } else {
    add_own_sweep(run, scenario, context, steps);
  }
  steps.add("engine.max_num_seqs", std::max<std::int64_t>(1024, run.num_clients),
            "--max_batch_size beyond the clients");
  steps.add("cost_model.max_graph_tokens", 1024, "cuda_graph_config with padding");
  steps.add("cost_model.gpu_memory_utilization", "0.9", "free_gpu_memory_fraction, its default");
  add_clients(run, steps);
  return steps.take();
}

}  // namespace metronome
