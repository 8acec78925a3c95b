// SPDX-License-Identifier: Apache-2.0
#include "core/engine/policies/registry.h"

#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/engine/engine.h"
#include "core/engine/policies/policies.h"
#include "core/engine/scheduler.h"

namespace metronome {
namespace {

using Keys = std::string_view;

constexpr Keys kStaticKeys[] = {"batch_wait_ms"};
constexpr Keys kContinuousKeys[] = {"order"};
constexpr Keys kChunkedKeys[] = {"order", "prefill_chunk_size", "max_prefill_chunks_per_step"};
constexpr Keys kTokenBudgetKeys[] = {"order", "max_num_batched_tokens", "prefill_chunk_size",
                                     "max_num_partial_prefills", "min_chunk_size"};
constexpr Keys kSinglePrefillKeys[] = {"order", "max_num_batched_tokens"};
constexpr Keys kSloKeys[] = {"max_num_batched_tokens",
                             "itl_target_ms",
                             "tpot_target_ms",
                             "ttft_deadline_ms",
                             "tile_tokens",
                             "headroom",
                             "late_share",
                             "max_held_steps"};
constexpr Keys kVllmKeys[] = {"version",
                              "max_num_batched_tokens",
                              "scheduling_policy",
                              "enable_chunked_prefill",
                              "long_prefill_token_threshold",
                              "long_prefill_token_threshold_adaptive",
                              "scheduler_reserve_full_isl",
                              "max_num_active_seqs",
                              "prefill_schedule_interval",
                              "disable_chunked_mm_input"};
constexpr Keys kSarathiKeys[] = {
    "chunk_size",      "enable_dynamic_chunking_schedule", "low_chunk_size",
    "high_chunk_size", "chunk_schedule_max_tokens",        "chunk_schedule_stages"};
constexpr Keys kSimpleChunkingKeys[] = {"chunk_size"};
constexpr Keys kVllmPrefillFirstKeys[] = {"max_num_batched_tokens"};
constexpr Keys kNanoVllmKeys[] = {"max_num_batched_tokens"};
constexpr Keys kTensorRtLlmKeys[] = {"capacity_scheduler_policy",
                                     "context_chunking_policy",
                                     "enable_chunked_context",
                                     "max_num_tokens",
                                     "chunk_unit_size",
                                     "batch_wait_timeout_iters",
                                     "batch_wait_max_tokens_ratio"};
constexpr Keys kFastGenKeys[] = {"max_ragged_batch_size", "max_ragged_sequence_count",
                                 "max_tracked_sequences"};
constexpr Keys kLlamaCppKeys[] = {"n_batch", "cont_batching", "slot_prompt_similarity"};
constexpr Keys kSglangKeys[] = {"schedule_policy",
                                "chunked_prefill_size",
                                "max_prefill_tokens",
                                "enable_mixed_chunk",
                                "schedule_conservativeness",
                                "init_new_token_ratio",
                                "min_new_token_ratio_factor",
                                "new_token_ratio_decay_steps",
                                "retract_decode_steps",
                                "clip_max_new_tokens",
                                "scheduler_recv_interval",
                                "prefill_decode_interval",
                                "prefill_decode_interval_min_bs",
                                "prefill_max_requests",
                                "enable_priority_scheduling",
                                "schedule_low_priority_values_first",
                                "priority_scheduling_preemption_threshold",
                                "disable_priority_preemption",
                                "retraction_policy"};

// Host times during which the device waits. If an engine overlaps host and device, only the visible
// rest counts.
constexpr HostGap kVllmHostGap = {
    .us = 400,
    .source =
        "vLLM 0.30: an inter-token latency of 6.86 ms for Qwen3-8B on an H100, batch 1 "
        "(github.com/tgarg01/silybench-data), less the other terms of a roofline"};
constexpr HostGap kVllmV0HostGap = {
    .us = 4000,
    .us_per_request = 100,
    .source =
        "vLLM V0 before multi-step scheduling: GPU idle at each decode in the profiles of "
        "vllm-project/vllm issue 6854 (July 2024), which reports 5 to 13 ms in all; outputs "
        "of 1 and 32 requests in 0.2 and 3.4 ms in issue 6913"};
constexpr HostGap kSglangHostGap = {
    .source =
        "SGLang 0.4 and later overlap it: no idle GPU between five "
        "decode batches in the Nsight profile "
        "of its announcement (lmsys.org/blog/2024-12-04-sglang-v0-4)"};
constexpr HostGap kTensorRtLlmHostGap = {
    .us = 580,
    .source =
        "TensorRT-LLM's overlap scheduler: GPU idle per iteration, Llama-3.1-8B FP8 on a B200 at "
        "concurrency 64 (NVIDIA/TensorRT-LLM issue 13957, May 2026)"};

constexpr std::array kPolicies = {
    PolicyInfo{.name = "static",
               .summary = "forms a batch once; no request joins until all have finished",
               .source = "request-level batching, with a bounded wait for a full batch",
               .keys = kStaticKeys,
               .allows_allocation = true,
               .allows_watermark = true,
               .make = make_static},
    PolicyInfo{.name = "continuous",
               .summary = "decodes first, then the whole prompt of every request that fits",
               .source = "iteration-level scheduling without chunking",
               .keys = kContinuousKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .make = make_continuous},
    PolicyInfo{.name = "chunked",
               .summary = "every pending prompt advances by at most one chunk per step",
               .source = "batched chunked prefill without a token budget",
               .keys = kChunkedKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .make = make_chunked},
    PolicyInfo{.name = "token_budget",
               .summary = "decodes, then prompts in progress, then new ones, within a token budget",
               .source = "token-budget scheduling as in Sarathi-Serve and vLLM",
               .keys = kTokenBudgetKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .make = make_token_budget},
    PolicyInfo{.name = "single_prefill",
               .summary = "prefills one prompt at a time, with the tokens that the decodes leave",
               .source = "two forward passes per step: one chunk, then every decode",
               .keys = kSinglePrefillKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .natural_shape = StepShape::Separate,
               .requires_separate = true,
               .make = make_single_prefill},
    PolicyInfo{.name = "slo",
               .summary = "the largest chunk whose predicted time keeps the ITL target",
               .source = "a cost model, corrected by measured steps; deadlines order the prompts",
               .keys = kSloKeys,
               .allows_allocation = true,
               .allows_watermark = true,
               .predicts_steps = true,
               .default_token_budget = 8192,
               .make = make_slo},
    PolicyInfo{.name = "vllm",
               .summary = "running requests in order of admission, then waiting ones, within a "
                          "budget",
               .source = "vLLM 0.19 to 0.33, V1 scheduler",
               .keys = kVllmKeys,
               .allows_watermark = true,
               .prefix_caching = PrefixCaching::Optional,
               .allows_sliding_window = true,
               .host_gap = kVllmHostGap,
               .kv_memory = KvMemory::Vllm,
               .cache = {.has_null_block = true},
               .adjust_cache = adjust_vllm_cache,
               .make = make_vllm},
    PolicyInfo{.name = "sglang",
               .summary = "prompts while any can be taken, otherwise decodes; output estimated",
               .source = "SGLang 0.5.23",
               .keys = kSglangKeys,
               .has_token_budget = true,
               .prefix_caching = PrefixCaching::Optional,
               .requires_paged = true,
               .host_gap = kSglangHostGap,
               .kv_memory = KvMemory::Sglang,
               .prompt_graphs = PromptGraphs::All,
               .eager = {.attention_us = 1050},
               .cache = {.uses_radix_tree = true},
               .make = make_sglang},
    PolicyInfo{.name = "tensorrt_llm",
               .summary = "requests whose KV blocks fit, then chunks of prompts with the decodes",
               .source = "TensorRT-LLM: capacityScheduler 02a10fed, microBatchScheduler 0a949d31",
               .keys = kTensorRtLlmKeys,
               .has_token_budget = true,
               .prefix_caching = PrefixCaching::Optional,
               .host_gap = kTensorRtLlmHostGap,
               .kv_memory = KvMemory::TensorRtLlm,
               // AllReduceFusionOp: RESIDUAL_RMS_NORM_QUANT_FP8 and _NVFP4, for one.
               .fuses_conversions = true,
               .prompt_graphs = PromptGraphs::None,
               .default_graph_requests = 128,  // CudaGraphConfig.max_batch_size
               .eager = {.dense_us = 500, .experts_us = 700, .attention_us = 1600},
               .cache = {.hash_time = HashTime::Commit},
               .make = make_tensorrt_llm},
    PolicyInfo{.name = "sarathi",
               .summary = "decodes, then prompts in progress, then new ones, in one chunk of "
                          "tokens",
               .source = "Sarathi-Serve 96f9911",
               .keys = kSarathiKeys,
               .allows_watermark = true,
               .has_token_budget = true,
               .requires_paged = true,
               .default_watermark = 0.01,
               .make = make_sarathi},
    PolicyInfo{.name = "fastgen",
               .summary = "decodes, then whole or split prompts until the step is full",
               .source = "DeepSpeed-FastGen: Dynamic SplitFuse, DeepSpeed-MII 8abdd987",
               .keys = kFastGenKeys,
               .has_token_budget = true,
               .make = make_fastgen},
    PolicyInfo{.name = "llama_cpp",
               .summary = "slots that keep their cache, decodes, then prompts up to n_batch tokens",
               .source = "llama.cpp server: slots over one unified KV cache, block_size 1",
               .keys = kLlamaCppKeys,
               .has_token_budget = true,
               .prefix_caching = PrefixCaching::Optional,
               .eager = {0, 0, 0, 0},  // from C++: not measured
               .cache = {.hash_time = HashTime::Commit,
                         .duplicates = DuplicateRule::Unlisted,
                         .reuses_unhashed_first = true},
               .make = make_llama_cpp},
    PolicyInfo{.name = "nano_vllm",
               .summary = "prompts while any can run, otherwise decodes; one chunked at a time",
               .source = "nano-vllm bb823b3e",
               .keys = kNanoVllmKeys,
               .prefix_caching = PrefixCaching::Always,
               .default_token_budget = 16384,
               .prompt_graphs = PromptGraphs::None,
               .cache = {.hash_time = HashTime::Commit, .duplicates = DuplicateRule::KeepLatest},
               .make = make_nano_vllm},
    PolicyInfo{.name = "vllm_prefill_first",
               .summary = "a batch of whole prompts while any fit, otherwise all decodes",
               .source = "the vLLM scheduler of Sarathi-Serve 96f9911",
               .keys = kVllmPrefillFirstKeys,
               .allows_watermark = true,
               .requires_paged = true,
               .default_token_budget = kWholeModelLength,
               .default_watermark = 0.01,
               .host_gap = kVllmV0HostGap,
               .kv_memory = KvMemory::VllmV0,
               .prompt_graphs = PromptGraphs::None,
               .make = make_vllm_prefill_first},
    PolicyInfo{.name = "orca",
               .summary = "decodes and whole prompts together, max_model_len reserved for each",
               .source = "the Orca scheduler of Sarathi-Serve 96f9911",
               .keys = {},
               .make = make_orca},
    PolicyInfo{.name = "simple_chunking",
               .summary = "steps of prompt chunks and steps of decodes take turns",
               .source = "the simple chunking scheduler of Sarathi-Serve 96f9911",
               .keys = kSimpleChunkingKeys,
               .allows_watermark = true,
               .has_token_budget = true,
               .requires_paged = true,
               .default_watermark = 0.01,
               .make = make_simple_chunking},
};

}  // namespace

std::span<const PolicyInfo> all_policies() { return kPolicies; }

void arrange_cache(const PolicyInfo& policy, EngineSetup& setup) {
  KvCacheLayout& layout = setup.kv_cache;
  layout.plans_ahead = setup.async_depth > 1;
  layout.has_null_block = policy.cache.has_null_block;
  layout.hash_time = policy.cache.hash_time;
  layout.uses_radix_tree = policy.cache.uses_radix_tree;
  layout.duplicates = policy.cache.duplicates;
  layout.reuses_unhashed_first = policy.cache.reuses_unhashed_first;
  if (policy.adjust_cache != nullptr) {
    policy.adjust_cache(setup.scheduler, setup.max_model_len, layout);
  }
}

std::int64_t watermark_blocks(const PolicyInfo& policy, std::optional<double> share,
                              std::int64_t num_blocks) {
  const double watermark = share.value_or(policy.default_watermark);
  return static_cast<std::int64_t>(watermark * static_cast<double>(num_blocks));
}

bool caches_prefixes(const PolicyInfo& policy, const KvCacheConfig& config) {
  if (config.backend == KvBackend::Slotted) return false;
  return config.enable_prefix_caching.value_or(policy.prefix_caching != PrefixCaching::Never);
}

const PolicyInfo* find_policy(std::string_view name) {
  const auto it = std::find_if(kPolicies.begin(), kPolicies.end(),
                               [name](const PolicyInfo& policy) { return policy.name == name; });
  return it == kPolicies.end() ? nullptr : &*it;
}

}  // namespace metronome
