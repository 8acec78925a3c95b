// SPDX-License-Identifier: Apache-2.0
// The flags of engines that a change of settings changes, and what its KV blocks take.
#include <algorithm>
#include <utility>

#include "core/base/number_text.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/engine_product.h"
#include "engines/arguments/engine_settings.h"
#include "study/what_if/what_if.h"

namespace metronome {

std::vector<FlagChanges> changed_flags(const Scenario& before, const Scenario& after) {
  Scenario same_null_block = after;
  const auto has_null_block = [](const Scenario& scenario) {
    return find_policy(scenario.scheduler.policy)->cache.has_null_block;
  };
  if (same_null_block.kv_cache.num_blocks) {
    *same_null_block.kv_cache.num_blocks += has_null_block(after) - has_null_block(before);
  }
  const std::vector<EngineFlags> old_flags = engine_flags(before);
  std::vector<FlagChanges> changes;
  for (const EngineFlags& flags : engine_flags(same_null_block)) {
    const auto old = std::find_if(old_flags.begin(), old_flags.end(), [&](const EngineFlags& one) {
      return one.engine == flags.engine;
    });
    changes.push_back(flag_changes(old == old_flags.end() ? EngineFlags() : *old, flags));
  }
  return changes;
}

namespace {

// Takes out what the engine's server changes by itself, as nobody set it, and says so.
void leave_to_server(const Scenario& before, const Scenario& after, FlagChanges& flags) {
  const EngineProduct* product = find_server(flags.engine);
  if (product == nullptr) return;
  if (before.cost_model.gpu_memory_utilization == after.cost_model.gpu_memory_utilization &&
      product != &product_of(after.scheduler.policy)) {
    const std::string memory = std::string(product->flags->memory) + " ";
    std::erase_if(flags.changed, [&memory](const FlagChanges::Change& change) {
      return change.after.starts_with(memory);
    });
  }
  const ServerArguments* engine = product->arguments;
  if (flags.is_comparison || engine == nullptr) return;
  std::erase_if(flags.changed, [&](const FlagChanges::Change& change) {
    const std::string key = key_of_flag(*engine, change.after);
    const auto& defaults = after.serve_defaults;
    const auto found = std::find_if(defaults.begin(), defaults.end(),
                                    [&key](const ServeDefault& one) { return one.key == key; });
    if (found == defaults.end() || !is_default_of(before.serve_defaults, key)) return false;
    flags.notes.push_back("the server itself goes from " + change.before + " to " + change.after +
                          ", as neither is set (" + found->reason + ")");
    return true;
  });
}

// Where more KV blocks come from; empty: there are no more. Memory gives `cache.default_blocks`
// without a number of blocks, to the run's own engine.
std::string blocks_note(const CacheSize& cache, std::int64_t blocks, bool is_own,
                        const ServerFlags& names) {
  if (blocks <= cache.num_blocks) return {};
  const std::string pool(names.pool);
  const std::string memory =
      names.has_share ? "a higher " + std::string(names.memory) + ", or " : std::string();
  if (cache.is_set && blocks <= cache.default_blocks) {
    if (!names.has_share) {
      return "the memory has room for " + grouped_text(cache.default_blocks) + " KV blocks";
    }
    if (!is_own) return "or drop " + pool + ": the memory gives the KV blocks without it";
    return "or drop " + pool + ": without it the memory gives " +
           grouped_text(cache.default_blocks) + " KV blocks";
  }
  return grouped_text(blocks) + " KV blocks instead of " + grouped_text(cache.num_blocks) +
         " need more memory" +
         (cache.is_set && cache.default_blocks > 0 && is_own
              ? " than the " + grouped_text(cache.default_blocks) + " that it gives without " + pool
              : std::string()) +
         ": " + memory + "more GPUs";
}

}  // namespace

std::vector<FlagChanges> flags_of(const Trial& trial, const WhatIf& what_if) {
  Scenario before = what_if.baseline.scenario;
  Scenario after = trial.scenario;
  const std::int64_t blocks = after.kv_cache.num_blocks.value_or(0);
  // Nobody set the number of blocks: a share of memory gives them.
  if (!what_if.cache.is_set) after.kv_cache.num_blocks = before.kv_cache.num_blocks;
  if (what_if.cache.share) {
    after.cost_model.gpu_memory_utilization = *what_if.cache.share;
    std::erase_if(after.serve_defaults, [](const ServeDefault& one) {
      return one.key == "cost_model.gpu_memory_utilization";
    });
  }
  std::vector<FlagChanges> all = changed_flags(before, after);
  for (FlagChanges& flags : all) {
    leave_to_server(before, after, flags);
    const EngineProduct* product = find_server(flags.engine);
    if (product == nullptr) continue;
    const bool is_own = &product_of(before.scheduler.policy) == product;
    std::string note = blocks_note(what_if.cache, blocks, is_own, *product->flags);
    if (!note.empty()) flags.notes.push_back(std::move(note));
  }
  return all;
}

std::string own_flags_text(const Trial& trial, const WhatIf& what_if) {
  const std::vector<FlagChanges> all = flags_of(trial, what_if);
  if (all.empty() || all.front().is_comparison) return {};
  const FlagChanges& own = all.front();
  if (!own.refusal.empty()) return {};
  std::string text;
  const auto add = [&text](const std::string& flag) { text += (text.empty() ? "" : " ") + flag; };
  for (const std::string& flag : own.added) add(flag);
  for (const auto& [before, after] : own.changed) add(after);
  for (const std::string& flag : own.removed) add("without " + flag);
  return text.empty() ? std::string() : own.engine + " " + text;
}

}  // namespace metronome
