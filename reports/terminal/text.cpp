// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/text.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "core/base/number_text.h"
#include "core/base/wrapped_text.h"
#include "core/config/config_reader.h"

namespace metronome {

std::size_t output_columns() {
  winsize size{};
  // Terminals with unknown width report 0.
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kMaxColumns;
  return std::min<std::size_t>(kMaxColumns, size.ws_col);
}

std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return printable(line);
}

std::string aligned_rows(const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows) {
    widths.resize(std::max(widths.size(), row.size()), 0);
    for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      text += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    text += '\n';
  }
  return text;
}

void say(const std::string& name, const std::string& text) {
  std::cout << name << std::string(12 - name.size(), ' ') << wrapped(text, 12, output_columns());
}

std::string column_title(const Figure& figure) {
  return figure.name_elsewhere() + (figure.shown.unit == "ms" ? " ms" : "");
}

std::string value_text(const Figure& figure, double value) {
  return figure.shown.unit == "ms"
             ? ms_text(value)
             : grouped_text(figure.shown.scale * value, figure.shown.decimals);
}

std::string signed_percent(double share) {
  const std::string text = percent_text(share, 2);
  return share > 0 ? "+" + text : text;
}

std::string step_error_table(const std::string& title, const std::vector<RegimeError>& regimes) {
  std::vector<std::vector<std::string>> rows = {
      {title, "steps", "mean ms", "error", "|error|", "p95", "worst", "in step"}};
  for (const RegimeError& regime : regimes) {
    rows.push_back({regime.regime, grouped_text(regime.num_steps), fixed_text(regime.mean_ms, 3),
                    signed_percent(regime.mean_error), percent_text(regime.mean_abs_error, 2),
                    percent_text(regime.p95_abs_error, 2), signed_percent(regime.worst_error),
                    std::to_string(regime.worst_step)});
  }
  return aligned_rows(rows);
}

void append_step_errors(const char* key, const std::vector<RegimeError>& regimes, JsonText& json) {
  json.key(key).begin_array();
  for (const RegimeError& regime : regimes) {
    json.begin_object();
    json.field("regime", regime.regime);
    json.field("steps", regime.num_steps);
    json.field("mean_ms", regime.mean_ms);
    json.field("mean_error", regime.mean_error);
    json.field("mean_abs_error", regime.mean_abs_error);
    json.field("p95_abs_error", regime.p95_abs_error);
    json.field("worst_error", regime.worst_error);
    json.field("worst_step", regime.worst_step);
    json.field("total_error", regime.total_error);
    json.end_object();
  }
  json.end_array();
}

}  // namespace metronome
