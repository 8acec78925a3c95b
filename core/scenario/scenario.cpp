// SPDX-License-Identifier: Apache-2.0
// Turns a scenario file into validated variants: overrides, merging, reading.
#include "core/scenario/scenario.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/config/catalogue.h"
#include "core/config/config_limits.h"
#include "core/engine/policies/registry.h"
#include "core/model/model_catalogue.h"
#include "core/scenario/built_in_scenarios.h"
#include "core/scenario/scenario_keys.h"
#include "core/scenario/unplaced_scenario.h"
#include "core/workload/workload.h"

namespace metronome {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kVariantPrefix = "variants.";

std::string variant_path(std::size_t position) { return "variants." + std::to_string(position); }

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

void require_mapping(const ConfigNode& root) {
  if (root.kind == ConfigNode::Kind::Map) return;
  const bool is_empty = root.kind == ConfigNode::Kind::Null;
  fail_config(
      root.where, "",
      (is_empty ? "the scenario is empty" : "a scenario is a mapping, not " + root.describe()) +
          "; allowed: keys such as model, hardware, scheduler, workload");
}

// ---- overrides ----

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

// Expands short forms, which cannot be merged key by key or assigned into.
void expand_shorthands(ConfigNode& root) {
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

// ---- variants ----

// Checks single keys before merging, while their path in the file is known.
void check_single_keys(const ConfigNode& overlay, const std::string& path, ConfigReader& reader) {
  refuse_unknown_policy_keys(overlay, path + ".");
  Scenario unused;
  visit_fields(reader, unused);
  reader.finish();
}

std::string read_variant_name(const ConfigNode& variant, const std::string& path) {
  constexpr const char* kAllowed = "; allowed: letters, digits, '.', '_' and '-'";
  ConfigReader reader(variant, path, place_of_key);
  std::string name;
  reader.text("name", name, "");
  check_single_keys(variant, path, reader);
  const std::string key = path + ".name";
  const ConfigNode* given = variant.find("name");
  if (given == nullptr) {
    fail_config(variant.where, key, std::string("required key is missing") + kAllowed);
  }
  const bool is_word = std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
  // Dots alone would name a different folder.
  if (name.empty() || !is_word || name == "." || name == "..") {
    fail_config(given->where, key, given->describe() + " is not a variant name" + kAllowed);
  }
  for (const std::string_view ending : {".json", ".jsonl", ".yaml", ".html"}) {
    if (!name.ends_with(ending)) continue;
    fail_config(given->where, key,
                "'" + name +
                    "' may be the name of a result file; allowed: one that does not end in " +
                    std::string(ending));
  }
  if (name.size() > kMaxVariantNameLength) {
    fail_config(given->where, key,
                given->describe() + " is too long; allowed: at most " +
                    std::to_string(kMaxVariantNameLength) + " characters");
  }
  return name;
}

void require_variant_list(const ConfigNode& variants) {
  if (variants.kind == ConfigNode::Kind::Sequence && !variants.items.empty()) return;
  const std::string got =
      variants.kind == ConfigNode::Kind::Sequence ? "an empty list" : variants.describe();
  fail_config(variants.where, "variants",
              "must be a list of variants, got " + got +
                  "; allowed: at least one mapping with a name, or omit the key");
}

std::vector<std::string> read_variant_names(const ConfigNode& variants) {
  require_variant_list(variants);
  std::vector<std::string> names;
  std::map<std::string, std::size_t> firsts;
  for (std::size_t i = 0; i < variants.items.size(); ++i) {
    const ConfigNode& variant = variants.items[i];
    std::string name = read_variant_name(variant, variant_path(i));
    const auto [first, is_new] = firsts.emplace(name, i);
    if (!is_new) {
      fail_config(variant.find("name")->where, variant_path(i) + ".name",
                  "'" + name + "' is already the name of " + variant_path(first->second) +
                      "; allowed: a unique name");
    }
    names.push_back(std::move(name));
  }
  return names;
}

// ---- reading ----

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
  cache.enable_prefix_caching = caches_prefixes(*policy, cache);
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
  scenario.model = known_or_path(model, scenario.model);
  scenario.speculative.model = known_or_path(drafter, scenario.speculative.model);
  return scenario;
}

Scenario read_scenario(const ConfigNode& given, const std::string& base_dir) {
  refuse_unknown_policy_keys(given, "");
  const auto source = std::make_shared<const ConfigNode>(given);
  Scenario scenario = read_sections(given, source, base_dir);
  std::vector<ServeDefault> defaults = unset_serve_defaults(scenario);
  if (!defaults.empty()) {
    scenario = read_sections(with_serve_defaults(given, defaults), source, base_dir);
    scenario.serve_defaults = std::move(defaults);
  }
  resolve_policy_defaults(scenario);
  validate_scenario(scenario, given);
  const ConfigNode* workload = given.find("workload");
  if (workload == nullptr) {
    fail_config(given.where, "workload",
                "required key is missing; allowed: arrivals and lengths, or a trace");
  }
  scenario.workload = read_workload_config(*workload, "workload", base_dir, place_of_key);
  return scenario;
}

// Whether a value (not a section made to hold it) comes from `file`.
bool holds_location(const ConfigNode& node, const std::string& file) {
  const auto holds = [&file](const ConfigNode& child) { return holds_location(child, file); };
  return (node.entries.empty() && node.where.file != nullptr && *node.where.file == file) ||
         std::any_of(node.items.begin(), node.items.end(), holds) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [&holds](const ConfigNode::Entry& entry) { return holds(entry.value); });
}

// Rejects an override without effect, which is probably a mistake.
void refuse_idle_overrides(const std::vector<ConfigNode>& merged,
                           const std::vector<std::string>& assignments) {
  for (const std::string& assignment : assignments) {
    const std::string key(assignment_key(assignment));
    if (key == "description" || key.starts_with("variants")) continue;
    const SourceLocation where = assignment_location(key);
    const bool is_used = std::any_of(
        merged.begin(), merged.end(),
        [&where](const ConfigNode& variant) { return holds_location(variant, *where.file); });
    if (is_used) continue;
    fail_config(where, "",
                "has no effect: every variant overrides or drops this key; allowed: "
                "variants.NAME." +
                    key + " for one variant");
  }
}

std::vector<ConfigNode> merge_variants(const ConfigNode& base, const ConfigNode& variants) {
  std::vector<ConfigNode> merged;
  for (const ConfigNode& variant : variants.items) {
    ConfigNode own = variant;
    own.erase("name");
    merged.push_back(base);
    drop_inherited_keys(merged.back(), own, scenario_choices());
    merge_into(merged.back(), own);
  }
  return merged;
}

void override_seed(ScenarioFile& file, std::uint64_t seed) {
  if (seed > static_cast<std::uint64_t>(kMaxSeed)) {
    throw ConfigError("--seed: " + std::to_string(seed) + " is out of range; allowed: 0 to " +
                      std::to_string(kMaxSeed));
  }
  for (Scenario& scenario : file.variants) scenario.seed = seed;
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

// Adds the required keys of a workload that nobody reads.
void add_unread_workload(ConfigNode& root, WorkloadUse use) {
  if (use == WorkloadUse::Requests) return;
  ConfigNode unread = parse_config_text(
      "{num_requests: 1, arrivals: {process: burst}, prompt_tokens: {value: 16}, "
      "output_tokens: {value: 64}}",
      "workload");
  if (use == WorkloadUse::AnswerLengths) unread.erase("output_tokens");
  ConfigNode* workload = root.find("workload");
  if (workload == nullptr) {
    ConfigNode empty;
    empty.kind = ConfigNode::Kind::Map;
    empty.where = root.where;
    root.entries.emplace_back("workload", std::move(empty));
    workload = &root.entries.back().value;
  }
  if (workload->kind != ConfigNode::Kind::Map) return;
  for (const char* complete : {"trace", "dataset", "sessions"}) {
    if (workload->find(complete) != nullptr) return;
  }
  for (const ConfigNode::Entry& entry : unread.entries) {
    if (workload->find(entry.key) == nullptr) workload->entries.push_back(entry);
  }
}

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
  return make_workload(scenario.workload, scenario.seed);
} catch (const UnplacedConfigError& error) {
  fail_config(scenario.location_of(error.key()), error.key(), error.message());
}

namespace {

ScenarioFile read_file(const ConfigNode& root, const std::string& path, const std::string& base_dir,
                       const std::vector<std::string>& assignments,
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

}  // namespace

ScenarioFile load_scenario(const std::string& path, const std::vector<std::string>& assignments,
                           std::optional<std::uint64_t> seed, std::string_view backend,
                           WorkloadUse use) {
  const bool is_file = path_exists(path) && !is_folder(path);
  const BuiltInScenario* const known = is_file ? nullptr : find_built_in_scenario(path);
  if (known == nullptr && !path_exists(path)) refuse_unknown_scenario(path);
  const std::string file = known == nullptr ? path : path + ".yaml";
  ConfigNode root =
      known == nullptr ? load_config_file(path) : parse_config_text(known->yaml, file);
  root = with_overrides(std::move(root), assignments, backend);
  add_unread_workload(root, use);
  const std::string folder = known == nullptr ? fs::path(path).parent_path().string() : "";
  return read_file(root, file, folder, assignments, seed);
}

ScenarioFile parse_scenario(std::string_view text, const std::string& path,
                            const std::vector<std::string>& assignments) {
  return read_file(with_overrides(parse_config_text(text, path), assignments, kBackendNames[0]),
                   path, "", assignments, std::nullopt);
}

ScenarioFile parse_unplaced_scenario(std::string_view text, const std::string& name,
                                     const std::vector<std::string>& assignments) {
  ConfigNode root = parse_config_text(text, name);
  drop_lines(root);
  return read_file(with_overrides(std::move(root), assignments, kBackendNames[0]), name, "",
                   assignments, std::nullopt);
}

}  // namespace metronome
