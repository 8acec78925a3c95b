// SPDX-License-Identifier: Apache-2.0
// Tables of numbers as CSV. Columns are found by the names in the first line, in any order; other
// columns are ignored. Fields may be in double quotes. Every error names file, line and column.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/workload_trace_parse.h"

namespace metronome {

class CsvTable {
 public:
  // Throws ConfigError if the file is unreadable or empty or lacks one of `columns`. Lines that
  // begin with # before the table are skipped.
  CsvTable(const std::string& path, std::vector<std::string> columns);
  // Of a file that is part of the program.
  CsvTable(std::string_view text, const std::string& name, std::vector<std::string> columns);
  CsvTable(const CsvTable&) = delete;
  CsvTable& operator=(const CsvTable&) = delete;

  bool has(std::string_view column) const;
  // Moves to the next row that is not blank; false at the end. Throws if the number of fields
  // differs from the number of columns.
  bool next();
  int line() const { return lines_.number(); }

  // Values of the current row; the column exists.
  std::string_view text(std::string_view column) const;
  double number(std::string_view column) const;   // finite
  double amount(std::string_view column) const;   // a whole number >= 0
  double time_us(std::string_view column) const;  // > 0
  bool truth(std::string_view column) const;      // True or False

  [[noreturn]] void fail(std::string_view column, const std::string& message) const;

 private:
  void split(std::string_view line);
  std::size_t position(std::string_view column) const;

  std::string text_;
  TraceLines lines_;
  std::vector<std::string> header_;
  std::vector<std::string_view> fields_;
};

}  // namespace metronome
