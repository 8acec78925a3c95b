// SPDX-License-Identifier: Apache-2.0
#include "engines/flags/flag_list.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/base/json.h"
#include "core/config/config_writer.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario.h"
#include "core/scenario/simulated_model.h"
#include "engines/arguments/server_arguments.h"

namespace metronome {

bool is_paged(const Scenario& scenario) { return scenario.kv_cache.backend == KvBackend::Paged; }

std::vector<std::pair<std::string, Json>> changed_settings(const SchedulerConfig& config) {
  const PolicyInfo& policy = *find_policy(config.policy);
  if (policy.visit == nullptr) return {};
  PolicySettings settings = config.policies;
  const Json now = fields_to_value(
      [&policy, &settings](FieldVisitor& visitor) { policy.visit(visitor, settings); });
  std::vector<std::pair<std::string, Json>> changed;
  for (const DocumentedKey& key : policy.own_keys) {
    const Json& value = now.at(key.key);
    if (value.dump() != key.default_value) changed.emplace_back(key.key, value);
  }
  return changed;
}

void add_settings(const SchedulerConfig& config, std::span<const std::string_view> skipped,
                  FlagList& list) {
  for (const auto& [key, value] : changed_settings(config)) {
    if (std::find(skipped.begin(), skipped.end(), key) != skipped.end()) continue;
    const std::string name = flag_word(key).substr(2);
    if (value.is_boolean()) {
      list.add((value.get<bool>() ? "--" : "--no-") + name);
    } else {
      list.add("--" + name, value.is_string() ? value.get<std::string>() : value.dump());
    }
  }
}

void note_without_flags(const Scenario& scenario, const char* partial_prefills, FlagList& list) {
  const SchedulerConfig& config = scenario.scheduler;
  const PolicyInfo& policy = *find_policy(config.policy);
  if (reads_key(policy, "max_num_partial_prefills") && config.max_num_partial_prefills > 0) {
    list.note(std::string("scheduler.max_num_partial_prefills has no flag that works: ") +
              partial_prefills);
  }
  if (reads_key(policy, "min_chunk_size") && config.min_chunk_size > 1) {
    list.note("scheduler.min_chunk_size has no flag");
  }
  if (reads_key(policy, "order") && config.order == QueueOrder::ShortestPrefillFirst) {
    list.note("scheduler.order shortest_prefill_first has no flag");
  }
  if (scenario.engine.step_shape == StepShape::Separate) {
    list.note("engine.step_shape separate has no flag");
  }
  if (!is_paged(scenario)) list.note("a slotted KV cache has no flag");
}

void add_formats(const Scenario& scenario, const char* fp8_cache, const char* eager,
                 const char* largest_graph, FlagList& list) {
  if (scenario.quantization == Quantization::Fp8) {
    // A repository of fp8 says so itself.
    if (!is_stored_in_fp8(scenario)) list.add("--quantization", std::string("fp8"));
  } else if (scenario.quantization > Quantization::Fp8) {
    list.note("quantization: serve a checkpoint in that format; no flag makes one");
  }
  if (scenario.kv_dtype == KvDtype::Fp8) list.add("--kv-cache-dtype", std::string(fp8_cache));
  if (scenario.kv_dtype == KvDtype::Bf16) list.add("--kv-cache-dtype", std::string("bfloat16"));
  const std::optional<std::int64_t>& graph = scenario.cost_model.max_graph_tokens;
  if (!graph || is_default_of(scenario.serve_defaults, "cost_model.max_graph_tokens")) return;
  *graph == 0 ? list.add(eager) : list.add(largest_graph, *graph);
}

std::optional<std::int64_t> own_prompt_graphs(const Scenario& scenario) {
  const CostModelConfig& config = scenario.cost_model;
  const std::optional<std::int64_t>& prompts = config.max_prompt_graph_tokens;
  const bool is_eager = config.max_graph_tokens && *config.max_graph_tokens == 0;
  const bool is_plain = prompts == config.max_graph_tokens || prompts == kAllPromptsInGraphs;
  return is_eager || is_plain ? std::nullopt : prompts;
}

const ServeDefault& memory_share(const std::vector<ServeDefault>& defaults) {
  const auto found = std::find_if(defaults.begin(), defaults.end(), [](const ServeDefault& each) {
    return each.key == "cost_model.gpu_memory_utilization";
  });
  METRONOME_CHECK(found != defaults.end(), "every server chooses its share of the memory");
  return *found;
}

bool has_prefixes(const Scenario& scenario) {
  return caches_prefixes(*find_policy(scenario.scheduler.policy), scenario.kv_cache);
}

std::int64_t pool_tokens(const Scenario& scenario) {
  const KvCacheConfig& cache = scenario.kv_cache;
  return is_paged(scenario) && cache.num_blocks ? *cache.num_blocks * cache.block_size : 0;
}

void note_formats(const Scenario& scenario, const char* checkpoint, FlagList& list) {
  if (scenario.quantization != Quantization::Auto) {
    list.note(std::string("quantization: serve ") + checkpoint + " in that format");
  }
  if (scenario.engine.max_waiting_requests > 0) {
    list.note("engine.max_waiting_requests has no setting: put a limit in front of the server");
  }
}

}  // namespace metronome
