// SPDX-License-Identifier: Apache-2.0
#include "study/what_if/candidates.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/engine/budget_terms.h"
#include "core/scenario/scenario.h"
#include "sim/simulation.h"
#include "study/what_if/replays.h"

namespace metronome {
namespace {

enum Group : int { kMemory, kSizes, kOthers, kPolicies };

// A key of a row: with a dot, it is one of the scenario.
std::string full_key(std::string_view key) {
  return key.find('.') == std::string_view::npos ? "scheduler." + std::string(key)
                                                 : std::string(key);
}

// Powers of two below `from`, down to `least`.
std::vector<std::int64_t> smaller_powers(std::int64_t from, std::int64_t least) {
  std::int64_t power = 1;
  while (power * 2 < from) power *= 2;
  std::vector<std::int64_t> powers;
  for (; power >= least && power < from; power /= 2) powers.push_back(power);
  return powers;
}

// Doublings of `from` up to `most`.
std::vector<std::int64_t> doublings(std::int64_t from, std::int64_t most) {
  std::vector<std::int64_t> values;
  for (std::int64_t value = 2 * from; value <= most; value *= 2) values.push_back(value);
  return values;
}

constexpr std::int64_t kLeastTokens = 64;
constexpr std::int64_t kMostStepTokens = 32768;  // of a step: more only costs memory
constexpr std::int64_t kMostRunning = 1024;
constexpr std::int64_t kFewest = 2;  // requests at once: with one, they are served in turn

Family family_of(std::string key, std::vector<std::int64_t> values,
                 std::optional<std::int64_t> failing) {
  Family family;
  family.key = std::move(key);
  family.values = std::move(values);
  family.failing = failing;
  family.group = kOthers;
  return family;
}

Family falling(const std::string& key, std::int64_t from, std::int64_t least) {
  return family_of(key, smaller_powers(from, least), from);
}

Family single(std::vector<Setting> settings, int group = kOthers) {
  Family family;
  family.others = std::move(settings);
  family.values = {0};
  family.group = group;
  return family;
}

// Whether values of a limit are multiples of a block.
bool fills_blocks(const PolicyInfo& policy, const KvCacheConfig& cache, std::string_view key) {
  return policy.chunks_fill_blocks && key == policy.chunk_key && cache.backend == KvBackend::Paged;
}

// Multiples of the tokens that kernels compute at once, and of a block where the policy asks for
// that.
void fit_grain(const PolicyInfo& policy, const KvCacheConfig& cache, std::string_view key,
               Family& family) {
  family.grain = kLeastTokens;
  if (!fills_blocks(policy, cache, key)) return;
  const std::int64_t block = cache.block_size;
  family.grain = ceil_div(kLeastTokens, block) * block;
  for (std::int64_t& value : family.values) {
    value = std::max(value / block, std::int64_t{1}) * block;
  }
  const auto end = std::unique(family.values.begin(), family.values.end());
  family.values.erase(end, family.values.end());
}

Family falling_tokens(const PolicyInfo& policy, const KvCacheConfig& cache, std::string_view key,
                      std::optional<std::int64_t> from) {
  constexpr std::int64_t kLargest = 16384;
  Family family = falling(full_key(key), from.value_or(kLargest + 1), kLeastTokens);
  if (!from) family.failing.reset();
  fit_grain(policy, cache, key, family);
  return family;
}

}  // namespace

std::vector<Setting> Family::settings(std::int64_t value) const {
  std::vector<Setting> all = others;
  if (!key.empty()) all.push_back({key, value});
  return all;
}

Candidates::Candidates(const Scenario& scenario)
    : scenario_(scenario), policy_(*find_policy(scenario.scheduler.policy)) {}

std::vector<Family> Candidates::own_settings() const {
  std::vector<Family> families;
  add_sizes(families);
  const auto is_last = [](const Remedy& one) { return one.kind == RemedyKind::SmallerWith; };
  for (const Remedy& remedy : policy_.remedies) {
    if (!is_last(remedy)) add_remedy(remedy, families);
  }
  add_drafts(families);
  add_requests(families);
  for (const Remedy& remedy : policy_.remedies) {
    if (is_last(remedy)) add_remedy(remedy, families);
  }
  return families;
}

Family Candidates::more_blocks(std::int64_t now, std::int64_t most) {
  constexpr std::int64_t kGrain = 64;
  Family family = family_of(kNumBlocksKey, doublings(now, most), now);
  if (most > now && (family.values.empty() || family.values.back() < most)) {
    family.values.push_back(most);
  }
  family.grain = kGrain;
  family.group = kMemory;
  return family;
}

std::vector<Family> Candidates::reserves() const {
  std::vector<Family> families;
  for (const Remedy& remedy : policy_.remedies) {
    if (remedy.kind != RemedyKind::Reserve) continue;
    const std::string key = full_key(remedy.key);
    for (const double more : {1.3, 1.7, 2.5}) {
      if (more <= scenario_.value(key).get<double>()) continue;
      families.push_back(single({{key, more}}, kMemory));
    }
  }
  return families;
}

std::vector<Family> Candidates::other_policies(double target_ms) const {
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
    family.group = kPolicies;
    family.others = {{kPolicyKey, policy->name}};
    for (const PolicySetting& setting : policy->alternative_settings) {
      family.others.push_back(setting_of(full_key(setting.key), setting.value));
    }
    families.push_back(std::move(family));
  }
  // Shown, but never chosen: only Metronome has such policies.
  for (const PolicyInfo& policy : all_policies()) {
    if (!policy.predicts_steps || policy.name == policy_.name) continue;
    families.push_back(
        single({{kPolicyKey, policy.name}, {full_key("itl_target_ms"), target_ms}}, kPolicies));
  }
  return families;
}

void Candidates::add_sizes(std::vector<Family>& families) const {
  if (policy_.size_key().empty()) return;
  families.push_back(smaller_sizes({}));
  if (const auto size = current_size()) {
    Family larger =
        family_of(full_key(policy_.size_key()), doublings(*size, kMostStepTokens), size);
    fit_grain(policy_, scenario_.kv_cache, policy_.size_key(), larger);
    larger.group = kSizes;
    families.push_back(std::move(larger));
  }
}

void Candidates::add_remedy(const Remedy& remedy, std::vector<Family>& families) const {
  const std::string key = full_key(remedy.key);
  if (!remedy.only_key.empty() && !has(remedy.only_key, remedy.only_value)) return;
  std::vector<Setting> with;
  for (const PolicySetting& other : remedy.together_with) {
    with.push_back(setting_of(full_key(other.key), other.value));
  }
  const std::optional<std::int64_t> now = current(key);
  const auto add = [&](Family family) {
    if (family.values.empty()) return;
    family.others.insert(family.others.begin(), with.begin(), with.end());
    if (!with.empty()) family.failing.reset();
    families.push_back(std::move(family));
  };
  switch (remedy.kind) {
    case RemedyKind::Switch: {
      if (!has(remedy.key, remedy.only_from)) return;
      add(single({setting_of(key, remedy.value)}));
      add(smaller_sizes({setting_of(key, remedy.value)}));
      return;
    }
    case RemedyKind::SmallerWith: add(smaller_sizes({setting_of(key, remedy.value)})); return;
    case RemedyKind::Tokens:
      add(falling_tokens(policy_, scenario_.kv_cache, remedy.key,
                         now.value_or(token_budget(scenario_.scheduler))));
      return;
    case RemedyKind::Count:
      add(falling(key, now.value_or(remedy.from > 0 ? remedy.from : scenario_.engine.max_num_seqs),
                  kFewest));
      return;
    case RemedyKind::Larger: {
      const std::int64_t from = now.value_or(remedy.from);
      if (from > 0) add(family_of(key, doublings(from, remedy.most), now));
      return;
    }
    case RemedyKind::Rising: {
      std::vector<std::int64_t> values;
      for (std::int64_t value = remedy.from; value <= remedy.most; value *= 2) {
        if (value > now.value_or(0)) values.push_back(value);
      }
      add(family_of(key, std::move(values), now));
      return;
    }
    case RemedyKind::Choice:
      for (const std::string_view value : remedy.values) {
        if (!has(remedy.key, value)) add(single({setting_of(key, value)}));
      }
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

// Fewer requests at once, and more; and as many as the largest CUDA graph launches.
void Candidates::add_requests(std::vector<Family>& families) const {
  const std::string key = "engine.max_num_seqs";
  const std::int64_t now = scenario_.engine.max_num_seqs;
  families.push_back(falling(key, now, kFewest));
  const std::optional<std::int64_t> graph = current("cost_model.max_graph_tokens");
  if (graph && *graph < now && !scenario_.speculative.has_drafts()) {
    families.push_back(single({{key, *graph}}));
  }
  families.push_back(family_of(key, doublings(now, std::min(4 * now, kMostRunning)), now));
}

bool Candidates::has(std::string_view key, std::string_view yaml) const {
  return scenario_.value(full_key(key)) == setting_of("", yaml).value;
}

std::optional<std::int64_t> Candidates::current(const std::string& key) const {
  Json found = scenario_.value(key);
  if (found.is_string() || found.is_null()) {  // what the engine chooses
    for (const Setting& graphs : host_settings(scenario_).graphs) {
      if (graphs.key == key) found = graphs.value;
    }
  }
  if (!found.is_number_integer() || found.get<std::int64_t>() <= 0) return std::nullopt;
  return found.get<std::int64_t>();
}

std::optional<std::int64_t> Candidates::current_size() const {
  const std::string_view key = policy_.size_key();
  if (const auto size = current(full_key(key))) return size;
  const BudgetTerms terms = budget_terms(scenario_.scheduler);
  if (key == policy_.chunk_key && terms.chunk > 0) return terms.chunk;
  if (key == "max_num_batched_tokens") return token_budget(scenario_.scheduler);
  return std::nullopt;
}

Family Candidates::smaller_sizes(std::vector<Setting> others) const {
  Family family = falling_tokens(policy_, scenario_.kv_cache, policy_.size_key(), current_size());
  family.group = others.empty() ? kSizes : kOthers;
  family.others = std::move(others);
  return family;
}

}  // namespace metronome
