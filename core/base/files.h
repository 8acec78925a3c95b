// SPDX-License-Identifier: Apache-2.0
// Queries to the file system, and files of input. Only what takes `allowed` throws: ConfigErrors
// "PATH: does not exist; allowed: ALLOWED", with the reason that input_problem() gives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <fstream>
#include <istream>
#include <optional>
#include <string>
#include <string_view>

namespace metronome {

// False when nothing has this name. True for what cannot be inspected, such as a link to itself:
// reading it says why.
bool path_exists(const std::string& path);
// False also when the path cannot be inspected.
bool is_folder(const std::string& path);

// A device or a named pipe, which would block until somebody writes to it. Not: a pipe that the
// program was started with (/dev/stdin, /dev/fd/N).
bool is_pipe_or_device(const std::string& path);

// Opens a file of input. Not open for a folder (errno is EISDIR) or a pipe or device (ENOTSUP).
std::ifstream open_input(const std::string& path);
std::ifstream open_input(const std::string& path, std::string_view allowed);

// A longer line is not read, so that a pipe without line ends does not take all memory.
constexpr std::size_t kMaxLineBytes = std::size_t{1} << 28;

// Reads the next line without its end. False: there is none, or it cannot be read; then the stream
// is bad(), and errno is EFBIG for a line that is too long.
bool next_line(std::istream& in, std::string& line);

// The bytes of a file; nullopt, and errno as above, when it cannot be read or has more than `most`
// (EFBIG). A pipe may have 1 GiB at most.
std::optional<std::string> read_file(const std::string& path, std::size_t most = SIZE_MAX);
std::string read_file(const std::string& path, std::string_view allowed);

// Why the latest of these calls failed, by errno: "does not exist", "is a folder", ...
std::string input_problem();
[[noreturn]] void fail_input(const std::string& path, std::string_view allowed);
// Throws unless a file can be opened for reading, or a folder be listed.
void check_input(const std::string& path, std::string_view allowed);
// Throws unless it is a folder.
void check_folder(const std::string& path, std::string_view allowed);

}  // namespace metronome
