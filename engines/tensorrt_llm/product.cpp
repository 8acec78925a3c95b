// SPDX-License-Identifier: Apache-2.0
#include "engines/tensorrt_llm/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/kernel_rules.h"
#include "core/engine/policy.h"
#include "engines/tensorrt_llm/recipe.h"
#include "engines/tensorrt_llm/settings.h"

namespace metronome {
namespace {

// The part of the host's time during which the device waits.
constexpr HostGap kTensorRtLlmHostGap = {
    .us = 580,
    .source =
        "TensorRT-LLM's overlap scheduler: GPU idle per iteration, Llama-3.1-8B FP8 on a B200 at "
        "concurrency 64 (NVIDIA/TensorRT-LLM issue 13957, May 2026)"};

constexpr KernelRules kKernels = {.table_name = "trtllm",
                                  .has_fused_reduces = true,
                                  .has_quantised_inputs = true,
                                  .has_float32_routers = false};  // none are known

BudgetTerms tensorrt_llm_terms(const SchedulerConfig& config) {
  const TensorRtLlmConfig& own = config.settings<TensorRtLlmConfig>();
  return {.budget = own.max_num_tokens, .takes_whole_prompts = !own.enable_chunked_context};
}

constexpr std::string_view kTriedCapacities[] = {"GUARANTEED_NO_EVICT", "MAX_UTILIZATION"};
constexpr std::string_view kTriedChunkings[] = {"FIRST_COME_FIRST_SERVED", "EQUAL_PROGRESS"};
constexpr std::string_view kDepths[] = {"1", "2"};
constexpr std::string_view kNoWait[] = {"0"};
// Prompts wait for a step of which they fill at least half.
constexpr PolicySetting kHalfFull[] = {{"batch_wait_max_tokens_ratio", "0.5"}};
constexpr Remedy kRemedies[] = {
    {.key = "enable_chunked_context", .value = "true", .only_from = "false"},
    {.kind = RemedyKind::Choice, .key = "context_chunking_policy", .values = kTriedChunkings},
    {.kind = RemedyKind::Choice, .key = "capacity_scheduler_policy", .values = kTriedCapacities},
    {.kind = RemedyKind::Rising,
     .key = "batch_wait_timeout_iters",
     .from = 4,
     .most = 32,
     .together_with = kHalfFull},
    {.kind = RemedyKind::Choice, .key = "batch_wait_timeout_iters", .values = kNoWait},
    {.kind = RemedyKind::Choice, .key = "engine.async_depth", .values = kDepths},
    {.kind = RemedyKind::Larger, .key = "cost_model.max_graph_tokens", .from = 1, .most = 1024}};

constexpr PolicyInfo kTensorrtLlm = {
    .name = "tensorrt_llm",
    .summary = "requests whose KV blocks fit, then chunks of prompts with the decodes",
    .source = "TensorRT-LLM: capacityScheduler 02a10fed, microBatchScheduler 0a949d31",
    .product = "TensorRT-LLM",
    .visit = visit_settings_of<TensorRtLlmConfig>,
    .budget_key = "max_num_tokens",
    .prefix_caching = PrefixCaching::Optional,
    .host_gap = kTensorRtLlmHostGap,
    .memory_share = MemoryShare::OfWhatIsLeft,
    .reserved_gib = tensorrt_llm_reserved_gib,
    .kernels = &kKernels,
    // AllReduceFusionOp: RESIDUAL_RMS_NORM_QUANT_FP8 and _NVFP4, for one.
    .fuses_conversions = true,
    .prompt_graphs = PromptGraphs::None,
    .default_graph_requests = 128,  // CudaGraphConfig.max_batch_size
    .eager = {.dense_us = 500, .experts_us = 700, .attention_us = 1600},
    .cache = {.hash_time = HashTime::Commit, .hits_unfilled_blocks = true},
    .budget_terms = tensorrt_llm_terms,
    .remedies = kRemedies,
    .make = make_tensorrt_llm};

constexpr PolicyInfo kPolicies[] = {kTensorrtLlm};

constexpr EngineProduct kProduct = {.name = "tensorrt_llm",
                                    .policies = kPolicies,
                                    .check_settings = check_tensorrt_llm_settings,
                                    .recipe = tensorrt_llm_recipe,
                                    .arguments = &kTensorRtLlmArguments,
                                    .flags = &kTensorRtLlmFlags,
                                    .log = &kTensorRtLlmLog};

}  // namespace

const EngineProduct& tensorrt_llm_product() { return kProduct; }

}  // namespace metronome
