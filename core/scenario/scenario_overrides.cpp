// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <iterator>

#include "core/base/names.h"
#include "core/scenario/scenario_keys.h"
#include "core/scenario/scenario_parts.h"
#include "core/workload/workload_config.h"

namespace metronome {
namespace {

constexpr std::string_view kVariantPrefix = "variants.";

void require_mapping(const ConfigNode& root) {
  if (root.kind == ConfigNode::Kind::Map) return;
  const bool is_empty = root.kind == ConfigNode::Kind::Null;
  fail_config(
      root.where, "",
      (is_empty ? "the scenario is empty" : "a scenario is a mapping, not " + root.describe()) +
          "; allowed: keys such as model, hardware, scheduler, workload");
}

// The variant that a key "variants.NAME.rest" addresses, and the length of "variants.NAME.". Names
// may contain dots, so the longest matching name wins.
struct VariantMatch {
  ConfigNode* node = nullptr;
  std::size_t prefix_length = 0;
};

VariantMatch match_variant(ConfigNode& root, std::string_view key) {
  VariantMatch match;
  if (!key.starts_with(kVariantPrefix)) return match;
  ConfigNode* variants = root.find("variants");
  if (variants == nullptr) return match;
  for (ConfigNode& variant : variants->items) {
    const ConfigNode* name = variant.find("name");
    if (name == nullptr || name->scalar.empty()) continue;
    const std::string prefix = std::string(kVariantPrefix) + name->scalar + ".";
    if (prefix.size() < match.prefix_length || !key.starts_with(prefix)) continue;
    match = {&variant, prefix.size()};
  }
  return match;
}

[[noreturn]] void refuse_variant(const ConfigNode& root, std::string_view key) {
  std::vector<std::string_view> names;
  if (const ConfigNode* variants = root.find("variants")) {
    for (const ConfigNode& variant : variants->items) {
      if (const ConfigNode* name = variant.find("name")) names.push_back(name->scalar);
    }
  }
  const std::string allowed = names.empty()
                                  ? "a key of a scenario without variants"
                                  : "variants.NAME.KEY with a NAME of " + join_names(names);
  fail_unknown_key(assignment_location(key), "", "no such variant; allowed: " + allowed);
}

void apply_override(ConfigNode& root, const std::string& assignment) {
  const std::string_view key = assignment_key(assignment);
  const std::string_view value = std::string_view(assignment).substr(key.size() + 1);
  if (key == "backends" || key.starts_with("backends.")) {
    fail_config(assignment_location(key), "",
                "the keys of a backend can only be set in the file; allowed: --set with the key "
                "itself, which overrides them");
  }
  if (key == "sweep" || key.starts_with("sweep.")) {
    fail_config(
        assignment_location(key), "",
        "the points of a sweep can only be set in the file; allowed: metronome sweep --over "
        "KEY=VALUES");
  }
  const VariantMatch match = match_variant(root, key);
  if (match.node != nullptr) {
    assign_value(*match.node, key.substr(match.prefix_length), value, key);
    return;
  }
  const bool is_position = key.size() > kVariantPrefix.size() &&
                           key[kVariantPrefix.size()] >= '0' && key[kVariantPrefix.size()] <= '9';
  if (key.starts_with(kVariantPrefix) && !is_position) refuse_variant(root, key);
  assign_value(root, key, value, key);
}

// `shape` has the keys of a config.json; `model` is then the model's name.
void expand_shape(ConfigNode& root) {
  const ConfigNode* const shape = root.find("shape");
  if (shape == nullptr) return;
  if (shape->kind != ConfigNode::Kind::Map || shape->entries.empty()) {
    fail_config(shape->where, "shape",
                "must be a mapping, not " + shape->describe() +
                    "; allowed: the keys of a model's config.json, such as hidden_size");
  }
  ConfigNode* const model = root.find("model");
  Json config = json_of(*shape);
  const bool is_named = model != nullptr && model->kind == ConfigNode::Kind::Scalar;
  if (config.find("name") == nullptr) config["name"] = is_named ? model->scalar : "shape";
  ConfigNode value;
  value.kind = ConfigNode::Kind::Scalar;
  value.is_quoted = true;
  value.scalar = config.dump();
  value.where = shape->where;
  root.erase("shape");
  root.erase("model");
  root.entries.emplace_back("model", std::move(value));
}

// Expands short forms, which cannot be merged key by key or assigned into.
void expand_shorthands(ConfigNode& root) {
  expand_shape(root);
  if (ConfigNode* workload = root.find("workload")) {
    expand_trace_shorthand(*workload);
    expand_length_shorthands(*workload);
  }
  if (ConfigNode* variants = root.find("variants")) {
    for (ConfigNode& variant : variants->items) expand_shorthands(variant);
  }
  if (ConfigNode* backends = root.find("backends")) {
    for (ConfigNode::Entry& entry : backends->entries) expand_shorthands(entry.value);
  }
}

// Merges the file's keys for this backend and removes the `backends` section.
void merge_backend(ConfigNode& root, std::string_view backend) {
  const ConfigNode* given = root.find("backends");
  if (given == nullptr) return;
  const ConfigNode backends = *given;
  const std::string allowed = join_names(kBackendNames);
  if (backends.kind != ConfigNode::Kind::Map) {
    fail_config(backends.where, "backends",
                "must be a mapping, got " + backends.describe() + "; allowed: keys " + allowed);
  }
  for (const ConfigNode::Entry& entry : backends.entries) {
    const std::string path = "backends." + entry.key;
    if (std::find(std::begin(kBackendNames), std::end(kBackendNames), entry.key) ==
        std::end(kBackendNames)) {
      fail_config(entry.value.where, path, "no such backend; allowed: " + allowed);
    }
    ConfigReader reader(entry.value, path, place_of_key);
    check_single_keys(entry.value, path, reader);
  }
  const ConfigNode* own = backends.find(backend);
  root.erase("backends");
  if (own == nullptr) return;
  drop_inherited_keys(root, *own, scenario_choices());
  merge_into(root, *own);
}

}  // namespace

ConfigNode with_overrides(ConfigNode root, const std::vector<std::string>& assignments,
                          std::string_view backend) {
  require_mapping(root);
  expand_shorthands(root);
  merge_backend(root, backend);
  for (const std::string& assignment : assignments) {
    apply_override(root, assignment);
    expand_shorthands(root);
  }
  drop_superseded_keys(root, scenario_choices());
  if (ConfigNode* variants = root.find("variants")) {
    for (ConfigNode& variant : variants->items) drop_superseded_keys(variant, scenario_choices());
  }
  return root;
}

ConfigNode with_settings(ConfigNode root, std::span<const Setting> settings) {
  for (const Setting& setting : settings) {
    assign_node(root, setting.key, config_node(setting.value, {}), setting.key);
    expand_shorthands(root);
  }
  drop_superseded_keys(root, scenario_choices());
  return root;
}

}  // namespace metronome
