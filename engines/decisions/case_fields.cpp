// SPDX-License-Identifier: Apache-2.0
#include "engines/decisions/case_fields.h"

#include <algorithm>

#include "core/config/config_limits.h"
#include "core/engine/engine_config.h"
#include "core/engine/policies/registry.h"
#include "core/scenario/scenario_keys.h"

namespace metronome {

std::string dotted(const std::string& path, std::string_view key) {
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

void require_keys(const ConfigNode& section, const std::string& path, Names keys) {
  for (const std::string_view key : keys) {
    if (section.find(key) != nullptr) continue;
    fail_config(section.where, dotted(path, key),
                "required key is missing; allowed: all of " + join_names(keys));
  }
}

ConfigReader open_mapping(const ConfigNode& node, const std::string& path, Names required,
                          Names optional) {
  ConfigReader reader(node, path);
  for (const Names names : {required, optional}) {
    for (const std::string_view name : names) reader.take(std::string(name).c_str());
  }
  reader.finish();
  require_keys(node, path, required);
  return reader;
}

std::vector<std::string_view> optional_keys(std::string_view policy, Names own,
                                            std::initializer_list<Names> others) {
  std::vector<std::string_view> keys(own.begin(), own.end());
  for (const std::string_view key : find_policy(policy)->keys) {
    const bool is_other = std::any_of(others.begin(), others.end(), [key](Names names) {
      return std::find(names.begin(), names.end(), key) != names.end();
    });
    if (!is_other) keys.push_back(key);
  }
  return keys;
}

void read_cache(ConfigReader& reader, EngineSetup& setup) {
  reader.integer("block_size", setup.kv_cache.block_size, 1, kMaxBlockSize, kNoDoc);
  reader.integer("num_blocks", setup.kv_cache.num_blocks, 1, kMaxBlocks, kNoDoc);
  reader.integer("max_num_seqs", setup.max_num_seqs, 1, kMaxSeqs, kNoDoc);
}

void read_budget(ConfigReader& reader, const char* key, std::optional<std::int64_t>& budget) {
  std::int64_t value = 0;
  reader.integer(key, value, 1, kMaxTokens, kNoDoc);
  budget = value;
}

void read_max_model_len(ConfigReader& reader, EngineSetup& setup) {
  reader.integer("max_model_len", setup.max_model_len, 2, kMaxTokens, kNoDoc);
}

}  // namespace metronome
