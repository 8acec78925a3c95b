// Text in columns for the terminal.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace metronome {

constexpr std::size_t kTerminalColumns = 100;

// Rows of cells in aligned columns, two spaces apart. Cells are ASCII.
std::string aligned_rows(const std::vector<std::vector<std::string>>& rows);

// `text` broken at spaces into lines that fit beside `indent` columns; every line but the first is
// indented. Ends with a line break. A word that is too long gets a line of its own.
std::string wrapped(const std::string& text, std::size_t indent);

}  // namespace metronome
