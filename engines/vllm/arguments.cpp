// SPDX-License-Identifier: Apache-2.0
// The settings of vLLM's server that a scenario has a key for.
#include <algorithm>

#include "core/base/names.h"
#include "engines/arguments/server_arguments.h"
#include "engines/log/log_text.h"
#include "engines/vllm/product.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

// CacheDType of vllm/config/cache.py.
constexpr std::string_view kKvTypes =
    "auto=auto, float16=bf16, bfloat16=bf16, fp8=fp8, fp8_e4m3=fp8, fp8_e5m2=fp8, fp8_inc=fp8";
// QuantizationMethods of vllm/model_executor/layers/quantization/__init__.py, and of older
// versions. A format that the checkpoint says is as it says. The nearest ones stand for others:
// fp8 for integers of 8 bits and MXFP8.
constexpr std::string_view kFormats =
    "None=, auto=, compressed-tensors=, modelopt=, modelopt_mixed=, quark=, torchao=, gguf=, "
    "humming=, fp8=fp8, fbgemm_fp8=fp8, ptpc_fp8=fp8, fp8_per_tensor=fp8, fp8_per_channel=fp8, "
    "deepseek_v4_fp8=fp8, fp8_per_block=fp8_block, modelopt_mxfp8=fp8, mxfp8=fp8, rtn=fp8, "
    "int8_per_channel_weight_only=fp8, tpu_int8=fp8, deepspeedfp=fp8, modelopt_fp4=nvfp4, "
    "petit_nvfp4=nvfp4, nvfp4_per_token=nvfp4, fp_quant=nvfp4, mxfp4=mxfp4, gpt_oss_mxfp4=mxfp4, "
    "awq=int4, awq_marlin=int4, auto_awq=int4, cpu_awq=int4, gptq=int4, gptq_marlin=int4, "
    "auto_gptq=int4, cpu_gptq=int4, gptq_bitblas=int4, gptq_marlin_24=int4, moe_wna16=int4, "
    "inc=int4, auto-round=int4, auto_round=int4, bitblas=int4, hqq=int4, ipex=int4, "
    "bitsandbytes=int4";
// SpeculativeMethod of vllm/config/speculative.py. derive() makes "mtp" of the names that models
// give it ("qwen3_5_mtp"), and takes out methods that are not simulated.
constexpr std::string_view kDrafters =
    "ngram=ngram, ngram_gpu=ngram, draft_model=draft_model, eagle=eagle, eagle3=eagle, mtp=mtp";
constexpr std::string_view kSimulatedDrafters[] = {"ngram", "ngram_gpu", "draft_model",
                                                   "eagle", "eagle3",    "mtp"};

// Sources of the names and meanings: those of flags.cpp.
constexpr ServerArgument kServerArguments[] = {
    {"max_num_batched_tokens"},
    {"max_num_seqs", "engine.max_num_seqs"},
    {"max_model_len", "engine.max_model_len"},
    {"block_size", "kv_cache.block_size"},
    {"enable_prefix_caching", "kv_cache.enable_prefix_caching", ArgumentKind::Switch},
    {"num_gpu_blocks_override", "kv_cache.num_blocks"},
    {"gpu_memory_utilization", "cost_model.gpu_memory_utilization", ArgumentKind::Number},
    {"async_scheduling", "engine.async_depth", ArgumentKind::Switch},
    {"max_cudagraph_capture_size", "cost_model.max_graph_tokens"},
    {"cudagraph_capture_sizes", "cost_model.max_graph_tokens", ArgumentKind::Largest},
    {"compilation_config.max_cudagraph_capture_size", "cost_model.max_graph_tokens"},
    {"compilation_config.cudagraph_capture_sizes", "cost_model.max_graph_tokens",
     ArgumentKind::Largest},
    {"compilation_config.cudagraph_mode", "cost_model.max_graph_tokens", ArgumentKind::Word, "",
     "NONE=0, FULL=, FULL_AND_PIECEWISE="},
    {"compilation_config.cudagraph_mode", "cost_model.max_prompt_graph_tokens", ArgumentKind::Word,
     "", "FULL_DECODE_ONLY=0"},
    {"enforce_eager", "cost_model.max_graph_tokens", ArgumentKind::Off},
    {"tensor_parallel_size", "cost_model.tensor_parallel_size", ArgumentKind::Count, "1"},
    {"kv_cache_dtype", "kv_cache.dtype", ArgumentKind::Word, "auto", kKvTypes},
    {"quantization", "quantization", ArgumentKind::Word, "", kFormats},
    {"dtype", "quantization", ArgumentKind::Word, "auto", "auto=, half=, float16=, bfloat16="},
    {"prefix_cache_retention_interval", "kv_cache.prefix_cache_retention_interval"},
    {"speculative_config.method", "speculative.method", ArgumentKind::Word, "", kDrafters},
    {"speculative_config.num_speculative_tokens", "speculative.num_speculative_tokens"},
    {"speculative_config.prompt_lookup_max", "speculative.prompt_lookup_max"},
    {"speculative_config.prompt_lookup_min", "speculative.prompt_lookup_min"},
    {"speculative_config.draft_tensor_parallel_size", "speculative.draft_tensor_parallel_size"},
    {"speculative_config.num_speculative_tokens_per_batch_size",
     "speculative.num_speculative_tokens_per_batch_size", ArgumentKind::Word},
    {"speculative_config.model", "speculative.model", ArgumentKind::Word},
    {"watermark", "kv_cache.watermark", ArgumentKind::Number}};

constexpr std::string_view kNoArguments[] = {"version"};

// "0.33.1" is {0, 33}.
std::pair<int, int> version_of(const EngineArguments& arguments) {
  const auto found = arguments.find("version");
  if (found == arguments.end()) return {};
  const std::string_view text = found->second;
  const std::size_t dot = std::min(text.find('.'), text.size());
  const std::string_view rest = text.substr(std::min(dot + 1, text.size()));
  return {number_in<int>(text.substr(0, dot)).value_or(0),
          number_in<int>(rest.substr(0, rest.find('.'))).value_or(0)};
}

// vLLM says its token budget at its start, "Chunked prefill is enabled with ...". From 0.32 on it
// leaves out this line where the budget is 2,048: seen in real logs, in 3 of 3 without the line and
// in none of 6 with it.
constexpr const char* kUnprintedBudget = "2048";

void add_unprinted_budget(EngineArguments& arguments) {
  constexpr std::pair kFirstVersion(0, 32);
  const auto chunks = arguments.find("enable_chunked_prefill");
  const bool has_start = arguments.contains("model") || arguments.contains("model_tag");
  const bool is_chunked = chunks == arguments.end() || chunks->second != "False";
  if (!has_start || !is_chunked || version_of(arguments) < kFirstVersion) return;
  const std::string name = "max_num_batched_tokens";
  if (arguments.contains(name) || arguments.contains(kChosen + name)) return;
  arguments[kChosen + name] = kUnprintedBudget;
  arguments[kOriginNote] =
      "The log does not say --max-num-batched-tokens, and lacks the line \"Chunked prefill is "
      "enabled with\", which vLLM from 0.32 on leaves out where the value is 2048.";
}

// Short forms of keys of --speculative-config, and the model as a word of the command.
constexpr std::string_view kPoolBytes = "kv_cache_memory_bytes";
constexpr std::string_view kDerived[] = {"spec_method",
                                         "spec_model",
                                         "spec_tokens",
                                         "model_tag",
                                         kPoolBytes,
                                         "rope_scaling",
                                         "hf_overrides.rope_scaling",
                                         "hf_overrides.rope_parameters"};
constexpr std::string_view kDerivedTo[] = {"speculative_config.method", "speculative_config.model",
                                           "speculative_config.num_speculative_tokens", "model"};

// A drafter of another kind has no place in a scenario: the server is simulated without drafts.
bool drop_unknown_drafter(const std::string& prefix, EngineArguments& arguments,
                          std::vector<std::string>& notes) {
  const auto method = arguments.find(prefix + "method");
  if (method == arguments.end() || method->second == kNotSet) return false;
  std::string& name = method->second;
  if (name.ends_with("_mtp")) name = "mtp";
  const bool is_known = std::find(std::begin(kSimulatedDrafters), std::end(kSimulatedDrafters),
                                  name) != std::end(kSimulatedDrafters);
  if (is_known) return false;
  notes.push_back("Not simulated: the drafts of method " + printable(name) +
                  ": each step gives one token, as without drafts.");
  std::erase_if(arguments, [&prefix](const auto& one) { return one.first.starts_with(prefix); });
  return true;
}

// A drafter's kind where the method is not said (SpeculativeConfig.__post_init__).
void derive(EngineArguments& arguments, std::vector<std::string>& notes) {
  for (std::size_t i = 0; i < std::size(kDerivedTo); ++i) {
    auto given = arguments.extract(std::string(kDerived[i]));
    if (!given.empty()) arguments.try_emplace(std::string(kDerivedTo[i]), given.mapped());
  }
  if (count_of(arguments, "max_model_len").value_or(0) < 0) arguments.erase("max_model_len");
  const std::string prefix = "speculative_config.";
  // One of the two lengths of a lookup is the other, too (SpeculativeConfig.__post_init__).
  const auto most = arguments.find(prefix + "prompt_lookup_max");
  const auto least = arguments.find(prefix + "prompt_lookup_min");
  if (most != arguments.end()) arguments.try_emplace(prefix + "prompt_lookup_min", most->second);
  if (least != arguments.end()) arguments.try_emplace(prefix + "prompt_lookup_max", least->second);
  const auto model = arguments.find(prefix + "model");
  const std::string name = model == arguments.end() ? "" : lower_ascii(model->second);
  const auto has = [&name](std::string_view part) { return name.find(part) != std::string::npos; };
  const bool is_ngram = name == "ngram" || name == "[ngram]";
  if (model != arguments.end()) {
    arguments.try_emplace(prefix + "method", is_ngram        ? "ngram"
                                             : has("eagle")  ? "eagle"
                                             : has("dflash") ? "dflash"
                                             : has("medusa") ? "medusa"
                                             : has("mtp")    ? "mtp"
                                                             : "draft_model");
  }
  if (drop_unknown_drafter(prefix, arguments, notes) || model == arguments.end()) return;
  if (arguments.at(prefix + "method") == "draft_model") return;
  if (!is_ngram) {
    notes.push_back("The drafter " + printable(model->second) +
                    " is simulated as one layer of the model.");
  }
  arguments.erase(model);
}

constexpr std::pair<std::string_view, std::string_view> kRewrites[] = {
    {"-O.", "--compilation-config."},
    {"-O=", "--optimization-level="},
    {"-O", "--optimization-level="}};

constexpr ServerStart kStarts[] = {{"vllm serve"},
                                   {"vllm.entrypoints.openai.api_server"},
                                   {"vllm.entrypoints.api_server"},
                                   {"vllm/entrypoints/openai/api_server.py"},
                                   {"vllm/vllm-openai", true},
                                   {"rocm/vllm", true},
                                   {"nvcr.io/nvidia/vllm", true, false}};
constexpr std::string_view kLogMarkers[] = {"non-default args: ", "args: "};
constexpr std::string_view kFiles[] = {"config"};

}  // namespace

constexpr ServerArguments kVllmArguments = {.policy = "vllm",
                                            .title = "vLLM",
                                            .rows = kServerArguments,
                                            .none = kNoArguments,
                                            .has_negations = true,
                                            .versions = kVllmVersions,
                                            .model = "model",
                                            .pool = "kv_cache_size_tokens",
                                            .block = "block_size",
                                            .pool_bytes = kPoolBytes,
                                            .ranks = "data_parallel_size",
                                            .rank_router = "vllm_dp",
                                            .starts = kStarts,
                                            .variable_prefix = "VLLM_",
                                            .log_markers = kLogMarkers,
                                            .files = kFiles,
                                            .rewrites = kRewrites,
                                            .complete = add_unprinted_budget,
                                            .derived = kDerived,
                                            .derive = derive};

}  // namespace metronome
