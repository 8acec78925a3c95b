// SPDX-License-Identifier: Apache-2.0
// Reads the keys of a decision case. Errors name the file, the line, the key and what is allowed.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/config/config_node.h"
#include "core/config/config_reader.h"
#include "core/engine/engine.h"

namespace metronome {

using Names = std::span<const std::string_view>;

constexpr std::int32_t kMaxBlockSize = 65536;

// Fields are read one by one; the error message itself explains the key.
constexpr const char* kNoDoc = "";

std::string dotted(const std::string& path, std::string_view key);

void require_keys(const ConfigNode& section, const std::string& path, Names keys);

// A reader of a mapping with all `required` keys and, apart from them, only `optional` keys. A
// misspelled key is reported as unknown, before any missing key.
ConfigReader open_mapping(const ConfigNode& node, const std::string& path, Names required,
                          Names optional);

// `own`, and the keys of the policy but for `others`: logs have keys that came later where their
// cases set them.
std::vector<std::string_view> optional_keys(std::string_view policy, Names own,
                                            std::initializer_list<Names> others);

void read_cache(ConfigReader& reader, EngineSetup& setup);
void read_budget(ConfigReader& reader, const char* key, std::optional<std::int64_t>& budget);
// A prompt may be one token shorter than max_model_len, so at least 2.
void read_max_model_len(ConfigReader& reader, EngineSetup& setup);

}  // namespace metronome
