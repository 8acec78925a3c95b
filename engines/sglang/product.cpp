// SPDX-License-Identifier: Apache-2.0
#include "engines/sglang/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/kernel_rules.h"
#include "core/engine/policy.h"
#include "core/model/model_config.h"
#include "engines/sglang/recipe.h"
#include "engines/sglang/serve_defaults.h"
#include "engines/sglang/settings.h"

namespace metronome {
namespace {

// The part of the host's time during which the device waits.
constexpr HostGap kSglangHostGap = {
    .source =
        "SGLang 0.4 and later overlap it: no idle GPU between five "
        "decode batches in the Nsight profile "
        "of its announcement (lmsys.org/blog/2024-12-04-sglang-v0-4)"};

// 0.5.23 runs prompts as graphs, but not those of DeepSeek-V3 with the attention of Blackwell, and
// of models with a vision tower only those of Qwen3.5
// (disable_prefill_cuda_graph_for_deepseek_trtllm_mla and
// disable_breakable_cudagraph_if_incompatible in srt/arg_groups/cuda_graph_hook.py).
bool lacks_prompt_graphs(const ModelConfig& model, bool is_data_centre_blackwell) {
  const bool is_eager_deepseek =
      model.architecture == "DeepseekV3ForCausalLM" && is_data_centre_blackwell;
  const bool has_eager_vision = !model.vision.is_empty() && !model.has_states();
  return is_eager_deepseek || has_eager_vision;
}

// SchedulerRecvSkipper: so many plans without prompts; one with prompts counts 1,000.
ReceiveInterval receive_interval(const SchedulerConfig& config) {
  return {.num_plans = config.settings<SglangConfig>().scheduler_recv_interval,
          .prompts_count = 1000};
}

BudgetTerms sglang_terms(const SchedulerConfig& config) {
  const SglangConfig& own = config.settings<SglangConfig>();
  const bool is_chunked = own.chunked_prefill_size > 0;
  return {.budget = is_chunked ? own.chunked_prefill_size : own.max_prefill_tokens,
          .takes_whole_prompts = !is_chunked,
          .prefills_apart = !own.enable_mixed_chunk};
}

constexpr std::string_view kOrders[] = {"fcfs", "lpm", "shortest-prefill-first"};
constexpr std::string_view kDepths[] = {"1", "2"};
constexpr std::string_view kTruths[] = {"false", "true"};
// Its size of a step is itself the switch from whole prompts to chunks.
constexpr Remedy kRemedies[] = {
    {.key = "enable_mixed_chunk", .value = "true", .only_from = "false"},
    {.key = "prefill_decode_interval",  // a decode step behind each batch
     .value = "1",
     .only_from = "0",
     .only_key = "enable_mixed_chunk",
     .only_value = "false"},
    {.kind = RemedyKind::Rising, .key = "prefill_decode_interval", .from = 2, .most = 32},
    {.kind = RemedyKind::Tokens, .key = "max_prefill_tokens"},
    {.kind = RemedyKind::Larger, .key = "max_prefill_tokens", .most = 65536},
    {.kind = RemedyKind::Count, .key = "prefill_max_requests"},
    {.kind = RemedyKind::Choice, .key = "schedule_policy", .values = kOrders},
    {.kind = RemedyKind::Choice, .key = "enable_priority_scheduling", .values = kTruths},
    {.kind = RemedyKind::Choice, .key = "disable_priority_preemption", .values = kTruths},
    {.kind = RemedyKind::Choice, .key = "engine.async_depth", .values = kDepths},
    {.kind = RemedyKind::Larger, .key = "cost_model.max_graph_tokens", .from = 1, .most = 1024},
    {.kind = RemedyKind::Reserve, .key = "schedule_conservativeness"}};
constexpr PolicySetting kAlternativeSettings[] = {{"enable_mixed_chunk", "true"}};

constexpr PolicyInfo kSglang = {
    .name = "sglang",
    .summary = "prompts while any can be taken, otherwise decodes; output estimated",
    .source = "SGLang 0.5.23",
    .product = "SGLang",
    .visit = visit_settings_of<SglangConfig>,
    .chunk_key = "chunked_prefill_size",
    .chunk_is_of_step = true,
    .chunks_fill_blocks = true,
    .prefix_caching = PrefixCaching::Optional,
    .requires_paged = true,
    .host_gap = kSglangHostGap,
    .memory_share = MemoryShare::OfFree,
    .reserved_gib = sglang_reserved_gib,
    .kernels = &kSglangKernels,
    .prompt_graphs = PromptGraphs::All,
    .lacks_prompt_graphs = lacks_prompt_graphs,
    .eager = {.attention_us = 1050},
    .cache = {.uses_radix_tree = true, .hits_unfilled_blocks = true},
    .receive_interval = receive_interval,
    .budget_terms = sglang_terms,
    .remedies = kRemedies,
    .alternative_rank = 4,
    .alternative_settings = kAlternativeSettings,
    .make = make_sglang};

constexpr PolicyInfo kPolicies[] = {kSglang};

constexpr EngineProduct kProduct = {.name = "sglang",
                                    .policies = kPolicies,
                                    .check_settings = check_sglang_settings,
                                    .divide_memory = sglang_divide_memory,
                                    .serve_defaults = sglang_serve_defaults,
                                    .recipe = sglang_recipe,
                                    .arguments = &kSglangArguments,
                                    .flags = &kSglangFlags,
                                    .log = &kSglangLog,
                                    .metrics = &kSglangMetrics,
                                    .decisions = &kSglangDecisions};

}  // namespace

const EngineProduct& sglang_product() { return kProduct; }

}  // namespace metronome
