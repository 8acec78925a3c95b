// SPDX-License-Identifier: Apache-2.0
// Shared by the files that read parts of the `workload` section: choices with the keys that each
// value uses, and lengths.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/workload/workload_config.h"

namespace metronome {

template <class Enum>
constexpr unsigned bit(Enum value) {
  return 1u << static_cast<unsigned>(value);
}

template <class Enum, class... Rest>
constexpr unsigned bits(Enum first, Rest... rest) {
  return (bit(first) | ... | bit(rest));
}

// Which values of a choice use a key, and which of them require it.
struct KeyUse {
  std::string_view key;
  unsigned used_by;
  unsigned needed_by = 0;
};

// A key that chooses among `names`, and the keys that each name uses.
struct UseTable {
  std::string_view selector;
  std::span<const std::string_view> names;
  std::span<const KeyUse> uses;
};

std::optional<std::size_t> position_of(std::string_view name,
                                       std::span<const std::string_view> names);
Unused unused_in_table(const UseTable& table, std::string_view value);
Unused unused_with_complaint(std::span<const std::string_view> keys, const std::string& complaint);

// The entry of a mapping; nullptr when there is none, or null.
const ConfigNode* given(const ConfigNode* section, std::string_view key);

// One mapping of the workload, for messages about its keys.
struct Section {
  const ConfigNode* node;  // nullptr when it is absent
  SourceLocation where;    // its location, or that of the parent if it is absent
  std::string path;

  Section(const ConfigNode& parent, const std::string& parent_path, std::string_view key)
      : node(given(&parent, key)),
        where(node != nullptr ? node->where : parent.where),
        path(parent_path + "." + std::string(key)) {}

  // Of a mapping that is there.
  Section(const ConfigNode& self, std::string own_path)
      : node(&self), where(self.where), path(std::move(own_path)) {}

  const ConfigNode* get(std::string_view key) const { return given(node, key); }
  [[noreturn]] void fail(std::string_view key, const std::string& message) const;
};

void check_needed(const Section& section, const UseTable& table, std::size_t chosen);
void check_weights(const Section& section, std::size_t num_values,
                   const std::vector<double>& weights);

// Lengths, also counts and times in milliseconds: length_config.cpp.
void visit_length(FieldVisitor& visitor, const char* key, LengthConfig& config, const char* doc);
void check_length(const Section& section, const LengthConfig& config);
// Appends the choices of the lengths at this path below the workload.
void append_length_choices(const std::string& path, std::vector<Choice>& choices);
// A sentence about a value that is rarely meant; empty: there is none.
std::string length_warning(const std::string& path, const LengthConfig& config);

// Prefixes: workload_config.cpp.
void visit_prefix(FieldVisitor& visitor, PrefixConfig& config);
void check_prefix(const Section& section, const PrefixConfig& config, std::int64_t num_requests);

// Classes: class_config.cpp. Reads them from the `workload` mapping, after its other keys.
void read_classes(const ConfigNode& workload, const std::string& path, WorkloadConfig& config);
// Whether a class, or a workload without any, uses the workload's own lengths.
bool classes_need(const WorkloadConfig& config, bool ClassConfig::*has_own);

// Datasets and sessions: session_config.cpp.
void visit_dataset(FieldVisitor& visitor, DatasetConfig& config);
void visit_sessions(FieldVisitor& visitor, SessionConfig& config);
void append_session_choices(std::vector<Choice>& choices);
// Images: workload_images.cpp.
void visit_images(FieldVisitor& visitor, ImageConfig& config);
void append_image_choices(std::vector<Choice>& choices);
void check_images(const Section& section, const ImageConfig& config);
// Puts images into the prompts of drawn requests, which have a prefix of `num_prefix_tokens`.
class Workload;
void draw_images(const ImageConfig& config, std::uint64_t seed, std::int32_t num_prefix_tokens,
                 Workload& workload);

// Fill in what the dataset's defaults are, and check.
void check_dataset(const Section& section, DatasetConfig& config);
void check_sessions(const Section& section, const SessionConfig& config);

}  // namespace metronome
