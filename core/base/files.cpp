#include "core/base/files.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace metronome {

namespace fs = std::filesystem;

bool path_exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool is_folder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

bool is_pipe_or_device(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  if (!fs::exists(status) || fs::is_regular_file(status) || fs::is_directory(status)) return false;
  return !fs::is_fifo(status) || (path != "/dev/stdin" && !path.starts_with("/dev/fd/"));
}

std::ifstream open_input(const std::string& path) {
  std::ifstream file;
  const int error = is_folder(path) ? EISDIR : is_pipe_or_device(path) ? ENOTSUP : 0;
  if (error == 0) {
    file.open(path, std::ios::binary);
  } else {
    file.setstate(std::ios::failbit);
    errno = error;
  }
  return file;
}

std::optional<std::string> read_file(const std::string& path) {
  std::ifstream in = open_input(path);
  if (!in) return std::nullopt;
  return std::string(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
}

}  // namespace metronome
