// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/config/catalogue.h"
#include "core/engine/policies/registry.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/engine_product.h"
#include "core/scenario/fleet_rules.h"
#include "core/scenario/scenario_keys.h"
#include "core/scenario/scenario_parts.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

// A path of the file is relative to its folder, one of `--set` to the current folder.
void resolve_paths(const FieldVisit& visit, const Scenario& scenario, const std::string& base_dir) {
  for (const PathField& field : path_fields(visit)) {
    std::string& path = *field.value;
    const bool is_path = field.may_be_name ? looks_like_path(path) : !path.empty();
    if (!is_path || scenario.location_of(field.key).is_assignment()) continue;
    if (!fs::path(path).is_absolute())
      path = (fs::path(base_dir) / path).lexically_normal().string();
  }
}

// The catalogue's name for a repository of models that is no path.
std::string known_or_path(const std::string& given, const std::string& path) {
  const std::string known = catalogue_name(given);
  return known.empty() || path_exists(path) ? path : known;
}

Quantization quantization_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::Fp8: return Quantization::Fp8;
    case WeightFormat::Fp8Block: return Quantization::Fp8Block;
    case WeightFormat::Nvfp4: return Quantization::Nvfp4;
    case WeightFormat::Mxfp4: return Quantization::Mxfp4;
    case WeightFormat::Int4: return Quantization::Int4;
    default: return Quantization::None;
  }
}

// A name that says how weights are stored says it for a scenario that does not.
void apply_named_format(const std::string& name, Scenario& scenario) {
  const std::optional<WeightFormat> format = named_format(name);
  if (!format || scenario.quantization != Quantization::Auto) return;
  scenario.quantization = quantization_of(*format);
  scenario.serve_defaults.push_back(
      {"quantization", *format == WeightFormat::Plain ? "none" : std::string(to_string(*format)),
       "as the model's name says: " + printable(name)});
}

// Whether the model's layers keep states; false where the model cannot be read, which a backend
// reports.
bool keeps_states(const Scenario& scenario) {
  try {
    return find_model(scenario.model, scenario.location_of("model")).n_linear_layers() > 0;
  } catch (const ConfigError&) {
    return false;
  }
}

// Few engines cache states.
void resolve_prefix_caching(const PolicyInfo& policy, Scenario& scenario) {
  std::optional<bool>& caches = scenario.kv_cache.enable_prefix_caching;
  const bool may_cache_states =
      policy.groups_states || product_of(policy.name).divide_memory != nullptr;
  if (!caches && policy.prefix_caching == PrefixCaching::Optional && !may_cache_states &&
      keeps_states(scenario)) {
    caches = false;
    scenario.serve_defaults.push_back({"kv_cache.enable_prefix_caching", "false",
                                       "the policy caches no states, which the model has"});
  }
  caches = caches_prefixes(policy, scenario.kv_cache);
}

// Fills in values that depend on the policy, so that the resolved config shows them.
void resolve_policy_defaults(Scenario& scenario) {
  const PolicyInfo* policy = find_policy(scenario.scheduler.policy);
  METRONOME_CHECK(policy != nullptr, "reading refuses unknown policies");
  if (policy->default_token_budget != kWholeModelLength) {
    scenario.scheduler.max_num_batched_tokens = token_budget(scenario.scheduler);
  }
  if (policy->predicts_steps) {
    SloPolicyConfig& targets = scenario.scheduler.slo;
    if (!targets.itl_target_ms) targets.itl_target_ms = scenario.slo.itl_ms;
    if (!targets.tpot_target_ms) targets.tpot_target_ms = scenario.slo.tpot_ms;
    if (!targets.ttft_deadline_ms) targets.ttft_deadline_ms = scenario.slo.ttft_ms;
  }
  KvCacheConfig& cache = scenario.kv_cache;
  cache.watermark = cache.watermark.value_or(policy->default_watermark);
  resolve_prefix_caching(*policy, scenario);
}

// The limits of the workload's classes, which are those of the scenario where they say nothing.
void set_class_limits(Scenario& scenario) {
  const SloConfig common = scenario.slo;
  for (const ClassConfig& one : scenario.workload.classes) {
    SloConfig& own = scenario.slo.by_class.emplace_back(common);
    own.class_name = one.name;
    if (one.slo.ttft_ms) own.ttft_ms = one.slo.ttft_ms;
    if (one.slo.tpot_ms) own.tpot_ms = one.slo.tpot_ms;
    if (one.slo.itl_ms) own.itl_ms = one.slo.itl_ms;
    if (one.slo.e2el_ms) own.e2el_ms = one.slo.e2el_ms;
  }
}

// Reads every section but the workload. `source` has the locations of what is read.
Scenario read_sections(const ConfigNode& tree, const std::shared_ptr<const ConfigNode>& source,
                       const std::string& base_dir) {
  Scenario scenario;
  ConfigReader reader(tree, "", place_of_key);
  visit_before_workload(reader, scenario);
  reader.take("workload");
  visit_after_workload(reader, scenario);
  reader.finish();
  scenario.source = source;
  const std::string model = scenario.model;
  const std::string drafter = scenario.speculative.model;
  const FieldVisit visit = [&scenario](FieldVisitor& visitor) {
    visit_before_workload(visitor, scenario);
    visit_after_workload(visitor, scenario);
  };
  resolve_paths(visit, scenario, base_dir);
  if (const std::string known = known_or_path(model, scenario.model); known != scenario.model) {
    scenario.model = known;
    apply_named_format(model, scenario);
  }
  scenario.speculative.model = known_or_path(drafter, scenario.speculative.model);
  return scenario;
}

}  // namespace

Scenario read_scenario(const ConfigNode& given, const std::string& base_dir) {
  refuse_unknown_policy_keys(given, "");
  const auto source = std::make_shared<const ConfigNode>(given);
  Scenario scenario = read_sections(given, source, base_dir);
  std::vector<ServeDefault> defaults = unset_serve_defaults(scenario);
  if (!defaults.empty()) {
    scenario = read_sections(with_serve_defaults(given, defaults), source, base_dir);
    scenario.serve_defaults.insert(scenario.serve_defaults.end(), defaults.begin(), defaults.end());
  }
  resolve_policy_defaults(scenario);
  validate_scenario(scenario, given);
  const ConfigNode* workload = given.find("workload");
  if (workload == nullptr) {
    fail_config(given.where, "workload",
                "required key is missing; allowed: arrivals and lengths, or a trace");
  }
  scenario.workload = read_workload_config(*workload, "workload", base_dir, place_of_key);
  set_class_limits(scenario);
  if (scenario.fleet.is_on()) check_fleet_groups(scenario);
  return scenario;
}

}  // namespace metronome
