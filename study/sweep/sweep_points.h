// SPDX-License-Identifier: Apache-2.0
// The variables of a sweep, keys and values from the scenario's section `sweep` and from `--over`,
// and the points they form.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config_node.h"

namespace metronome {

struct ScenarioFile;

// A key of the scenario as `--set` takes it, and a value as YAML text.
using Assignment = std::pair<std::string, std::string>;

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
  std::string where;  // for messages: "--over KEY" or "file:line: sweep.over.KEY"
};

struct SweepSpec {
  std::vector<SweptKey> over;                   // a grid: every combination of their values
  std::vector<std::vector<Assignment>> points;  // a list; each entry runs at the whole grid
  std::string points_where;                     // "file:line: sweep.points"
};

// Reads the file's section and applies `over_options` ("KEY=A,B,C"): an option replaces the values
// of a key in the section, or adds the key at the end. Throws ConfigError or UsageError for a
// malformed section or option, a key without values, or a duplicate value. Also for a key both in
// the grid and in the list, nothing to vary, or too many points.
//
// A path in the section is relative to the scenario's folder, as elsewhere in the file.
SweepSpec read_sweep(const ScenarioFile& file, const std::vector<std::string>& over_options);

// The values of "A,B,C". A comma inside brackets or quotes is part of a value. START:STOP:STEP is
// every number from START to STOP, inclusive. In START:STOP:xFACTOR each number is FACTOR times the
// previous one. Decimals are exact. `where` is for messages. Throws UsageError.
std::vector<std::string> parse_values(std::string_view text, const std::string& where);

// Every varying key in order: the keys of the list by first appearance, then the keys of the grid.
std::vector<std::string> swept_keys(const SweepSpec& spec);

// The points in order: each entry of the list at every combination of the grid. The last key varies
// fastest.
std::vector<std::vector<Assignment>> expand_points(const SweepSpec& spec);

// A value as YAML on one line that reads back as the same value.
std::string yaml_text(const ConfigNode& node);

}  // namespace metronome
