// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_cpp/product.h"

#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/policy.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {
namespace {

BudgetTerms llama_cpp_terms(const SchedulerConfig& config) {
  return {.budget = config.settings<LlamaCppConfig>().n_batch};
}

constexpr PolicyInfo kLlamaCpp = {
    .name = "llama_cpp",
    .summary = "slots that keep their cache, decodes, then prompts up to n_batch tokens",
    .source = "llama.cpp server: slots over one unified KV cache, block_size 1",
    .visit = visit_settings_of<LlamaCppConfig>,
    .budget_key = "n_batch",
    .prefix_caching = PrefixCaching::Optional,
    .eager = {0, 0, 0, 0},  // from C++: not measured
    .cache = {.hash_time = HashTime::Commit,
              .duplicates = DuplicateRule::Unlisted,
              .reuses_unhashed_first = true,
              .hits_unfilled_blocks = true},
    .budget_terms = llama_cpp_terms,
    .make = make_llama_cpp};

constexpr PolicyInfo kPolicies[] = {kLlamaCpp};

constexpr EngineProduct kProduct = {.name = "llama_cpp",
                                    .policies = kPolicies,
                                    .recipe = llama_cpp_recipe,
                                    .arguments = &kLlamaCppArguments,
                                    .flags = &kLlamaCppFlags};

}  // namespace

const EngineProduct& llama_cpp_product() { return kProduct; }

}  // namespace metronome
