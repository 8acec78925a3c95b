// SPDX-License-Identifier: Apache-2.0
#include "engines/nano_vllm/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/policy.h"

namespace metronome {
namespace {

constexpr std::string_view kNanoVllmKeys[] = {"max_num_batched_tokens"};

BudgetTerms nano_vllm_terms(const SchedulerConfig& config) {
  return {.budget = token_budget(config), .prefills_apart = true};
}

constexpr PolicyInfo kNanoVllm = {
    .name = "nano_vllm",
    .summary = "prompts while any can run, otherwise decodes; one chunked at a time",
    .source = "nano-vllm bb823b3e",
    .keys = kNanoVllmKeys,
    .budget_key = "max_num_batched_tokens",
    .prefix_caching = PrefixCaching::Always,
    .default_token_budget = 16384,
    .prompt_graphs = PromptGraphs::None,
    .cache = {.hash_time = HashTime::Commit,
              .duplicates = DuplicateRule::KeepLatest,
              .hits_unfilled_blocks = true},
    .budget_terms = nano_vllm_terms,
    .make = make_nano_vllm};

constexpr PolicyInfo kPolicies[] = {kNanoVllm};

constexpr EngineProduct kProduct = {
    .name = "nano_vllm", .policies = kPolicies, .decisions = &kNanoVllmDecisions};

}  // namespace

const EngineProduct& nano_vllm_product() { return kProduct; }

}  // namespace metronome
