// SPDX-License-Identifier: Apache-2.0
#include "core/base/text_block.h"

#include <utility>

#include "core/base/wrapped_text.h"

namespace metronome {
namespace {

void append_lines(const std::vector<TextLine>& lines, std::size_t columns, std::string& text) {
  for (const TextLine& line : lines) {
    text += std::string(line.indent, ' ') + wrapped(line.text, line.hang, columns);
  }
}

}  // namespace

std::string blocks_text(std::span<const TextBlock> blocks, std::size_t columns) {
  std::string text;
  for (const TextBlock& block : blocks) {
    if (!text.empty()) text += '\n';
    if (!block.title.empty()) text += wrapped(block.title, 0, columns);
    append_lines(block.lines, columns, text);
    if (block.table) text += block.table->text();
    append_lines(block.below, columns, text);
    text += block.copied;
  }
  return text;
}

void append_blocks(std::vector<TextBlock> added, std::vector<TextBlock>& blocks) {
  for (TextBlock& block : added) {
    if (!block.empty()) blocks.push_back(std::move(block));
  }
}

}  // namespace metronome
