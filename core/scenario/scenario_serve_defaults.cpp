// SPDX-License-Identifier: Apache-2.0
// The defaults of an engine's server in a scenario.
#include <algorithm>
#include <optional>

#include "core/hardware/hardware_catalogue.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {
namespace {

bool is_set(const ConfigNode& source, std::string_view key) {
  const ConfigNode* node = source.find_path(key);
  return node != nullptr && node->kind != ConfigNode::Kind::Null && node->scalar != "auto";
}

ChosenOptions chosen_options(const Scenario& scenario) {
  const ConfigNode& source = *scenario.source;
  ChosenOptions chosen;
  chosen.tensor_parallel_size = scenario.cost_model.tensor_parallel_size;
  if (is_set(source, "engine.max_num_seqs")) chosen.max_num_seqs = scenario.engine.max_num_seqs;
  chosen.max_num_batched_tokens = scenario.scheduler.max_num_batched_tokens;
  chosen.max_model_len = scenario.engine.max_model_len;
  chosen.enable_chunked_prefill = scenario.scheduler.vllm.enable_chunked_prefill;
  if (scenario.speculative.is_on()) {
    chosen.num_speculative_tokens = scenario.speculative.num_speculative_tokens;
    chosen.looks_up_drafts = scenario.speculative.method == SpeculativeMethod::Ngram;
  }
  if (is_set(source, "scheduler.chunked_prefill_size")) {
    chosen.chunked_prefill_size = scenario.scheduler.sglang.chunked_prefill_size;
  }
  chosen.max_prefill_tokens = scenario.scheduler.sglang.max_prefill_tokens;
  return chosen;
}

std::vector<ServeDefault> serve_defaults(const Scenario& scenario, const HardwareSpec& gpu) {
  ChosenOptions chosen = chosen_options(scenario);
  if (scenario.scheduler.policy == "sglang") return sglang_serve_defaults(gpu, chosen);
  // A missing model is reported later.
  if (!chosen.max_model_len && !chosen.enable_chunked_prefill && !scenario.model.empty()) {
    chosen.max_model_len =
        find_model(scenario.model, scenario.location_of("model")).default_max_model_len();
  }
  return vllm_serve_defaults(scenario.scheduler.vllm.minor(), gpu, chosen);
}

}  // namespace

std::vector<ServeDefault> unset_serve_defaults(const Scenario& scenario) {
  const std::string& policy = scenario.scheduler.policy;
  if (policy != "vllm" && policy != "sglang") return {};
  // A backend that needs the GPU reports what is wrong with its name.
  const std::optional<HardwareSpec> gpu = known_hardware(scenario.hardware);
  if (!gpu) return {};
  Scenario shown = scenario;
  const std::vector<std::string> unused = unused_keys(
      fields_to_node([&shown](FieldVisitor& visitor) { visit_before_workload(visitor, shown); }),
      scenario_choices());
  std::vector<ServeDefault> defaults = serve_defaults(scenario, *gpu);
  // A pool that the user counted in blocks keeps their size.
  const bool has_pool = is_set(*scenario.source, "kv_cache.num_blocks");
  std::erase_if(defaults, [&](const ServeDefault& found) {
    return is_set(*scenario.source, found.key) ||
           (has_pool && found.key == "kv_cache.block_size") ||
           std::find(unused.begin(), unused.end(), found.key) != unused.end();
  });
  return defaults;
}

ConfigNode with_serve_defaults(ConfigNode tree, const std::vector<ServeDefault>& defaults) {
  for (const ServeDefault& added : defaults) assign_value(tree, added.key, added.value, added.key);
  return tree;
}

}  // namespace metronome
