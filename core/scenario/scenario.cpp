// SPDX-License-Identifier: Apache-2.0
// Turns a scenario file into validated variants: scenario_overrides.cpp, scenario_variants.cpp,
// scenario_reading.cpp.
#include "core/scenario/scenario.h"

#include <algorithm>
#include <filesystem>
#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/config/catalogue.h"
#include "core/config/config_limits.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/scenario_keys.h"
#include "core/scenario/scenario_parts.h"
#include "core/scenario/unplaced_scenario.h"
#include "core/workload/workload.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

// The top-level keys of a scenario, without those of the file alone.
std::vector<std::string> section_keys() {
  std::vector<std::string> keys;
  for (const DocumentedKey& key : documented_scenario_keys()) {
    if (key.example.empty()) continue;
    const std::string top = key.key.substr(0, key.key.find('.'));
    if (std::find(keys.begin(), keys.end(), top) == keys.end()) keys.push_back(top);
  }
  return keys;
}

// Reads the description. Rejects unknown top-level keys; allowed are the keys of a whole file.
std::string read_description(const ConfigNode& root) {
  std::string description;
  ConfigReader reader(root, "", place_of_key);
  reader.text("description", description, "");
  for (const std::string& key : section_keys()) reader.take(key.c_str());
  reader.take("backends");
  reader.take("variants");
  reader.take("sweep");
  reader.finish();
  return description;
}

void override_seed(ScenarioFile& file, std::uint64_t seed) {
  if (seed > static_cast<std::uint64_t>(kMaxSeed)) {
    throw ConfigError(fmt::format("--seed: {} is out of range; allowed: 0 to {}", seed, kMaxSeed));
  }
  for (Scenario& scenario : file.variants) scenario.seed = seed;
}

// Adds the required keys of a workload that nobody reads.
void add_unread_workload(ConfigNode& root, WorkloadUse use) {
  if (use == WorkloadUse::Requests) return;
  ConfigNode unread = parse_config_text(
      "{num_requests: 1, arrivals: {process: burst}, prompt_tokens: {value: 16}, "
      "output_tokens: {value: 64}}",
      "workload");
  if (use == WorkloadUse::AnswerLengths) unread.erase("output_tokens");
  ConfigNode* const workload = &section_of(root, "workload", root.where);
  if (workload->kind != ConfigNode::Kind::Map) return;
  for (const char* complete : {"trace", "dataset", "sessions"}) {
    if (workload->find(complete) != nullptr) return;
  }
  for (const ConfigNode::Entry& entry : unread.entries) {
    if (workload->find(entry.key) == nullptr) workload->entries.push_back(entry);
  }
}

ScenarioFile read_variants(const ConfigNode& root, const std::string& path,
                           const std::string& base_dir, const std::vector<std::string>& assignments,
                           std::optional<std::uint64_t> seed) {
  ScenarioFile file;
  file.path = path;
  file.name = fs::path(path).stem().string();
  file.description = read_description(root);
  const ConfigNode* variants = root.find("variants");
  if (const ConfigNode* sweep = root.find("sweep")) file.sweep = *sweep;
  file.has_variants = variants != nullptr;
  ConfigNode base = root;
  base.erase("description");
  base.erase("variants");
  base.erase("sweep");
  std::vector<ConfigNode> merged = {base};
  std::vector<std::string> names = {printable(file.name)};
  if (file.has_variants) {
    names = read_variant_names(*variants);
    refuse_unused_keys(base, base, scenario_choices(), scenario_defaults(), "");
    merged = merge_variants(base, *variants);
    refuse_idle_overrides(merged, assignments);
  }
  for (std::size_t i = 0; i < merged.size(); ++i) {
    file.variants.push_back(read_scenario(merged[i], base_dir));
    file.variants.back().name = names[i];
  }
  if (seed.has_value()) override_seed(file, *seed);
  return file;
}

// For a name that looks like none of a file.
void refuse_unknown_scenario(const std::string& name) {
  if (name.find_first_of("./") != std::string::npos) return;
  std::vector<std::string_view> known;
  for (const BuiltInScenario& scenario : built_in_scenarios()) known.push_back(scenario.name);
  throw ConfigError(printable(name) + ": no such file or built-in scenario" +
                    did_you_mean(name, known) +
                    "; allowed: the path of a YAML file, or a name of `metronome list scenarios`");
}

void drop_lines(ConfigNode& node) {
  node.where.line = 0;
  for (ConfigNode& item : node.items) drop_lines(item);
  for (ConfigNode::Entry& entry : node.entries) drop_lines(entry.value);
}

ConfigNode parse_given(const GivenScenario& given) {
  ConfigNode root = parse_config_text(given.yaml, given.name);
  if (!given.has_lines) drop_lines(root);
  return root;
}

}  // namespace

SourceLocation Scenario::location_of(std::string_view key) const {
  if (source == nullptr) return {};
  const ConfigNode* node = source.get();
  while (!key.empty()) {
    const std::size_t length = std::min(key.find('.'), key.size());
    const ConfigNode* child = node->find(key.substr(0, length));
    if (child == nullptr) break;
    node = child;
    key.remove_prefix(std::min(length + 1, key.size()));
  }
  return node->where;
}

std::vector<PathField> path_fields(Scenario& scenario) {
  return path_fields([&scenario](FieldVisitor& visitor) { visit_fields(visitor, scenario); });
}

Scenario with_absolute_paths(Scenario scenario) {
  // A model may also be a folder whose name could be one of the catalogue.
  const auto is_model_folder = [](const PathField& field) {
    return field.key.ends_with("model") && path_exists(*field.value) &&
           !find_model_folder(*field.value).empty();
  };
  for (const PathField& field : path_fields(scenario)) {
    std::string& path = *field.value;
    const bool is_path =
        field.may_be_name ? looks_like_path(path) || is_model_folder(field) : !path.empty();
    if (is_path) path = fs::absolute(path).lexically_normal().string();
  }
  return scenario;
}

Workload make_workload(const Scenario& scenario) try {
  return make_workload(as_sent(scenario.workload, scenario.client), scenario.seed);
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

ScenarioFile load_scenario(const std::string& path, const std::vector<std::string>& assignments,
                           std::optional<std::uint64_t> seed, std::string_view backend,
                           WorkloadUse use) {
  const auto read = [&](ConfigNode root, const std::string& file, const std::string& folder) {
    root = with_overrides(std::move(root), assignments, backend);
    add_unread_workload(root, use);
    return read_variants(root, file, folder, assignments, seed);
  };
  if (const GivenScenario* const given = find_given_scenario(path)) {
    return read(parse_given(*given), path, "");
  }
  const bool is_file = path_exists(path) && !is_folder(path);
  const BuiltInScenario* const known = is_file ? nullptr : find_built_in_scenario(path);
  if (known == nullptr && !path_exists(path)) refuse_unknown_scenario(path);
  if (known == nullptr) {
    return read(load_config_file(path), path, fs::path(path).parent_path().string());
  }
  const std::string file = path + ".yaml";
  return read(parse_config_text(known->yaml, file), file, "");
}

ScenarioFile parse_scenario(std::string_view text, const std::string& path,
                            const std::vector<std::string>& assignments) {
  return read_variants(with_overrides(parse_config_text(text, path), assignments, kBackendNames[0]),
                       path, "", assignments, std::nullopt);
}

Scenario resolved_scenario(const Json& config, const std::string& where,
                           std::span<const Setting> settings) {
  ConfigNode root = config_node(config, {std::make_shared<const std::string>(where), 0});
  root = with_settings(std::move(root), settings);
  return std::move(read_variants(root, where, "", {}, std::nullopt).variants.front());
}

Scenario Scenario::with(std::span<const Setting> settings) const {
  Scenario changed = resolved_scenario(resolved(), name, settings);
  changed.name = name;
  return changed;
}

ScenarioFile parse_unplaced_scenario(std::string_view text, const std::string& name,
                                     const std::vector<std::string>& assignments) {
  return parse_given_scenario({name, std::string(text), false}, assignments, std::nullopt,
                              kBackendNames[0]);
}

ScenarioFile parse_given_scenario(const GivenScenario& given,
                                  const std::vector<std::string>& assignments,
                                  std::optional<std::uint64_t> seed, std::string_view backend) {
  return read_variants(with_overrides(parse_given(given), assignments, backend), given.name, "",
                       assignments, seed);
}

}  // namespace metronome
