// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/candidates.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/engine/budget_terms.h"
#include "core/scenario/scenario.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

std::string scheduler_key(std::string_view key) { return "scheduler." + std::string(key); }

// Powers of two below `from`, down to `least`.
std::vector<std::int64_t> smaller_powers(std::int64_t from, std::int64_t least) {
  std::int64_t power = 1;
  while (power * 2 < from) power *= 2;
  std::vector<std::int64_t> powers;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

constexpr std::int64_t kLeastTokens = 64;

Family falling(const std::string& key, std::int64_t from, std::int64_t least) {
  return {{}, key, smaller_powers(from, least), from};
}

// Multiples of the tokens that kernels compute at once, and of a block where the policy asks for
// that.
Family falling_tokens(const PolicyInfo& policy, const KvCacheConfig& cache, std::string_view key,
                      std::optional<std::int64_t> from) {
  constexpr std::int64_t kLargest = 16384;
  Family family = falling(scheduler_key(key), from.value_or(kLargest + 1), kLeastTokens);
  if (!from) family.failing.reset();
  family.grain = kLeastTokens;
  const bool fills_blocks = policy.chunks_fill_blocks && key == policy.chunk_key;
  if (!fills_blocks || cache.backend != KvBackend::Paged) return family;
  const std::int64_t block = cache.block_size;
  family.grain = ceil_div(kLeastTokens, block) * block;
  for (std::int64_t& value : family.values) {
    value = std::max(value / block, std::int64_t{1}) * block;
  }
  const auto end = std::unique(family.values.begin(), family.values.end());
  family.values.erase(end, family.values.end());
  return family;
}

}  // namespace

std::vector<Setting> Family::settings(std::int64_t value) const {
  std::vector<Setting> all = others;
  if (!key.empty()) all.push_back({key, value});
  return all;
}

Candidates::Candidates(const Scenario& scenario, double target_ms)
    : scenario_(scenario),
      policy_(*find_policy(scenario.scheduler.policy)),
      target_ms_(target_ms) {}

std::vector<Family> Candidates::sizes() const {
  if (policy_.size_key().empty()) return {};
  return {smaller_sizes({})};
}

std::vector<Family> Candidates::other_settings() const {
  std::vector<Family> families;
  const auto is_last = [](const Remedy& one) { return one.kind == RemedyKind::SmallerWith; };
  for (const Remedy& remedy : policy_.remedies) {
    if (!is_last(remedy)) add_remedy(remedy, families);
  }
  add_drafts(families);
  families.push_back(falling("engine.max_num_seqs", scenario_.engine.max_num_seqs, 1));
  for (const Remedy& remedy : policy_.remedies) {
    if (is_last(remedy)) add_remedy(remedy, families);
  }
  return families;
}

std::vector<Family> Candidates::reserves() const {
  std::vector<Family> families;
  for (const Remedy& remedy : policy_.remedies) {
    if (remedy.kind != RemedyKind::Reserve) continue;
    const std::string key = scheduler_key(remedy.key);
    for (const double more : {1.3, 1.7, 2.5}) {
      if (more <= scenario_.value(key).get<double>()) continue;
      families.push_back({{{key, more}}, "", {0}, std::nullopt});
    }
  }
  return families;
}

std::vector<Family> Candidates::other_policies() const {
  std::vector<const PolicyInfo*> others;
  for (const PolicyInfo& policy : all_policies()) {
    if (policy.alternative_rank > 0 && policy.name != policy_.name) others.push_back(&policy);
  }
  std::stable_sort(others.begin(), others.end(), [](const PolicyInfo* a, const PolicyInfo* b) {
    return a->alternative_rank < b->alternative_rank;
  });
  std::vector<Family> families;
  for (const PolicyInfo* policy : others) {
    constexpr std::int64_t kLargest = 8192;
    Family family = falling_tokens(*policy, scenario_.kv_cache, policy->size_key(), kLargest + 1);
    family.failing.reset();
    family.others = {{kPolicyKey, policy->name}};
    for (const PolicySetting& setting : policy->alternative_settings) {
      family.others.push_back(setting_of(scheduler_key(setting.key), setting.value));
    }
    families.push_back(std::move(family));
  }
  // Shown, but never chosen: only Metronome has such policies.
  for (const PolicyInfo& policy : all_policies()) {
    if (!policy.predicts_steps || policy.name == policy_.name) continue;
    families.push_back({{{kPolicyKey, policy.name}, {scheduler_key("itl_target_ms"), target_ms_}},
                        "",
                        {0},
                        std::nullopt});
  }
  return families;
}

void Candidates::add_remedy(const Remedy& remedy, std::vector<Family>& families) const {
  const std::string key = scheduler_key(remedy.key);
  const std::vector<Setting> with = {setting_of(key, remedy.value)};
  const std::optional<std::int64_t> now = current(remedy.key);
  switch (remedy.kind) {
    case RemedyKind::Switch:
      if (!has(remedy.key, remedy.only_from)) return;
      if (!remedy.only_key.empty() && !has(remedy.only_key, remedy.only_value)) return;
      families.push_back({with, "", {0}, std::nullopt});
      families.push_back(smaller_sizes(with));
      return;
    case RemedyKind::SmallerWith: families.push_back(smaller_sizes(with)); return;
    case RemedyKind::Tokens:
      families.push_back(falling_tokens(policy_, scenario_.kv_cache, remedy.key,
                                        now.value_or(token_budget(scenario_.scheduler))));
      return;
    case RemedyKind::Count:
      families.push_back(falling(
          key, now.value_or(remedy.from > 0 ? remedy.from : scenario_.engine.max_num_seqs), 1));
      return;
    case RemedyKind::Reserve: return;  // reserves()
  }
}

// Fewer drafts, which take less of a step and of its budget; 0: none.
void Candidates::add_drafts(std::vector<Family>& families) const {
  const SpeculativeConfig& drafts = scenario_.speculative;
  if (!drafts.has_drafts() || !drafts.num_speculative_tokens_per_batch_size.empty()) return;
  Family family = falling("speculative.num_speculative_tokens", drafts.num_speculative_tokens, 1);
  family.values.push_back(0);
  // A mean length is that of the run's number of drafts.
  const AcceptanceConfig& acceptance = drafts.acceptance;
  if (acceptance.kind == AcceptanceKind::Length && !acceptance.mean_length_tokens) {
    family.others.push_back(
        {"speculative.acceptance.mean_length_tokens", drafts.num_speculative_tokens});
  }
  families.push_back(std::move(family));
}

bool Candidates::has(std::string_view key, std::string_view yaml) const {
  return scenario_.value(scheduler_key(key)) == setting_of("", yaml).value;
}

std::optional<std::int64_t> Candidates::current(std::string_view key) const {
  const Json found = scenario_.value(scheduler_key(key));
  if (!found.is_number_integer() || found.get<std::int64_t>() <= 0) return std::nullopt;
  return found.get<std::int64_t>();
}

Family Candidates::smaller_sizes(std::vector<Setting> others) const {
  const std::string_view key = policy_.size_key();
  std::optional<std::int64_t> from = current(key);
  const BudgetTerms terms = budget_terms(scenario_.scheduler);
  if (!from && key == policy_.chunk_key && terms.chunk > 0) from = terms.chunk;
  if (!from && key == "max_num_batched_tokens") from = token_budget(scenario_.scheduler);
  Family family = falling_tokens(policy_, scenario_.kv_cache, key, from);
  family.others = std::move(others);
  return family;
}

}  // namespace metronome
