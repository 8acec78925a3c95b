// SPDX-License-Identifier: Apache-2.0
#include "core/engine/policies/registry.h"

#include <algorithm>
#include <array>
#include <list>
#include <map>
#include <vector>

#include "core/base/error.h"
#include "core/base/names.h"
#include "core/config/config_writer.h"
#include "core/engine/budget_terms.h"
#include "core/engine/engine.h"
#include "core/engine/engine_config.h"
#include "core/engine/kernel_rules.h"
#include "core/engine/policies/policies.h"
#include "core/engine/policy.h"

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

// Whole prompts, and how the policy differs from an engine that takes them.
BudgetTerms whole_prompts(const char* note) { return {.takes_whole_prompts = true, .note = note}; }

BudgetTerms static_terms(const SchedulerConfig& /*config*/) {
  return whole_prompts("static adds no request to a running batch; no flag does this");
}

BudgetTerms continuous_terms(const SchedulerConfig& /*config*/) {
  return whole_prompts(
      "continuous has no token budget: it takes the whole prompt of every request that fits in a "
      "step");
}

BudgetTerms chunked_terms(const SchedulerConfig& config) {
  return {.chunk = config.prefill_chunk_size.value_or(512),
          .note = "chunked has no token budget: every pending prompt advances in every step"};
}

BudgetTerms token_budget_terms(const SchedulerConfig& config) {
  return {.budget = token_budget(config), .chunk = config.prefill_chunk_size.value_or(0)};
}

BudgetTerms single_prefill_terms(const SchedulerConfig& config) {
  return {.budget = token_budget(config),
          .note = "single_prefill prefills one request at a time, in a separate pass"};
}

BudgetTerms slo_terms(const SchedulerConfig& /*config*/) {
  return {.has_no_size = true,
          .note =
              "no flag limits the time of a step, as slo does; `metronome tune` finds the "
              "best budget"};
}

constexpr Remedy kChunkedRemedies[] = {
    {.kind = RemedyKind::Count, .key = "max_prefill_chunks_per_step", .from = 8},
    {.kind = RemedyKind::SmallerWith, .key = "max_prefill_chunks_per_step", .value = "1"}};
constexpr Remedy kTokenBudgetRemedies[] = {
    {.kind = RemedyKind::Tokens, .key = "prefill_chunk_size"}};

constexpr std::array kPolicies = {
    PolicyInfo{.name = "static",
               .summary = "forms a batch once; no request joins until all have finished",
               .source = "request-level batching, with a bounded wait for a full batch",
               .keys = kStaticKeys,
               .allows_allocation = true,
               .allows_watermark = true,
               .lacks_chunks = "static batching cannot prefill in chunks: it forms a batch once "
                               "and prefills whole prompts",
               .prefix_caching = PrefixCaching::OptionalOff,
               .allows_handover = true,
               .budget_terms = static_terms,
               .make = make_static},
    PolicyInfo{.name = "continuous",
               .summary = "decodes first, then the whole prompt of every request that fits",
               .source = "iteration-level scheduling without chunking",
               .keys = kContinuousKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .prefix_caching = PrefixCaching::OptionalOff,
               .allows_handover = true,
               .budget_terms = continuous_terms,
               .make = make_continuous},
    PolicyInfo{.name = "chunked",
               .summary = "every pending prompt advances by at most one chunk per step",
               .source = "batched chunked prefill without a token budget",
               .keys = kChunkedKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .chunk_key = "prefill_chunk_size",
               .prefix_caching = PrefixCaching::OptionalOff,
               .allows_handover = true,
               .budget_terms = chunked_terms,
               .remedies = kChunkedRemedies,
               .alternative_rank = 3,
               .make = make_chunked},
    PolicyInfo{.name = "token_budget",
               .summary = "decodes, then prompts in progress, then new ones, within a token budget",
               .source = "token-budget scheduling as in Sarathi-Serve and vLLM",
               .keys = kTokenBudgetKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .budget_key = "max_num_batched_tokens",
               .chunk_key = "prefill_chunk_size",
               .prefix_caching = PrefixCaching::OptionalOff,
               .allows_handover = true,
               .budget_terms = token_budget_terms,
               .remedies = kTokenBudgetRemedies,
               .alternative_rank = 2,
               .make = make_token_budget},
    PolicyInfo{.name = "single_prefill",
               .summary = "prefills one prompt at a time, with the tokens that the decodes leave",
               .source = "two forward passes per step: one chunk, then every decode",
               .keys = kSinglePrefillKeys,
               .allows_order = true,
               .allows_allocation = true,
               .allows_watermark = true,
               .budget_key = "max_num_batched_tokens",
               .prefix_caching = PrefixCaching::OptionalOff,
               .allows_handover = true,
               .gap_note = "single_prefill gives two tokens in the step that completes a prompt: "
                           "the first gap of a request is 0, so its jitter equals its longest gap",
               .natural_shape = StepShape::Separate,
               .requires_separate = true,
               .budget_terms = single_prefill_terms,
               .make = make_single_prefill},
    PolicyInfo{.name = "slo",
               .summary = "the largest chunk whose predicted time keeps the ITL target",
               .source = "a cost model, corrected by measured steps; deadlines order the prompts",
               .keys = kSloKeys,
               .allows_allocation = true,
               .allows_watermark = true,
               .budget_key = "max_num_batched_tokens",
               .allows_handover = true,
               .predicts_steps = true,
               .default_token_budget = 8192,
               .budget_terms = slo_terms,
               .make = make_slo},
};

constexpr std::size_t kMostPolicies = 128;

class Registry {
 public:
  Registry() {
    policies_.reserve(kMostPolicies);  // others point to them
    for (const PolicyInfo& policy : kPolicies) add(policy);
  }

  void add(PolicyInfo policy) {
    METRONOME_CHECK(policies_.size() < kMostPolicies, "there is room for a policy more");
    if (policy.visit != nullptr) add_keys(policy);
    policies_.push_back(policy);
  }
  std::span<const PolicyInfo> policies() const { return policies_; }

 private:
  void add_keys(PolicyInfo& policy) {
    PolicySettings defaults;
    policy.own_keys = documented_.emplace_back(
        document_fields([&](FieldVisitor& visitor) { policy.visit(visitor, defaults); }));
    for (const DocumentedKey& key : policy.own_keys) {
      METRONOME_CHECK(owners_.try_emplace(key.key, policy.name).second,
                      "two policies have a setting of their own with one name: " + key.key);
    }
    std::vector<std::string_view>& keys =
        keys_.emplace_back(policy.keys.begin(), policy.keys.end());
    for (const DocumentedKey& key : policy.own_keys) keys.push_back(key.key);
    policy.keys = keys;
  }

  std::vector<PolicyInfo> policies_;
  // Lists, as the policies refer to their entries.
  std::list<std::vector<DocumentedKey>> documented_;
  std::list<std::vector<std::string_view>> keys_;
  std::map<std::string, std::string_view> owners_;  // of own keys
};

Registry& registry() {
  static Registry all;
  return all;
}

}  // namespace

void register_policy(const PolicyInfo& policy) {
  METRONOME_CHECK(find_policy(policy.name) == nullptr, "a policy is registered once");
  registry().add(policy);
}

std::span<const PolicyInfo> all_policies() { return registry().policies(); }

void visit_settings(FieldVisitor& visitor, PolicySettings& settings) {
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.visit != nullptr) policy.visit(visitor, settings);
  }
}

const KernelRules& find_kernel_rules(std::string_view table_name) {
  static constexpr KernelRules kNone;
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.kernels != nullptr && policy.kernels->table_name == table_name) {
      return *policy.kernels;
    }
  }
  return kNone;
}

std::vector<std::string_view> kernel_table_names() {
  std::vector<std::string_view> names;
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.kernels != nullptr) names.push_back(policy.kernels->table_name);
  }
  return names;
}

void arrange_cache(const PolicyInfo& policy, EngineSetup& setup) {
  KvCacheLayout& layout = setup.kv_cache;
  layout.plans_ahead = setup.async_depth > 1;
  layout.has_null_block = policy.cache.has_null_block;
  layout.hash_time = policy.cache.hash_time;
  layout.uses_radix_tree = policy.cache.uses_radix_tree;
  layout.duplicates = policy.cache.duplicates;
  layout.reuses_unhashed_first = policy.cache.reuses_unhashed_first;
  if (layout.enable_prefix_caching && !policy.cache.hits_unfilled_blocks) {
    layout.forgets_unfilled_blocks = true;
  }
  if (policy.adjust_cache != nullptr) {
    policy.adjust_cache(setup.scheduler, setup.max_model_len, layout);
  }
}

std::int64_t watermark_blocks(const PolicyInfo& policy, std::optional<double> share,
                              std::int64_t num_blocks) {
  const double watermark = share.value_or(policy.default_watermark);
  return static_cast<std::int64_t>(watermark * static_cast<double>(num_blocks));
}

BudgetTerms budget_terms(const SchedulerConfig& config) {
  const PolicyInfo* policy = find_policy(config.policy);
  METRONOME_CHECK(policy != nullptr, "the policy was validated before");
  BudgetTerms terms;
  if (policy->budget_terms != nullptr) {
    terms = policy->budget_terms(config);
  } else {
    terms.budget = token_budget(config);
    terms.note =
        config.policy + " has no counterpart in this engine; the budget is the nearest fixed one";
  }
  if (policy->allows_order && config.order == QueueOrder::Priority) terms.orders_by_priority = true;
  return terms;
}

std::int64_t largest_prefill(const SchedulerConfig& config) {
  const BudgetTerms terms = budget_terms(config);
  if (terms.takes_whole_prompts || terms.has_no_size) return 0;
  return terms.budget > 0 ? terms.budget : terms.chunk;
}

ReceiveInterval receive_interval(const SchedulerConfig& config) {
  const PolicyInfo* policy = find_policy(config.policy);
  return policy == nullptr || policy->receive_interval == nullptr
             ? ReceiveInterval()
             : policy->receive_interval(config);
}

bool caches_prefixes(const PolicyInfo& policy, const KvCacheConfig& config) {
  if (config.backend == KvBackend::Slotted) return false;
  return config.enable_prefix_caching.value_or(policy.prefix_caching == PrefixCaching::Optional ||
                                               policy.prefix_caching == PrefixCaching::Always);
}

const PolicyInfo* find_policy(std::string_view name) {
  const std::span<const PolicyInfo> all = all_policies();
  const auto it = std::find_if(all.begin(), all.end(),
                               [name](const PolicyInfo& policy) { return policy.name == name; });
  return it == all.end() ? nullptr : &*it;
}

std::string policies_with(bool PolicyInfo::*property) {
  std::vector<std::string_view> names;
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.*property) names.push_back(policy.name);
  }
  return join_names(names);
}

}  // namespace metronome
