// SPDX-License-Identifier: Apache-2.0
// The settings of trtllm-serve, on its command line and in its YAML file, that a scenario has a key
// for. Sources: those of flags.cpp, and tensorrt_llm/commands/serve.py.
#include <array>
#include <iterator>

#include "engines/arguments/server_arguments.h"
#include "engines/tensorrt_llm/product.h"

namespace metronome {
namespace {

constexpr std::string_view kBlocks = "kv_cache_config.tokens_per_block";

constexpr ServerArgument kServerArguments[] = {
    {"max_num_tokens", "scheduler.max_num_tokens"},
    {"enable_chunked_prefill", "scheduler.enable_chunked_context", ArgumentKind::Switch},
    {"scheduler_config.capacity_scheduler_policy", "scheduler.capacity_scheduler_policy",
     ArgumentKind::Word},
    {"scheduler_config.context_chunking_policy", "scheduler.context_chunking_policy",
     ArgumentKind::Word},
    {"batch_wait_timeout_iters", "scheduler.batch_wait_timeout_iters"},
    {"batch_wait_max_tokens_ratio", "scheduler.batch_wait_max_tokens_ratio", ArgumentKind::Number},
    {"max_batch_size", "engine.max_num_seqs"},
    {"max_seq_len", "engine.max_model_len"},
    {kBlocks, "kv_cache.block_size"},
    {"kv_cache_config.enable_block_reuse", "kv_cache.enable_prefix_caching", ArgumentKind::Switch},
    {"kv_cache_config.max_tokens", "kv_cache.num_blocks", ArgumentKind::Tokens},
    {"kv_cache_config.free_gpu_memory_fraction", "cost_model.gpu_memory_utilization",
     ArgumentKind::Number},
    {"kv_cache_config.dtype", "kv_cache.dtype", ArgumentKind::Word, "auto",
     "auto=auto, fp8=fp8, bfloat16=bf16, float16=bf16"},
    {"disable_overlap_scheduler", "engine.async_depth", ArgumentKind::Negation},
    {"tensor_parallel_size", "cost_model.tensor_parallel_size", ArgumentKind::Count, "1"},
    {"torch_compile_config.capture_num_tokens", "cost_model.max_prompt_graph_tokens",
     ArgumentKind::Largest},
    {"prefill_capture_num_tokens", "cost_model.max_prompt_graph_tokens", ArgumentKind::Largest},
    {"torch_compile_config.enable_piecewise_cuda_graph", "cost_model.max_prompt_graph_tokens",
     ArgumentKind::Word, "", "False=0"},
    {"prefill_cuda_graph_backend", "cost_model.max_prompt_graph_tokens", ArgumentKind::Word, "",
     "None=0, disabled=0"},
    {"cuda_graph_config", "cost_model.max_graph_tokens", ArgumentKind::Word, "", "None=0"},
    {"cuda_graph_config.max_batch_size", "cost_model.max_graph_tokens"},
    {"cuda_graph_config.batch_sizes", "cost_model.max_graph_tokens", ArgumentKind::Largest}};

// Options of the command line that are keys of the file under another name.
constexpr std::pair<std::string_view, std::string_view> kOptions[] = {
    {"tp_size", "tensor_parallel_size"},
    {"kv_cache_free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"},
    {"free_gpu_memory_fraction", "kv_cache_config.free_gpu_memory_fraction"},
    {"kv_cache_dtype", "kv_cache_config.dtype"}};

constexpr auto kDerived = [] {
  std::array<std::string_view, std::size(kOptions)> names;
  for (std::size_t i = 0; i < names.size(); ++i) names[i] = kOptions[i].first;
  return names;
}();

// The server counts its blocks in tokens, 32 of them in a block.
void derive(EngineArguments& arguments, std::vector<std::string>&) {
  for (const auto& [option, key] : kOptions) {
    auto given = arguments.extract(std::string(option));
    if (given.empty()) continue;
    given.key() = std::string(key);
    arguments.insert(std::move(given));
  }
  if (arguments.contains("kv_cache_config.max_tokens")) {
    arguments.try_emplace(std::string(kBlocks), "32");
  }
}

constexpr ServerStart kStarts[] = {
    {"trtllm-serve serve"}, {"trtllm-serve"}, {"nvcr.io/nvidia/tensorrt-llm/release", true}};
constexpr std::string_view kFiles[] = {"extra_llm_api_options", "config"};

}  // namespace

constexpr ServerArguments kTensorRtLlmArguments = {.policy = "tensorrt_llm",
                                                   .title = "TensorRT-LLM",
                                                   .rows = kServerArguments,
                                                   .has_own_names = true,
                                                   .model = "model",
                                                   .block = kBlocks,
                                                   .starts = kStarts,
                                                   .variable_prefix = "TRTLLM_",
                                                   .files = kFiles,
                                                   .file_wins = true,
                                                   .derived = kDerived,
                                                   .derive = derive};

}  // namespace metronome
