// Sentences for the terminal.
#pragma once

#include <cstddef>
#include <string>

namespace metronome {

constexpr std::size_t kMaxColumns = 100;  // of text for people, however wide the terminal is

// `text` broken at spaces into lines that fit beside `indent` columns; every line but the first is
// indented. Ends with a line break. A word that is too long gets a line of its own.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns = kMaxColumns);

}  // namespace metronome
