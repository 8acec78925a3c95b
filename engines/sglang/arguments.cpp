// SPDX-License-Identifier: Apache-2.0
// The settings of SGLang's server that a scenario has a key for.
#include <array>

#include "engines/arguments/server_arguments.h"
#include "engines/sglang/product.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

// QUANTIZATION_CHOICES of srt/server_args.py. fp8 stands for integers of 8 bits and MXFP8.
constexpr std::string_view kFormats =
    "None=, unquant=none, compressed-tensors=, modelopt=, modelopt_mixed=, auto-round=, "
    "auto_round=, quark=, "
    "gguf=, humming=, modelslim=, fp8=fp8, modelopt_fp8=fp8, w8a8_fp8=fp8, mxfp8=fp8, "
    "w8a8_int8=fp8, auto-round-int8=fp8, mlx_q8=fp8, modelopt_fp4=nvfp4, nvfp4_online=nvfp4, "
    "petit_nvfp4=nvfp4, mxfp4=mxfp4, quark_mxfp4=mxfp4, awq=int4, awq_marlin=int4, gptq=int4, "
    "gptq_marlin=int4, bitsandbytes=int4, moe_wna16=int4, marlin=int4, qoq=int4, mlx_q4=int4";

// Of a kind of passes; True is --disable-piecewise-cuda-graph.
constexpr std::string_view kGraphBackends = "disabled=0, True=0, full=, breakable=, tc_piecewise=";

// Sources of the names and meanings: those of flags.cpp.
constexpr ServerArgument kServerArguments[] = {
    {"schedule_policy"},
    {"chunked_prefill_size"},
    {"max_prefill_tokens"},
    {"schedule_conservativeness"},
    {"max_running_requests", "engine.max_num_seqs"},
    {"context_length", "engine.max_model_len"},
    {"page_size", "kv_cache.block_size"},
    {"disable_radix_cache", "kv_cache.enable_prefix_caching", ArgumentKind::Negation},
    {"max_total_tokens", "kv_cache.num_blocks", ArgumentKind::Tokens},
    {"mem_fraction_static", "cost_model.gpu_memory_utilization", ArgumentKind::Number},
    {"disable_overlap_schedule", "engine.async_depth", ArgumentKind::Negation},
    {"tp_size", "cost_model.tensor_parallel_size", ArgumentKind::Count, "1"},
    {"max_queued_requests", "engine.max_waiting_requests"},
    {"cuda_graph_max_bs_decode", "cost_model.max_graph_tokens"},
    {"cuda_graph_config.decode.max_bs", "cost_model.max_graph_tokens"},
    {"cuda_graph_config.decode.bs", "cost_model.max_graph_tokens", ArgumentKind::Largest},
    {"cuda_graph_config.decode.backend", "cost_model.max_graph_tokens", ArgumentKind::Word, "",
     kGraphBackends},
    {"cuda_graph_backend_decode", "cost_model.max_graph_tokens", ArgumentKind::Word, "",
     kGraphBackends},
    {"cuda_graph_bs_decode", "cost_model.max_graph_tokens", ArgumentKind::Largest},
    {"disable_decode_cuda_graph", "cost_model.max_graph_tokens", ArgumentKind::Off},
    {"disable_cuda_graph", "cost_model.max_graph_tokens", ArgumentKind::Off},
    {"cuda_graph_max_bs_prefill", "cost_model.max_prompt_graph_tokens"},
    {"cuda_graph_config.prefill.max_bs", "cost_model.max_prompt_graph_tokens"},
    {"cuda_graph_config.prefill.bs", "cost_model.max_prompt_graph_tokens", ArgumentKind::Largest},
    {"cuda_graph_config.prefill.backend", "cost_model.max_prompt_graph_tokens", ArgumentKind::Word,
     "", kGraphBackends},
    {"cuda_graph_backend_prefill", "cost_model.max_prompt_graph_tokens", ArgumentKind::Word, "",
     kGraphBackends},
    {"enable_piecewise_cuda_graph", "cost_model.max_prompt_graph_tokens", ArgumentKind::Word, "",
     "True=, False=0"},
    {"cuda_graph_bs_prefill", "cost_model.max_prompt_graph_tokens", ArgumentKind::Largest},
    {"disable_prefill_cuda_graph", "cost_model.max_prompt_graph_tokens", ArgumentKind::Off},
    {"kv_cache_dtype", "kv_cache.dtype", ArgumentKind::Word, "auto",
     "auto=auto, bf16=bf16, bfloat16=bf16, fp8_e4m3=fp8, fp8_e5m2=fp8"},
    {"quantization", "quantization", ArgumentKind::Word, "", kFormats},
    {"dtype", "quantization", ArgumentKind::Word, "auto", "auto=, half=, float16=, bfloat16="}};

constexpr auto kNoArguments = [] {
  std::array<std::string_view, std::size(kSglangVariables)> keys;
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = kSglangVariables[i].key;
  return keys;
}();

constexpr std::pair<std::string_view, std::string_view> kRenamed[] = {
    {"context_len", "context_length"}};

constexpr auto kVariables = [] {
  std::array<std::pair<std::string_view, std::string_view>, std::size(kSglangVariables)> rows;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    rows[i] = {kSglangVariables[i].name, kSglangVariables[i].key};
  }
  return rows;
}();

constexpr std::string_view kDerived[] = {"json_model_override_args.rope_scaling",
                                         "json_model_override_args.rope_parameters"};
constexpr ServerStart kStarts[] = {
    {"sglang.launch_server"},  {"sglang/launch_server.py"}, {"sglang serve"},
    {"lmsysorg/sglang", true}, {"rocm/sglang", true},       {"nvcr.io/nvidia/sglang", true, false}};
constexpr std::string_view kLogMarkers[] = {"server_args="};
constexpr std::string_view kFiles[] = {"config"};

}  // namespace

constexpr ServerArguments kSglangArguments = {.policy = "sglang",
                                              .title = "SGLang",
                                              .rows = kServerArguments,
                                              .none = kNoArguments,
                                              .renamed = kRenamed,
                                              .model = "model_path",
                                              .pool = "max_total_num_tokens",
                                              .block = "page_size",
                                              .ranks = "dp_size",
                                              .joint_ranks = "enable_dp_attention",
                                              .rank_router = "round_robin",
                                              .starts = kStarts,
                                              .variable_prefix = "SGLANG_",
                                              .log_markers = kLogMarkers,
                                              .files = kFiles,
                                              .variables = kVariables,
                                              .derived = kDerived};

}  // namespace metronome
