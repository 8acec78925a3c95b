// SPDX-License-Identifier: Apache-2.0
// Rows of measured times before they become tables: sorted, checked against each other and against
// the limits of the hardware. Every error names the file and line of a row.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/profile/profile_tables.h"

namespace metronome {

struct MeasuredRow {
  std::array<double, 4> keys{};  // unused keys are 0
  double us = 0;
  int line = 0;
};

// The rows of one table: one file and one measured thing.
struct MeasuredRows {
  std::string file;
  std::string what;                     // "layer qkv_proj"; for messages
  std::vector<std::string_view> names;  // of the keys, in their order
  std::vector<MeasuredRow> rows;

  [[noreturn]] void fail(const MeasuredRow& row, std::string_view column,
                         const std::string& message) const;
  // "n_decode 4, kv_decode 64".
  std::string place(const MeasuredRow& row) const;
};

// The least microseconds that a row's work takes: to compute, and to move through memory.
struct FloorUs {
  double compute = 0;
  double memory = 0;
};
using RowFloor = std::function<FloorUs(const MeasuredRow&)>;

// Sorts by keys. Rows with equal keys become their mean if `averages`. Throws ConfigError for such
// rows otherwise; for neighbours that differ in the last key alone, and in their times far more
// than in it: a row in another unit, or a digit too many; and, where there is a floor, for a row
// that is far below it or absurdly far above.
void check_rows(MeasuredRows& table, bool averages, const RowFloor& floor_of = nullptr);

// Throws ConfigError if a key's values skip a grid value, that is, a value is more than `factor`
// times the previous one.
void check_steps(const MeasuredRows& table, std::size_t key, const std::vector<double>& values,
                 double factor);

// Require sorted rows. The first two use key 0; the others use the last two keys of [begin, end).
// Throw ConfigError for a missing combination.
Curve curve_of(const MeasuredRows& table);
TimeFamily<Curve> family_of(const MeasuredRows& table);
Grid grid_of(const MeasuredRows& table, std::size_t begin, std::size_t end);

}  // namespace metronome
