// SPDX-License-Identifier: Apache-2.0
#include "core/base/wrapped_text.h"

#include <sstream>

namespace metronome {

std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns) {
  std::string lines;
  std::size_t column = indent;
  std::istringstream words(text);
  for (std::string word; words >> word;) {
    const bool is_first_of_line = column == indent;
    if (!is_first_of_line && column + 1 + word.size() > columns) {
      lines += '\n' + std::string(indent, ' ');
      column = indent;
    } else if (!is_first_of_line) {
      lines += ' ';
      ++column;
    }
    lines += word;
    column += word.size();
  }
  return lines + '\n';
}

}  // namespace metronome
