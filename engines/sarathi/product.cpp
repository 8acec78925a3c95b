// SPDX-License-Identifier: Apache-2.0
#include "engines/sarathi/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/policy.h"
#include "engines/sarathi/settings.h"
#include "engines/vllm/product.h"

namespace metronome {
namespace {

BudgetTerms sarathi_terms(const SchedulerConfig& config) {
  const SarathiConfig& own = config.settings<SarathiConfig>();
  if (!own.enable_dynamic_chunking_schedule) return {.budget = own.chunk_size};
  return {.budget = own.high_chunk_size,
          .note = "sarathi's chunk shrinks as a prompt advances; the budget is the largest chunk"};
}

constexpr PolicyInfo kSarathi = {
    .name = "sarathi",
    .summary =
        "decodes, then prompts in progress, then new ones, in one chunk of "
        "tokens",
    .source = "Sarathi-Serve 96f9911",
    .visit = visit_settings_of<SarathiConfig>,
    .allows_watermark = true,
    .budget_key = "chunk_size",
    .requires_paged = true,
    .default_watermark = 0.01,
    .budget_terms = sarathi_terms,
    .make = make_sarathi};

constexpr std::string_view kVllmPrefillFirstKeys[] = {"max_num_batched_tokens"};

// The part of the host's time during which the device waits.
constexpr HostGap kVllmV0HostGap = {
    .us = 4000,
    .us_per_request = 100,
    .source =
        "vLLM V0 before multi-step scheduling: GPU idle at each decode in the profiles of "
        "vllm-project/vllm issue 6854 (July 2024), which reports 5 to 13 ms in all; outputs "
        "of 1 and 32 requests in 0.2 and 3.4 ms in issue 6913"};

BudgetTerms prefill_first_terms(const SchedulerConfig& config) {
  return {.budget = config.max_num_batched_tokens.value_or(0),
          .takes_whole_prompts = true,
          .prefills_apart = true};
}

constexpr PolicyInfo kVllmPrefillFirst = {
    .name = "vllm_prefill_first",
    .summary = "a batch of whole prompts while any fit, otherwise all decodes",
    .source = "the vLLM scheduler of Sarathi-Serve 96f9911",
    .keys = kVllmPrefillFirstKeys,
    .allows_watermark = true,
    .budget_key = "max_num_batched_tokens",
    .requires_paged = true,
    .default_token_budget = kWholeModelLength,
    .default_watermark = 0.01,
    .host_gap = kVllmV0HostGap,
    .reserved_gib = vllm_v0_reserved_gib,
    .prompt_graphs = PromptGraphs::None,
    .budget_terms = prefill_first_terms,
    .make = make_vllm_prefill_first};

BudgetTerms orca_terms(const SchedulerConfig& /*config*/) {
  return {.takes_whole_prompts = true,
          .note = "orca reserves max_model_len for every request; no flag does this"};
}

constexpr PolicyInfo kOrca = {
    .name = "orca",
    .summary = "decodes and whole prompts together, max_model_len reserved for each",
    .source = "the Orca scheduler of Sarathi-Serve 96f9911",
    .keys = {},
    .budget_terms = orca_terms,
    .make = make_orca};

constexpr std::string_view kSimpleChunkingKeys[] = {"chunk_size"};

BudgetTerms simple_chunking_terms(const SchedulerConfig& config) {
  return {.budget = config.settings<SarathiConfig>().chunk_size, .prefills_apart = true};
}

constexpr PolicyInfo kSimpleChunking = {
    .name = "simple_chunking",
    .summary = "steps of prompt chunks and steps of decodes take turns",
    .source = "the simple chunking scheduler of Sarathi-Serve 96f9911",
    .keys = kSimpleChunkingKeys,
    .allows_watermark = true,
    .budget_key = "chunk_size",
    .requires_paged = true,
    .default_watermark = 0.01,
    .budget_terms = simple_chunking_terms,
    .make = make_simple_chunking};

constexpr PolicyInfo kPolicies[] = {kSarathi, kVllmPrefillFirst, kOrca, kSimpleChunking};

constexpr EngineProduct kProduct = {.name = "sarathi",
                                    .policies = kPolicies,
                                    .check_settings = check_sarathi_settings,
                                    .decisions = &kSarathiDecisions};

}  // namespace

const EngineProduct& sarathi_product() { return kProduct; }

}  // namespace metronome
