// SPDX-License-Identifier: Apache-2.0
// Wraps text for the terminal.
#pragma once

#include <cstddef>
#include <string>

namespace metronome {

constexpr std::size_t kMaxColumns = 100;  // of text for users, even on wider terminals

// Breaks `text` at spaces into lines that fit beside `indent` columns. Every line but the first is
// indented. Ends with a line break. A word that is too long gets a line of its own.
std::string wrapped(const std::string& text, std::size_t indent, std::size_t columns = kMaxColumns);

}  // namespace metronome
