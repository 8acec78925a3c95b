// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/curve_json.h"

#include <cstdint>
#include <fmt/core.h>
#include <limits>
#include <string>

namespace metronome {
namespace {

// Requires every number to be at least `least`, and ascending order if `ascends`.
std::vector<double> read_numbers(const JsonPlace& place, double least, bool ascends) {
  std::vector<double> values;
  place.for_each([&](const JsonPlace& entry) {
    const double value = entry.number(least, 1e15);
    if (ascends && !values.empty() && value <= values.back()) {
      entry.fail("is not above the previous number; allowed: ascending numbers");
    }
    values.push_back(value);
  });
  if (values.empty()) place.fail("is empty; allowed: a list of numbers");
  return values;
}

std::vector<double> read_times(const JsonPlace& place, std::size_t count) {
  std::vector<double> values = read_numbers(place, std::numeric_limits<double>::min(), false);
  if (values.size() != count) {
    place.fail(fmt::format("has {} times; allowed: {}", values.size(), count));
  }
  return values;
}

}  // namespace

// Most keys are whole numbers, which are shorter when written without a fraction.
Json numbers_json(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) {
    const auto whole = static_cast<std::int64_t>(value);
    if (static_cast<double>(whole) == value) {
      json.push_back(whole);
    } else {
      json.push_back(value);
    }
  }
  return json;
}

Json curve_json(const char* key, const Curve& curve) {
  return {{key, numbers_json(curve.x)}, {"us", numbers_json(curve.us)}};
}

Json grid_json(const char* rows, const char* columns, const Grid& grid) {
  return {{rows, numbers_json(grid.rows)},
          {columns, numbers_json(grid.columns)},
          {"us", numbers_json(grid.us)}};
}

Curve read_curve(const JsonPlace& place, const char* key) {
  Curve curve;
  curve.x = read_numbers(place.at(key), 0, true);
  curve.us = read_times(place.at("us"), curve.x.size());
  return curve;
}

Grid read_grid(const JsonPlace& place, const char* rows, const char* columns) {
  Grid grid;
  grid.rows = read_numbers(place.at(rows), 1, true);
  grid.columns = read_numbers(place.at(columns), 0, true);
  grid.us = read_times(place.at("us"), grid.rows.size() * grid.columns.size());
  return grid;
}

}  // namespace metronome
