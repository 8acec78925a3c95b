// SPDX-License-Identifier: Apache-2.0
// Text in columns for the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_text.h"
#include "core/metrics/figures.h"
#include "core/metrics/step_regime.h"

namespace metronome {

// The width of standard output's text: kMaxColumns, or the width of a narrower terminal.
std::size_t output_columns();

// Printable text: line breaks and tabs become spaces, other control characters are escaped.
std::string one_line(std::string_view text);

// Rows of cells in aligned columns, two spaces apart. Cells are ASCII.
std::string aligned_rows(const std::vector<std::vector<std::string>>& rows);

// Prints a name of up to eleven characters, and wrapped text beside it.
void say(const std::string& name, const std::string& text);

// A figure as a column: "TTFT p99 ms", and a value of it. Milliseconds have as many digits as
// people read.
std::string column_title(const Figure& figure);
std::string value_text(const Figure& figure, double value);

// "+1.25 %", "-0.10 %", "0.00 %".
std::string signed_percent(double share);

// A table of predicted step times' errors, one row per regime. `title` is the first column's
// heading.
std::string step_error_table(const std::string& title, const std::vector<RegimeError>& regimes);
// Appends the errors of step_error_table() as a list of objects.
void append_step_errors(const char* key, const std::vector<RegimeError>& regimes, JsonText& json);

}  // namespace metronome
