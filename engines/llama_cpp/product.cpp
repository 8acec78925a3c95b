// SPDX-License-Identifier: Apache-2.0
#include "engines/llama_cpp/product.h"

#include <algorithm>
#include <string_view>

#include "core/engine/budget_terms.h"
#include "core/engine/policy.h"
#include "engines/llama_cpp/settings.h"

namespace metronome {
namespace {

BudgetTerms llama_cpp_terms(const SchedulerConfig& config) {
  return {.budget = config.settings<LlamaCppConfig>().n_batch};
}

// A pass is no larger than a step (llama_context: n_ubatch = min(n_batch, n_ubatch)).
std::int64_t pass_tokens(const SchedulerConfig& config) {
  const LlamaCppConfig& own = config.settings<LlamaCppConfig>();
  return std::min(own.n_batch, own.n_ubatch);
}

constexpr std::string_view kSimilarities[] = {"0.0", "0.1"};
constexpr Remedy kRemedies[] = {
    {.key = "cont_batching", .value = "true", .only_from = "false"},
    {.kind = RemedyKind::Larger, .key = "n_ubatch", .most = 8192},
    {.kind = RemedyKind::Tokens, .key = "n_ubatch"},
    {.kind = RemedyKind::Choice, .key = "slot_prompt_similarity", .values = kSimilarities}};

constexpr PolicyInfo kLlamaCpp = {
    .name = "llama_cpp",
    .summary = "slots that keep their cache, decodes, then prompts up to n_batch tokens",
    .source = "llama.cpp server: slots over one unified KV cache, block_size 1",
    .visit = visit_settings_of<LlamaCppConfig>,
    .budget_key = "n_batch",
    .prefix_caching = PrefixCaching::Optional,
    .eager = {0, 0, 0, 0},  // from C++: not measured
    .pass_tokens = pass_tokens,
    .cache = {.hash_time = HashTime::Commit,
              .duplicates = DuplicateRule::Unlisted,
              .reuses_unhashed_first = true,
              .hits_unfilled_blocks = true},
    .budget_terms = llama_cpp_terms,
    .remedies = kRemedies,
    .make = make_llama_cpp};

constexpr PolicyInfo kPolicies[] = {kLlamaCpp};

constexpr EngineProduct kProduct = {.name = "llama_cpp",
                                    .policies = kPolicies,
                                    .recipe = llama_cpp_recipe,
                                    .arguments = &kLlamaCppArguments,
                                    .flags = &kLlamaCppFlags,
                                    .log = &kLlamaCppLog,
                                    .decisions = &kLlamaCppDecisions};

}  // namespace

const EngineProduct& llama_cpp_product() { return kProduct; }

}  // namespace metronome
