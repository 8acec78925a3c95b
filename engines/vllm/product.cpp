// SPDX-License-Identifier: Apache-2.0
#include "engines/vllm/product.h"

#include <fmt/core.h>
#include <string>
#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/kernel_rules.h"
#include "core/engine/policy.h"
#include "engines/vllm/recipe.h"
#include "engines/vllm/serve_defaults.h"
#include "engines/vllm/settings.h"

namespace metronome {
namespace {

constexpr std::string_view kVllmKeys[] = {"max_num_batched_tokens"};

// The part of the host's time during which the device waits.
constexpr HostGap kVllmHostGap = {
    .us = 400,
    .source =
        "vLLM 0.30: an inter-token latency of 6.86 ms for Qwen3-8B on an H100, batch 1 "
        "(github.com/tgarg01/silybench-data), less the other terms of a roofline"};

// 0.33 pads the drafts of an admitted request and asserts that no limit cuts them.
std::string warning(const SchedulerConfig& config, std::int64_t num_drafts) {
  const std::int64_t limit = config.settings<VllmConfig>().long_prefill_token_threshold;
  if (num_drafts == 0 || limit == 0 || limit > num_drafts) return "";
  return fmt::format(
      "vLLM may stop with a failed assertion when it admits a request: "
      "long_prefill_token_threshold {} cuts the {} drafts of a decode",
      limit, num_drafts);
}

BudgetTerms vllm_terms(const SchedulerConfig& config) {
  const VllmConfig& own = config.settings<VllmConfig>();
  return {.budget = token_budget(config),
          .chunk = own.long_prefill_token_threshold,
          .takes_whole_prompts = !own.enable_chunked_prefill,
          .orders_by_priority = own.scheduling_policy == VllmConfig::Policy::Priority};
}

constexpr std::string_view kOrders[] = {"fcfs", "priority"};
constexpr std::string_view kDepths[] = {"1", "2"};
constexpr std::string_view kTruths[] = {"false", "true"};
constexpr Remedy kRemedies[] = {
    {.key = "enable_chunked_prefill", .value = "true", .only_from = "false"},
    {.kind = RemedyKind::Tokens, .key = "long_prefill_token_threshold"},
    {.kind = RemedyKind::Rising, .key = "prefill_schedule_interval", .from = 2, .most = 32},
    {.kind = RemedyKind::Choice, .key = "scheduling_policy", .values = kOrders},
    {.kind = RemedyKind::Choice, .key = "scheduler_reserve_full_isl", .values = kTruths},
    {.kind = RemedyKind::Choice, .key = "engine.async_depth", .values = kDepths},
    {.kind = RemedyKind::Larger, .key = "cost_model.max_graph_tokens", .from = 1, .most = 1024},
    {.kind = RemedyKind::Count, .key = "max_num_active_seqs"}};

constexpr PolicyInfo kVllm = {
    .name = "vllm",
    .summary =
        "running requests in order of admission, then waiting ones, within a "
        "budget",
    .source = "vLLM 0.19 to 0.33, V1 scheduler",
    .product = "vLLM",
    .visit = visit_settings_of<VllmConfig>,
    .keys = kVllmKeys,
    .allows_watermark = true,
    .budget_key = "max_num_batched_tokens",
    .chunk_key = "long_prefill_token_threshold",
    .prefix_caching = PrefixCaching::Optional,
    .allows_sliding_window = true,
    .groups_states = true,
    .verifies_drafts = true,
    .allows_handover = true,
    .host_gap = kVllmHostGap,
    .reserved_gib = vllm_reserved_gib,
    .kernels = &kVllmKernels,
    .cache = {.has_null_block = true, .hits_unfilled_blocks = true},
    .adjust_cache = adjust_vllm_cache,
    .warning = warning,
    .budget_terms = vllm_terms,
    .remedies = kRemedies,
    .alternative_rank = 1,
    .make = make_vllm};

constexpr PolicyInfo kPolicies[] = {kVllm};

constexpr EngineProduct kProduct = {.name = "vllm",
                                    .policies = kPolicies,
                                    .check_settings = check_vllm_settings,
                                    .check_model = check_vllm_model,
                                    .check_pool = check_vllm_pool,
                                    .set_images = set_vllm_images,
                                    .longest_image = longest_vllm_image,
                                    .serve_defaults = vllm_serve_defaults,
                                    .recipe = vllm_recipe,
                                    .arguments = &kVllmArguments,
                                    .flags = &kVllmFlags,
                                    .log = &kVllmLog,
                                    .metrics = &kVllmMetrics,
                                    .decisions = &kVllmDecisions};

}  // namespace

const EngineProduct& vllm_product() { return kProduct; }

}  // namespace metronome
