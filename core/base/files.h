// Queries to the file system that throw nothing.
#pragma once

#include <optional>
#include <string>

namespace metronome {

// False also when the path cannot be inspected.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

// The bytes of a file; nullopt when it cannot be read, for example a folder.
std::optional<std::string> read_file(const std::string& path);

}  // namespace metronome
