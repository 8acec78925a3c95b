// SPDX-License-Identifier: Apache-2.0
// The values in a file of a benchmark's client: JSON, JSON Lines, YAML, or a table of metrics.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "core/base/json_place.h"

namespace metronome {

struct MeasuredDocument {
  std::string where;  // "file", "file:3" of JSON Lines
  Json json;

  JsonPlace place() const { return JsonPlace(where, json); }
};

struct MeasuredFile {
  std::string path;
  std::string text;  // the first kLookedAt bytes, in which the marks of formats are sought
  std::vector<MeasuredDocument> documents;  // empty: it has none, or none could be read
  std::string problem;                      // why it could not be read to its end; empty: it was

  static constexpr std::size_t kLookedAt = std::size_t{1} << 20;

  bool has_text(std::string_view mark) const { return text.find(mark) != std::string::npos; }
};

// Not a folder, a pipe or a device.
bool is_plain_file(const std::string& path);

// A table whose first cell is "Metric" becomes an object of metrics, as JSON exports have them:
// {"time_to_first_token": {"unit": "ms", "avg": 12.5, ...}, ...}. Throws ConfigError if the file
// cannot be opened; `allowed` says which files are expected.
MeasuredFile open_measured_file(const std::string& path, std::string_view allowed);

}  // namespace metronome
