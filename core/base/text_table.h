// SPDX-License-Identifier: Apache-2.0
// A table of text: numbers on the right, words on the left.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace metronome {

// Right-aligned columns of numbers, and a left-aligned first or last column of words.
class TextTable {
 public:
  TextTable(std::vector<std::string> header, std::size_t word_column)
      : rows_{std::move(header)}, word_column_(word_column) {}

  void row(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  // Leaves out those of the columns [first, last) in which every row has `text`.
  void drop_columns_of(const std::string& text, std::size_t first = 0,
                       std::size_t last = SIZE_MAX) {
    for (std::size_t i = std::min(last, rows_.front().size()); i-- > first;) {
      const bool is_dull = std::all_of(rows_.begin() + 1, rows_.end(),
                                       [&](const auto& row) { return row[i] == text; });
      if (!is_dull) continue;
      for (auto& row : rows_) row.erase(row.begin() + static_cast<std::ptrdiff_t>(i));
      if (i < word_column_) --word_column_;
    }
  }
  // The header is the first row.
  const std::vector<std::vector<std::string>>& rows() const { return rows_; }
  std::size_t word_column() const { return word_column_; }

  std::string text() const {
    std::vector<std::size_t> widths(rows_.front().size());
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string text;
    for (const auto& row : rows_) {
      for (std::size_t i = 0; i < row.size(); ++i) {
        const std::string padding(widths[i] - row[i].size(), ' ');
        text += "  " + (i == word_column_ ? row[i] + padding : padding + row[i]);
      }
      text.erase(text.find_last_not_of(' ') + 1);
      text += '\n';
    }
    return text;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
  std::size_t word_column_;
};

}  // namespace metronome
