// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/scenario/scenario_keys.h"
#include "core/scenario/scenario_parts.h"

namespace metronome {

// Checks single keys before merging, while their path in the file is known.
void check_single_keys(const ConfigNode& overlay, const std::string& path, ConfigReader& reader) {
  refuse_unknown_policy_keys(overlay, path + ".");
  Scenario unused;
  visit_fields(reader, unused);
  reader.finish();
}

namespace {

std::string variant_path(std::size_t position) { return fmt::format("variants.{}", position); }

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
                fmt::format("{} is too long; allowed: at most {} characters", given->describe(),
                            kMaxVariantNameLength));
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

// Whether a value (not a section made to hold it) comes from `file`.
bool holds_location(const ConfigNode& node, const std::string& file) {
  const auto holds = [&file](const ConfigNode& child) { return holds_location(child, file); };
  return (node.entries.empty() && node.where.file != nullptr && *node.where.file == file) ||
         std::any_of(node.items.begin(), node.items.end(), holds) ||
         std::any_of(node.entries.begin(), node.entries.end(),
                     [&holds](const ConfigNode::Entry& entry) { return holds(entry.value); });
}

}  // namespace

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

}  // namespace metronome
