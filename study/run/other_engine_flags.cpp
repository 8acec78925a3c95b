// SPDX-License-Identifier: Apache-2.0
// Flags of llama-server and keys of trtllm-serve. Sources of the names: llama.cpp's common/arg.cpp
// (llama-server --help), and TorchLlmArgs, KvCacheConfig, SchedulerConfig and CudaGraphConfig of
// TensorRT-LLM's tensorrt_llm/llmapi/llm_args.py, whose keys trtllm-serve reads from a YAML file.
#include "core/engine/policies/registry.h"
#include "engines/llama_cpp/settings.h"
#include "engines/tensorrt_llm/settings.h"
#include "study/run/flag_list.h"

namespace metronome {
namespace {

bool has_prefixes(const Scenario& scenario) {
  return caches_prefixes(*find_policy(scenario.scheduler.policy), scenario.kv_cache);
}

// Tokens of the KV cache, if the scenario sets its size; 0: it does not.
std::int64_t pool_tokens(const Scenario& scenario) {
  const KvCacheConfig& cache = scenario.kv_cache;
  if (cache.backend != KvBackend::Paged || !cache.num_blocks) return 0;
  return *cache.num_blocks * cache.block_size;
}

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

void note_formats(const Scenario& scenario, const char* checkpoint, FlagList& list) {
  if (scenario.quantization != Quantization::Auto) {
    list.note(std::string("quantization: serve ") + checkpoint + " in that format");
  }
  if (scenario.engine.max_waiting_requests > 0) {
    list.note("engine.max_waiting_requests has no setting: put a limit in front of the server");
  }
}

// The nearest power of two, which TensorRT-LLM asks of a block (KVBlockArray in kvCacheUtils.h).
std::int64_t power_of_two(std::int64_t size) {
  std::int64_t power = 1;
  while (power * 2 <= size) power *= 2;
  return size - power > power * 2 - size ? power * 2 : power;
}

}  // namespace

EngineFlags llama_server_flags(const Scenario& scenario) {
  const LlamaCppConfig& config = scenario.scheduler.settings<LlamaCppConfig>();
  FlagList list("llama-server", "(llama-cpp-python 0.3.36)");
  list.add("-b", std::int64_t{config.n_batch});
  list.add("-np", scenario.engine.max_num_seqs);
  constexpr std::int64_t kMostSlots = 256;  // LLAMA_MAX_SEQ
  if (scenario.engine.max_num_seqs > kMostSlots) {
    list.refuse("it refuses -np " + std::to_string(scenario.engine.max_num_seqs) + " above " +
                std::to_string(kMostSlots));
  }
  list.add("-kvu");
  if (const std::int64_t tokens = pool_tokens(scenario); tokens > 0) {
    list.add("-c", tokens);
  } else {
    list.note("-c is as many tokens of context, of all slots together, as fit in memory");
  }
  if (!config.cont_batching) list.add("--no-cont-batching");
  if (has_prefixes(scenario)) {
    list.add("--slot-prompt-similarity", shortest_text(config.slot_prompt_similarity));
    list.add("--cache-ram", std::int64_t{0});
  } else {
    list.add("--no-cache-prompt");
  }
  if (scenario.kv_dtype == KvDtype::Fp8) {
    list.note("kv_cache.dtype fp8: -ctk q8_0 -ctv q8_0 are the nearest");
  }
  note_formats(scenario, "a GGUF file", list);
  if (scenario.speculative.has_drafts()) list.note("options of drafts are not translated");
  return list.take();
}

EngineFlags trtllm_serve_flags(const Scenario& scenario) {
  FlagList list("trtllm-serve", "1.1");
  list.is_yaml();
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
  if (scenario.cost_model.tensor_parallel_size > 1) {
    list.add("tensor_parallel_size:", scenario.cost_model.tensor_parallel_size);
  }
  note_formats(scenario, "a checkpoint", list);
  if (scenario.speculative.has_drafts()) list.note("options of drafts are not translated");
  return list.take();
}

}  // namespace metronome
