// Rows of measured times on their way into tables: sorted, checked against each other and against
// what the hardware can do. Every complaint names the file and the line of a row.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/profile/profile_tables.h"

namespace metronome {

struct MeasuredRow {
  std::array<double, 4> keys{};  // those a table does not have are 0
  double us = 0;
  int line = 0;
};

// The rows of a table, all of one file and one thing.
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

// Sorts by keys. Throws ConfigError at keys that stand twice, or, where `averages`, puts the mean
// in their place.
void sort_rows(MeasuredRows& table, bool averages);

// Throws ConfigError where neighbours in a sorted table, alike in all keys but the last, differ in
// time by far more than in that key: a row in another unit, or a digit too many.
void check_jumps(const MeasuredRows& table);

// The least microseconds that a row's work takes to compute, and to move through memory.
struct FloorUs {
  double compute = 0;
  double memory = 0;
};
using RowFloor = std::function<FloorUs(const MeasuredRow&)>;

// Throws ConfigError at a row that is far below its floor, or absurdly far above.
void check_floor(const MeasuredRows& table, const RowFloor& floor_of);

// Throws ConfigError where the values of a key leave out one of their grid, each at most `factor`
// times the one before.
void check_steps(const MeasuredRows& table, std::size_t key, const std::vector<double>& values,
                 double factor);

// Of sorted rows; the first two by key 0, the others by the last two keys of [begin, end). Throw
// ConfigError at a combination that is not there.
Curve curve_of(const MeasuredRows& table);
CurveFamily family_of(const MeasuredRows& table);
Grid grid_of(const MeasuredRows& table, std::size_t begin, std::size_t end);

}  // namespace metronome
