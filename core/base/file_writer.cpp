#include "core/base/file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace metronome {
namespace {

[[noreturn]] void fail_write(const std::string& path, int error) {
  throw std::runtime_error(path + ": cannot write: " + std::generic_category().message(error));
}

}  // namespace

FileWriter::FileWriter(std::string path, std::function<void()> before_write)
    : path_(std::move(path)), before_write_(std::move(before_write)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_write(path_, errno);
}

FileWriter::~FileWriter() {
  if (descriptor_ >= 0) ::close(descriptor_);
}

void FileWriter::write(std::string_view bytes) {
  if (before_write_) before_write_();
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      fail_write(path_, errno);
    }
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void FileWriter::close() {
  const int descriptor = std::exchange(descriptor_, -1);
  if (descriptor >= 0 && ::close(descriptor) != 0) fail_write(path_, errno);
}

void write_file(const std::string& path, std::string_view content) {
  FileWriter writer(path);
  writer.write(content);
  writer.close();
}

void replace_file(const std::string& path, std::string_view content) {
  const std::string partial = path + ".partial";
  try {
    write_file(partial, content);
    std::filesystem::rename(partial, path);
  } catch (...) {
    std::remove(partial.c_str());
    throw;
  }
}

}  // namespace metronome
