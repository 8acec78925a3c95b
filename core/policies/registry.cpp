#include <algorithm>
#include <array>

#include "core/policies/policies.h"
#include "core/policy_registry.h"
#include "core/scheduler.h"

namespace metronome {
namespace {

using Keys = std::string_view;

constexpr Keys kStaticKeys[] = {"batch_wait_ms"};
constexpr Keys kContinuousKeys[] = {"order"};
constexpr Keys kChunkedKeys[] = {"order", "prefill_chunk_size", "max_prefill_chunks_per_step"};
constexpr Keys kTokenBudgetKeys[] = {"order", "max_num_batched_tokens", "prefill_chunk_size",
                                     "max_num_partial_prefills", "min_chunk_size"};
constexpr Keys kSinglePrefillKeys[] = {"order", "max_num_batched_tokens"};

constexpr std::array kPolicies = {
    PolicyInfo{.name = "static",
               .summary = "batch formed once, nobody joins until all finish",
               .source = "request-level batching, with a bounded wait for a full batch",
               .keys = kStaticKeys,
               .make = make_static},
    PolicyInfo{.name = "continuous",
               .summary = "decodes first, then the whole prompt of everyone who fits",
               .source = "iteration-level scheduling without chunking",
               .keys = kContinuousKeys,
               .allows_order = true,
               .make = make_continuous},
    PolicyInfo{.name = "chunked",
               .summary = "every pending prompt advances by at most one chunk a step",
               .source = "batched chunked prefill without a token budget",
               .keys = kChunkedKeys,
               .allows_order = true,
               .make = make_chunked},
    PolicyInfo{.name = "token_budget",
               .summary = "decodes, then begun prompts, then new ones, within a token budget",
               .source = "token-budget scheduling as in Sarathi-Serve and vLLM",
               .keys = kTokenBudgetKeys,
               .allows_order = true,
               .make = make_token_budget},
    PolicyInfo{.name = "single_prefill",
               .summary = "one prompt prefills at a time with what the decodes leave",
               .source = "two forward passes a step: one chunk, then every decode",
               .keys = kSinglePrefillKeys,
               .allows_order = true,
               .natural_shape = StepShape::Separate,
               .requires_separate = true,
               .make = make_single_prefill},
};

}  // namespace

std::span<const PolicyInfo> all_policies() { return kPolicies; }

const PolicyInfo* find_policy(std::string_view name) {
  const auto it = std::find_if(kPolicies.begin(), kPolicies.end(),
                               [name](const PolicyInfo& policy) { return policy.name == name; });
  return it == kPolicies.end() ? nullptr : &*it;
}

}  // namespace metronome
