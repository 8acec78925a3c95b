// What a sweep varies: keys with their values, as the scenario's section `sweep` and `--over` give
// them, and the points that they make.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config_node.h"
#include "core/scenario/scenario.h"

namespace metronome {

// A key of the scenario as `--set` takes it, and a value as YAML text.
using Assignment = std::pair<std::string, std::string>;

struct SweptKey {
  std::string key;
  std::vector<std::string> values;
  std::string where;  // for messages: "--over KEY" or "file:line: sweep.over.KEY"
};

struct SweepSpec {
  std::vector<SweptKey> over;                   // a grid: every combination of their values
  std::vector<std::vector<Assignment>> points;  // a list; each entry is run at the whole grid
  std::string points_where;                     // "file:line: sweep.points"
};

// Reads the file's section and lays `over_options` ("KEY=A,B,C") upon it: one replaces the values
// of a key that the section has, or adds the key behind it. Throws ConfigError or UsageError: a
// malformed section or option, a key without values, a value given twice, a key both in the grid
// and in the list, nothing to vary, or too many points.
//
// A path that the section gives is relative to the scenario's folder, as elsewhere in the file.
SweepSpec read_sweep(const ScenarioFile& file, const std::vector<std::string>& over_options);

// The values of "A,B,C". A comma inside brackets or quotes is part of a value. START:STOP:STEP is
// every number from START to STOP, both included, and START:STOP:xFACTOR the same with each number
// FACTOR times the one before. Decimals are exact. `where` is for messages. Throws UsageError.
std::vector<std::string> parse_values(std::string_view text, const std::string& where);

// Every key that varies, in order: those of the list by first appearance, then those of the grid.
std::vector<std::string> swept_keys(const SweepSpec& spec);

// The points in order: the list's entries, each at every combination of the grid, where the last
// key varies fastest.
std::vector<std::vector<Assignment>> expand_points(const SweepSpec& spec);

// A value as YAML on one line that reads back as the same value.
std::string yaml_text(const ConfigNode& node);

}  // namespace metronome
