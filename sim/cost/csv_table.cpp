// SPDX-License-Identifier: Apache-2.0
#include "sim/cost/csv_table.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <memory>

#include "core/base/error.h"
#include "core/base/number_chars.h"
#include "core/config/catalogue.h"

namespace metronome {
namespace {

constexpr double kMaxAmount = 1e12;

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

CsvTable::CsvTable(const std::string& path, std::vector<std::string> columns)
    : CsvTable(read_file(path, "a CSV file"), path, std::move(columns)) {}

CsvTable::CsvTable(std::string_view text, const std::string& name, std::vector<std::string> columns)
    : text_(text), lines_(text_, std::make_shared<const std::string>(name)) {
  do {
    if (!lines_.next()) throw ConfigError(name + ": is empty; allowed: a CSV file");
  } while (lines_.line().starts_with('#'));
  split(lines_.line());
  header_.assign(fields_.begin(), fields_.end());
  std::string names;
  for (const std::string& column : columns) names += (names.empty() ? "" : ", ") + column;
  for (const std::string& column : columns) {
    if (!has(column)) fail(column, "missing column; allowed: a table of " + names);
    if (std::count(header_.begin(), header_.end(), column) > 1) {
      fail(column, "appears twice in the first line; allowed: once");
    }
  }
}

void CsvTable::split(std::string_view line) {
  fields_.clear();
  while (true) {
    std::size_t end = line.find(',');
    if (!line.empty() && line.front() == '"') {
      const std::size_t quote = line.find('"', 1);
      if (quote != std::string_view::npos) end = line.find(',', quote);
    }
    fields_.push_back(trim(line.substr(0, end)));
    if (end == std::string_view::npos) return;
    line.remove_prefix(end + 1);
  }
}

bool CsvTable::has(std::string_view column) const {
  return std::find(header_.begin(), header_.end(), column) != header_.end();
}

std::size_t CsvTable::position(std::string_view column) const {
  const auto found = std::find(header_.begin(), header_.end(), column);
  METRONOME_CHECK(found != header_.end(), "a column that was asked for");
  return static_cast<std::size_t>(found - header_.begin());
}

bool CsvTable::next() {
  if (!lines_.next()) return false;
  split(lines_.line());
  if (fields_.size() == header_.size()) return true;
  lines_.fail("columns", fmt::format("the line has {} fields; allowed: {}, as the first line has",
                                     fields_.size(), header_.size()));
}

std::string_view CsvTable::text(std::string_view column) const { return fields_[position(column)]; }

double CsvTable::number(std::string_view column) const {
  const std::string_view field = text(column);
  double value = 0;
  const char* end = field.data() + field.size();
  const auto [rest, error] = read_number(field.data(), end, value);
  if (field.empty() || rest != end || error != std::errc() || !std::isfinite(value)) {
    fail(column, quote_for_message(field) + " is not a number; allowed: a finite number");
  }
  return value;
}

double CsvTable::amount(std::string_view column) const {
  const double value = number(column);
  if (value < 0 || value > kMaxAmount || value != std::floor(value)) {
    fail(column,
         quote_for_message(text(column)) + " is not a count; allowed: a whole number, at least 0");
  }
  return value;
}

double CsvTable::time_us(std::string_view column) const {
  const double value = number(column);
  constexpr double kMaxUs = 1e9;
  if (value <= 0 || value > kMaxUs) {
    fail(column,
         quote_for_message(text(column)) + " is not a duration; allowed: above 0, at most 1e9");
  }
  return value;
}

bool CsvTable::truth(std::string_view column) const {
  const std::string_view field = text(column);
  if (field == "True" || field == "true") return true;
  if (field == "False" || field == "false") return false;
  fail(column, quote_for_message(field) + " is not a boolean; allowed: True, False");
}

void CsvTable::fail(std::string_view column, const std::string& message) const {
  lines_.fail(column, message);
}

}  // namespace metronome
