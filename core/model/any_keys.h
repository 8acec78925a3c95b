// SPDX-License-Identifier: Apache-2.0
// Keys of a config.json by what they mean, whatever its author called them.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/json_section.h"

namespace metronome {

// Reads numbers by any of several keys, and remembers which ones it read.
class AnyKeys {
 public:
  // Wide enough for any model, and small enough that no count overflows 64 bits.
  static constexpr std::int64_t kMaxDim = 1 << 18;

  explicit AnyKeys(const JsonSection& text);

  // Keys of a section in front of those of the text: transformers' per_layer_config of a layer.
  void set_overlay(const std::optional<JsonSection>& overlay) {
    overlay_.reset();
    if (overlay) overlay_.emplace(*overlay);
  }

  using Names = std::span<const char* const>;

  // The first key that the file has with another value than null; nullptr: none.
  const char* find(Names names) const;
  bool has(Names names) const { return find(names) != nullptr; }
  // Of a list, its first number. Throws ConfigError for a number above kMaxDim.
  std::int64_t number(Names names, std::int64_t otherwise = 0);
  std::int64_t number(const char* name, std::int64_t otherwise = 0) {
    return number(Names(&name, 1), otherwise);
  }
  // Throws ConfigError where the file has none of them, or a number below 1.
  std::int64_t required(Names names);
  bool is_true(const char* name, bool otherwise = false) const {
    const Json* value = section_of(name).find(name);
    return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
  }
  // A number for each layer, of a list under the key. Empty: it has no list, or one of another
  // length. Booleans are 0 and 1.
  std::vector<std::int64_t> per_layer(const char* name, std::int64_t n_layers);
  // Words for each layer; empty as above.
  std::vector<std::string> words(const char* name);
  // Layers that a list names, from `first`; empty as above.
  std::vector<std::int64_t> layers(const char* name, std::int64_t first = 0);

  const JsonSection& section() const { return text_; }
  void remember(const char* name);
  // "hidden_size, num_hidden_layers, ...", as read.
  const std::string& read() const { return read_; }

 private:
  const Json* list(const char* name);

  // The section that has the key; the text, if none has.
  const JsonSection& section_of(const char* name) const;

  const JsonSection& text_;
  std::optional<JsonSection> overlay_;
  std::vector<JsonSection> inner_;  // of the text: DBRX has its numbers there
  std::string read_;
};

}  // namespace metronome
