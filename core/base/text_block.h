// SPDX-License-Identifier: Apache-2.0
// An answer in blocks, from which a terminal's text and a page are made.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/text_table.h"

namespace metronome {

struct TextLine {
  std::string text;
  // Spaces before the first line and, where the text is wrapped, before the others.
  std::size_t indent = 2;
  std::size_t hang = 2;
};

struct TextBlock {
  std::string title = {};  // at the left edge; may be empty
  std::vector<TextLine> lines = {};
  std::optional<TextTable> table = {};
  std::vector<TextLine> below = {};  // lines behind the table
  std::string copied = {};           // lines to copy, as they are

  bool empty() const { return lines.empty() && !table && below.empty() && copied.empty(); }
};

// Plain ASCII, with an empty line between blocks. Titles and lines are wrapped, tables are not.
// Ends with a line break, unless it is empty.
std::string blocks_text(std::span<const TextBlock> blocks, std::size_t columns);

// Appends the blocks that are not empty.
void append_blocks(std::vector<TextBlock> added, std::vector<TextBlock>& blocks);

}  // namespace metronome
