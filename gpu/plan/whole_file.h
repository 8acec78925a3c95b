// Files that are there whole or not at all.
#pragma once

#include <string>
#include <string_view>

namespace metronome {

// Replaces the file: whoever reads it finds what was there before, or all of `text`. Throws
// ConfigError where it cannot be written.
void write_whole_file(const std::string& path, std::string_view text);

}  // namespace metronome
