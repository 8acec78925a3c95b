// SPDX-License-Identifier: Apache-2.0
// A scenario file in the making: keys with values, and the reason of a value as its comment.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace metronome {

class YamlDraft {
 public:
  // `value` as in YAML; a later one replaces an earlier one. `reason` is one line; empty: none.
  void set(const std::string& key, const std::string& value, const std::string& reason = {});
  // A word or a path, quoted where YAML needs that.
  void set_text(const std::string& key, const std::string& value, const std::string& reason = {});
  bool has(std::string_view key) const;
  // The value as it was set; empty: it is not.
  std::string value(std::string_view key) const;

  // Keys of a section stand together, in the order in which the first of each was set. `head` are
  // lines of comment before them.
  std::string text(const std::vector<std::string>& head) const;
  // In one line, without reasons: "{name: h100, engine: {async_depth: 2}}".
  std::string flow() const;

 private:
  struct Line {
    std::string key;
    std::string value;
    std::string reason;
  };
  // Names in a section, each once.
  std::vector<std::string> names_in(std::string_view section) const;
  const Line* find(std::string_view key) const;
  void write(const std::string& section, std::size_t depth, std::string& text) const;
  std::string flow_of(const std::string& section) const;

  std::vector<Line> lines_;
};

}  // namespace metronome
