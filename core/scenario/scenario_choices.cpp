// SPDX-License-Identifier: Apache-2.0
// The choices of a scenario, and the keys that each of their values does not use.
#include <algorithm>
#include <iterator>

#include "core/base/names.h"
#include "core/config/config_reader.h"
#include "core/scenario/fleet_config.h"
#include "core/scenario/scenario_keys.h"
#include "core/scenario/speculative_config.h"
#include "core/workload/workload_config.h"

namespace metronome {
namespace {

// Keys of `scheduler` that some policy reads, each once. All other keys apply to every policy.
std::vector<std::string_view> all_policy_keys() {
  std::vector<std::string_view> keys;
  for (const PolicyInfo& policy : all_policies()) {
    for (const std::string_view key : policy.keys) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  return keys;
}

std::string policies_that_read(std::string_view key) {
  std::vector<std::string_view> names;
  for (const PolicyInfo& policy : all_policies()) {
    if (reads_key(policy, key)) names.push_back(policy.name);
  }
  return join_names(names);
}

bool is_about_chunks(std::string_view key) {
  return key == "prefill_chunk_size" || key == "max_prefill_chunks_per_step" ||
         key == "max_num_partial_prefills" || key == "min_chunk_size";
}

std::vector<std::string_view> keys_of(const PolicyInfo& policy) {
  std::vector<std::string_view> keys = {"policy"};
  keys.insert(keys.end(), policy.keys.begin(), policy.keys.end());
  return keys;
}

// The error message for a key that no policy reads.
std::string unknown_policy_key(const PolicyInfo& policy, std::string_view key) {
  const std::vector<std::string_view> allowed = keys_of(policy);
  if (const std::string place = place_of_key(key); !place.empty()) {
    return "unknown key (here it is " + place + "); allowed: " + join_names(allowed);
  }
  const std::string_view nearest = nearest_name(key, allowed);
  const std::string hint = nearest.empty() ? "" : " (did you mean '" + std::string(nearest) + "'?)";
  return "unknown key" + hint + "; allowed: " + join_names(allowed);
}

// Keys of several engines that ask for the same. Of a key in two rows the first one counts.
constexpr std::size_t kMostNames = 8;
constexpr std::string_view kSameKeys[][kMostNames] = {
    {"max_num_batched_tokens", "max_num_tokens", "max_ragged_batch_size", "n_batch", "chunk_size",
     "chunked_prefill_size", "max_prefill_tokens"},
    {"enable_chunked_prefill", "enable_chunked_context", "chunked_prefill_size"},
    {"scheduling_policy", "schedule_policy", "order"}};

// The policy's own key for what another engine's key asks for; empty: none.
std::string_view equivalent_key(const PolicyInfo& policy, std::string_view key) {
  for (const auto& names : kSameKeys) {
    if (std::find(std::begin(names), std::end(names), key) == std::end(names)) continue;
    for (const std::string_view name : names) {
      if (reads_key(policy, name)) return name;
    }
  }
  return {};
}

std::string policy_complaint(const PolicyInfo& policy, std::string_view key) {
  const std::string readers = policies_that_read(key);
  if (!policy.lacks_chunks.empty() && is_about_chunks(key)) {
    return std::string(policy.lacks_chunks) + "; allowed: policy " + readers;
  }
  const std::string_view own = equivalent_key(policy, key);
  return "policy '" + std::string(policy.name) + "' does not use this key (it belongs to " +
         readers + (own.empty() ? "" : "; here it is " + std::string(own)) +
         "); allowed: " + join_names(keys_of(policy));
}

Unused unused_by_policy(std::string_view name) {
  const PolicyInfo* policy = find_policy(name);
  if (policy == nullptr) return {};
  Unused unused;
  for (const std::string_view key : all_policy_keys()) {
    if (!reads_key(*policy, key)) unused.keys.push_back({key, policy_complaint(*policy, key)});
  }
  return unused;
}

Unused unused_by_backend(std::string_view name) {
  if (name != "slotted") return {};
  Unused unused;
  for (const std::string_view key :
       {"block_size", "num_blocks", "allocation", "watermark", "enable_prefix_caching",
        "sliding_window", "num_window_groups", "prefix_cache_retention_interval"}) {
    unused.keys.push_back({key,
                           "the slotted backend has max_num_seqs slots of max_model_len tokens "
                           "and does not use this key; allowed: backend paged, or omit the key"});
  }
  return unused;
}

Unused unused_by_window(std::string_view name) {
  if (name != "0") return {};
  Unused unused;
  for (const std::string_view key : {"num_window_groups", "prefix_cache_retention_interval"}) {
    unused.keys.push_back({key,
                           "without a sliding_window every layer attends to the whole context; "
                           "allowed: sliding_window above 0, or omit the key"});
  }
  return unused;
}

Unused unused_by_noise(std::string_view name) {
  if (name != "none") return {};
  return {{{"noise_seeds",
            "without noise every simulation is the same; allowed: noise calibrated, or omit the "
            "key"}},
          {}};
}

std::vector<Choice> list_choices() {
  std::vector<Choice> choices = {{"scheduler", "policy", unused_by_policy},
                                 {"kv_cache", "backend", unused_by_backend},
                                 {"kv_cache", "sliding_window", unused_by_window},
                                 {"cost_model", "noise", unused_by_noise}};
  const std::span<const Choice> of_fleet = fleet_choices();
  choices.insert(choices.end(), of_fleet.begin(), of_fleet.end());
  for (Choice choice : speculative_choices()) {
    choice.section = choice.section.empty() ? "speculative" : "speculative." + choice.section;
    choices.push_back(std::move(choice));
  }
  for (Choice choice : workload_choices()) {
    choice.section = choice.section.empty() ? "workload" : "workload." + choice.section;
    choices.push_back(std::move(choice));
  }
  return choices;
}

}  // namespace

void refuse_unknown_policy_keys(const ConfigNode& source, const std::string& path) {
  const ConfigNode* section = source.find("scheduler");
  if (section == nullptr || section->kind != ConfigNode::Kind::Map) return;
  const ConfigNode* chosen = section->find("policy");
  const PolicyInfo* policy =
      find_policy(chosen == nullptr ? SchedulerConfig().policy : chosen->scalar);
  if (policy == nullptr) return;  // reading reports it later
  std::vector<std::string_view> known = all_policy_keys();
  known.push_back("policy");
  for (const ConfigNode::Entry& entry : section->entries) {
    if (std::find(known.begin(), known.end(), entry.key) != known.end()) continue;
    fail_unknown_key(entry.value.where, path + "scheduler." + entry.key,
                     unknown_policy_key(*policy, entry.key));
  }
}

bool reads_key(const PolicyInfo& policy, std::string_view key) {
  return std::find(policy.keys.begin(), policy.keys.end(), key) != policy.keys.end();
}

std::span<const Choice> scenario_choices() {
  static const std::vector<Choice> choices = list_choices();
  return choices;
}

}  // namespace metronome
