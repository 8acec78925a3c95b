// Queries to the file system, and files to read. Nothing here throws.
#pragma once

#include <fstream>
#include <optional>
#include <string>

namespace metronome {

// False also when the path cannot be inspected.
bool path_exists(const std::string& path);
bool is_folder(const std::string& path);

// A device or a named pipe, which would block until somebody writes to it. Not: a pipe that the
// program was started with (/dev/stdin, /dev/fd/N).
bool is_pipe_or_device(const std::string& path);

// Opens a file of input. Not open for a folder (errno is EISDIR) or a pipe or device (ENOTSUP).
std::ifstream open_input(const std::string& path);

// The bytes of a file; nullopt when it cannot be read, for example a folder.
std::optional<std::string> read_file(const std::string& path);

}  // namespace metronome
