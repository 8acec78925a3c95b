// SPDX-License-Identifier: Apache-2.0
// Keys of trtllm-serve, which it reads from a YAML file: TorchLlmArgs, KvCacheConfig,
// SchedulerConfig and CudaGraphConfig of TensorRT-LLM's tensorrt_llm/llmapi/llm_args.py.
#include <string_view>

#include "core/scenario/scenario.h"
#include "engines/flags/flag_list.h"
#include "engines/tensorrt_llm/product.h"
#include "engines/tensorrt_llm/settings.h"

namespace metronome {

extern const std::string_view kTensorRtLlmFlagsYaml;  // engines/tensorrt_llm/flags.yaml

namespace {

constexpr const char* kCapacities[] = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION", "STATIC_BATCH"};
constexpr const char* kChunkings[] = {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"};

void add_trtllm_scheduler(const TensorRtLlmConfig& config, FlagList& list) {
  list.add("max_num_tokens:", std::int64_t{config.max_num_tokens});
  list.add("enable_chunked_prefill:", config.enable_chunked_context ? "true" : "false");
  list.add("scheduler_config.capacity_scheduler_policy:",
           kCapacities[static_cast<std::size_t>(config.capacity_scheduler_policy)]);
  list.add("scheduler_config.context_chunking_policy:",
           kChunkings[static_cast<std::size_t>(config.context_chunking_policy)]);
  if (config.batch_wait_timeout_iters > 0) {
    list.add("batch_wait_timeout_iters:", std::int64_t{config.batch_wait_timeout_iters});
  }
  if (config.batch_wait_max_tokens_ratio > 0) {
    list.add("batch_wait_max_tokens_ratio:", shortest_text(config.batch_wait_max_tokens_ratio));
  }
  if (config.chunk_unit_size > 0) list.note("scheduler.chunk_unit_size has no key");
}

// The nearest power of two, which TensorRT-LLM asks of a block (KVBlockArray in kvCacheUtils.h).
std::int64_t power_of_two(std::int64_t size) {
  std::int64_t power = 1;
  while (power * 2 <= size) power *= 2;
  return size - power > power * 2 - size ? power * 2 : power;
}

EngineFlags write_flags(const Scenario& scenario) {
  FlagList list("trtllm-serve", "1.1");
  list.use_yaml();
  add_trtllm_scheduler(scenario.scheduler.settings<TensorRtLlmConfig>(), list);
  list.add("max_batch_size:", scenario.engine.max_num_seqs);
  if (scenario.engine.max_model_len) list.add("max_seq_len:", *scenario.engine.max_model_len);
  list.add("kv_cache_config.enable_block_reuse:", has_prefixes(scenario) ? "true" : "false");
  const std::int64_t block_size = power_of_two(scenario.kv_cache.block_size);
  list.add("kv_cache_config.tokens_per_block:", block_size);
  list.note_nearest("kv_cache.block_size", scenario.kv_cache.block_size, block_size,
                    "TensorRT-LLM takes powers of two");
  if (const std::int64_t tokens = pool_tokens(scenario); tokens > 0) {
    list.add("kv_cache_config.max_tokens:", tokens);
  } else {
    list.add("kv_cache_config.free_gpu_memory_fraction:",
             shortest_text(scenario.cost_model.gpu_memory_utilization));
  }
  if (scenario.kv_dtype == KvDtype::Fp8) list.add("kv_cache_config.dtype:", "fp8");
  if (scenario.engine.async_depth == 1) list.add("disable_overlap_scheduler:", "true");
  const std::optional<std::int64_t>& graph = scenario.cost_model.max_graph_tokens;
  if (graph && *graph == 0) {
    list.add("cuda_graph_config:", "null");
  } else if (graph) {
    list.add("cuda_graph_config.max_batch_size:", *graph);
  }
  if (scenario.cost_model.tensor_parallel_size > 1) {
    list.add("tensor_parallel_size:", scenario.cost_model.tensor_parallel_size);
  }
  note_formats(scenario, "a checkpoint", list);
  if (scenario.speculative.has_drafts()) list.note("options of drafts are not translated");
  return list.take();
}

}  // namespace

constexpr ServerFlags kTensorRtLlmFlags = {.server = "trtllm-serve",
                                           .memory = "kv_cache_config.free_gpu_memory_fraction",
                                           .num_seqs = "max_batch_size",
                                           .pool = "kv_cache_config.max_tokens",
                                           .graphs = "cuda_graph_config.max_batch_size",
                                           .blocking_advice =
                                               "scheduler_config.context_chunking_policy "
                                               "EQUAL_PROGRESS shares a step among prompts.",
                                           .write = write_flags,
                                           .known = &kTensorRtLlmFlagsYaml};

}  // namespace metronome
