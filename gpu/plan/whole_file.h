// SPDX-License-Identifier: Apache-2.0
// Writes files that exist completely or not at all.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

// Replaces the file: a reader sees the old contents or all of `text`. Throws ConfigError if it
// cannot be written.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace metronome
