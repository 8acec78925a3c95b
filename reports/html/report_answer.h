// SPDX-License-Identifier: Apache-2.0
// The answer at the start of a page: the question, sentences, tables, and lines to copy.
#pragma once

#include <span>
#include <string>

#include "core/base/text_block.h"

namespace metronome {

// HTML of the blocks, whose texts are escaped. Tables move sideways where the page is narrow.
std::string answer_html(std::span<const TextBlock> blocks);

}  // namespace metronome
