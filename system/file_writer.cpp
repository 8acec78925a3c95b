// SPDX-License-Identifier: Apache-2.0
#include "system/file_writer.h"

#include <fcntl.h>
#include <sys/random.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>
#include <vector>

namespace metronome {
namespace {

[[noreturn]] void fail_write(const std::string& path, int error) {
  throw std::runtime_error(path + ": cannot write: " + std::generic_category().message(error));
}

// 16 hexadecimal digits that nobody can guess.
std::string random_suffix(const std::string& path) {
  std::uint64_t bits = 0;
  if (::getrandom(&bits, sizeof bits, 0) != static_cast<ssize_t>(sizeof bits)) {
    fail_write(path, errno);
  }
  std::string digits;
  for (int shift = 60; shift >= 0; shift -= 4) digits += "0123456789abcdef"[(bits >> shift) & 15u];
  return digits;
}

// The error of fsync(2); 0 where folders or the file system cannot be synced.
int sync_error(int descriptor) {
  if (::fsync(descriptor) == 0) return 0;
  return errno == EINVAL || errno == ENOTSUP || errno == EROFS ? 0 : errno;
}

void sync_path(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
  if (descriptor < 0) fail_write(path, errno);
  const int error = sync_error(descriptor);
  ::close(descriptor);
  if (error != 0) fail_write(path, error);
}

}  // namespace

FileWriter::FileWriter(std::string path, std::function<void()> before_write)
    : path_(std::move(path)), before_write_(std::move(before_write)) {
  descriptor_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor_ < 0) fail_write(path_, errno);
}

FileWriter::FileWriter(std::string path, const std::string& partial) : path_(std::move(path)) {
  descriptor_ = ::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
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
    num_bytes_ += written;
  }
}

void FileWriter::begin_sync() {
  // A hint: whoever needs the bytes on the disk calls sync(), which has the errors.
  ::sync_file_range(descriptor_, num_begun_, num_bytes_ - num_begun_, SYNC_FILE_RANGE_WRITE);
  num_begun_ = num_bytes_;
}

void FileWriter::sync() {
  const int error = sync_error(descriptor_);
  if (error != 0) fail_write(path_, error);
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
  const std::filesystem::path target(path);
  const std::filesystem::path folder = target.parent_path();
  const std::string partial =
      (folder / ("." + target.filename().string() + ".partial-" + random_suffix(path))).string();
  try {
    FileWriter writer(path, partial);
    writer.write(content);
    writer.sync();
    writer.close();
    if (::rename(partial.c_str(), path.c_str()) != 0) fail_write(path, errno);
  } catch (...) {
    std::remove(partial.c_str());
    throw;
  }
  sync_folder(folder.empty() ? "." : folder.string());
}

void sync_folder(const std::string& path) { sync_path(path); }

void sync_tree(const std::string& path) {
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (entry.is_symlink()) continue;
    sync_path(entry.path().string());
  }
  sync_path(path);
}

void make_folders(const std::string& path) {
  std::vector<std::string> changed;
  for (std::filesystem::path folder = std::filesystem::absolute(path);
       !std::filesystem::exists(folder); folder = folder.parent_path()) {
    changed.push_back(folder.parent_path().string());
  }
  std::filesystem::create_directories(path);
  for (const std::string& folder : changed) sync_folder(folder);
}

}  // namespace metronome
