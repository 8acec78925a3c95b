// SPDX-License-Identifier: Apache-2.0
#include "sim/profile/profile_rows.h"

#include <algorithm>
#include <cstdio>
#include <fmt/core.h>
#include <memory>

#include "core/base/error.h"
#include "core/config/config_reader.h"

namespace metronome {
namespace {

// Measurements scatter and kernels change, but another unit differs by a factor of a thousand.
constexpr double kJump = 30;
constexpr double kNearKeys = 4;
constexpr double kFarBelow = 0.25;
constexpr double kFarAbove = 100;
constexpr double kMaxOverheadUs = 1000;
constexpr double kLeastComputeUs = 20;  // below this the launch dominates
// Smaller data may stay in a cache between a profiler's calls, and be faster than memory.
constexpr double kLeastMemoryUs = 200;
constexpr double kRounding = 1.07;  // keys are whole numbers

std::string short_text(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", value);
  return text;
}

double ratio(double a, double b) { return std::max(a, b) / std::min(a, b); }

// Rows with equal keys become one.
void sort_rows(MeasuredRows& table, bool averages) {
  std::vector<MeasuredRow>& rows = table.rows;
  std::stable_sort(rows.begin(), rows.end(),
                   [](const MeasuredRow& a, const MeasuredRow& b) { return a.keys < b.keys; });
  std::vector<MeasuredRow> merged;
  for (std::size_t i = 0; i < rows.size();) {
    MeasuredRow row = rows[i];
    std::size_t end = i + 1;
    for (; end < rows.size() && rows[end].keys == row.keys; ++end) row.us += rows[end].us;
    if (end > i + 1 && !averages) {
      table.fail(rows[i + 1], table.names.front(),
                 fmt::format("{} is also in line {}; allowed: once", table.place(row), row.line));
    }
    row.us /= static_cast<double>(end - i);
    merged.push_back(row);
    i = end;
  }
  rows = std::move(merged);
}

// Of neighbours that differ only in the last key.
void check_jumps(const MeasuredRows& table) {
  const std::size_t last = table.names.size() - 1;
  for (std::size_t i = 1; i < table.rows.size(); ++i) {
    const MeasuredRow& before = table.rows[i - 1];
    const MeasuredRow& row = table.rows[i];
    if (!std::equal(row.keys.begin(), row.keys.begin() + static_cast<std::ptrdiff_t>(last),
                    before.keys.begin())) {
      continue;
    }
    if (before.keys[last] > 0 && ratio(row.keys[last], before.keys[last]) > kNearKeys) continue;
    if (ratio(row.us, before.us) < kJump) continue;
    // Reports the row that also differs from its other neighbour.
    const bool has_next = i + 1 < table.rows.size() && ratio(table.rows[i + 1].us, row.us) < kJump;
    const MeasuredRow& wrong = has_next ? before : row;
    table.fail(wrong, "time_us",
               short_text(wrong.us) + " does not fit " + short_text(has_next ? row.us : before.us) +
                   " of the neighbouring row (" + table.place(wrong) + "); allowed: microseconds");
  }
}

void check_floor(const MeasuredRows& table, const RowFloor& floor_of) {
  for (const MeasuredRow& row : table.rows) {
    const FloorUs floor = floor_of(row);
    const double floor_us = std::max(floor.compute, floor.memory);
    const bool is_below = (floor.compute > kLeastComputeUs && row.us < kFarBelow * floor.compute) ||
                          (floor.memory > kLeastMemoryUs && row.us < kFarBelow * floor.memory);
    const bool is_above = row.us > kFarAbove * floor_us + kMaxOverheadUs;
    if (!is_below && !is_above) continue;
    table.fail(row, "time_us",
               short_text(row.us) + (is_below ? " is far below" : " is implausibly far above") +
                   " the time that the hardware needs for " + table.place(row) + ", " +
                   short_text(floor_us) + " us; allowed: microseconds");
  }
}

}  // namespace

void MeasuredRows::fail(const MeasuredRow& row, std::string_view column,
                        const std::string& message) const {
  fail_config({std::make_shared<const std::string>(file), row.line}, column, message);
}

std::string MeasuredRows::place(const MeasuredRow& row) const {
  std::string text = what;
  for (std::size_t i = 0; i < names.size(); ++i) {
    text += (text.empty() ? "" : ", ") + std::string(names[i]) + ' ' + short_text(row.keys[i]);
  }
  return text;
}

void check_rows(MeasuredRows& table, bool averages, const RowFloor& floor_of) {
  sort_rows(table, averages);
  check_jumps(table);
  if (floor_of) check_floor(table, floor_of);
}

void check_steps(const MeasuredRows& table, std::size_t key, const std::vector<double>& values,
                 double factor) {
  for (std::size_t i = 1; i < values.size(); ++i) {
    if (values[i - 1] <= 0 || values[i] <= values[i - 1] * factor * kRounding) continue;
    const auto row = std::find_if(table.rows.begin(), table.rows.end(),
                                  [&](const MeasuredRow& r) { return r.keys[key] == values[i]; });
    table.fail(*row, table.names[key],
               "a gap in the grid: " + short_text(values[i]) + " follows " +
                   short_text(values[i - 1]) + " (" + table.place(*row) +
                   "); allowed: at most times " + short_text(factor));
  }
}

Curve curve_of(const MeasuredRows& table) {
  Curve curve;
  for (const MeasuredRow& row : table.rows) {
    curve.x.push_back(row.keys[0]);
    curve.us.push_back(row.us);
  }
  return curve;
}

TimeFamily<Curve> family_of(const MeasuredRows& table) {
  TimeFamily<Curve> family;
  for (const MeasuredRow& row : table.rows) {
    if (family.x.empty() || family.x.back() != row.keys[0]) {
      family.x.push_back(row.keys[0]);
      family.parts.emplace_back();
    }
    family.parts.back().x.push_back(row.keys[1]);
    family.parts.back().us.push_back(row.us);
  }
  return family;
}

Grid grid_of(const MeasuredRows& table, std::size_t begin, std::size_t end) {
  const std::size_t last = table.names.size() - 1;
  Grid grid;
  for (std::size_t i = begin; i < end; ++i) {
    const MeasuredRow& row = table.rows[i];
    if (grid.rows.empty() || grid.rows.back() != row.keys[last - 1]) {
      grid.rows.push_back(row.keys[last - 1]);
    }
    grid.columns.push_back(row.keys[last]);
    grid.us.push_back(row.us);
  }
  std::sort(grid.columns.begin(), grid.columns.end());
  grid.columns.erase(std::unique(grid.columns.begin(), grid.columns.end()), grid.columns.end());
  std::size_t i = begin;
  for (const double row_key : grid.rows) {
    for (const double column_key : grid.columns) {
      if (i < end && table.rows[i].keys[last - 1] == row_key &&
          table.rows[i].keys[last] == column_key) {
        ++i;
        continue;
      }
      const MeasuredRow& before = table.rows[i > begin ? i - 1 : begin];
      MeasuredRow missing = before;
      missing.keys[last - 1] = row_key;
      missing.keys[last] = column_key;
      table.fail(
          before, table.names[last],
          "a gap in the grid: " + table.place(missing) + " is missing; allowed: every combination");
    }
  }
  return grid;
}

}  // namespace metronome
