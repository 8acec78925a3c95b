// SPDX-License-Identifier: Apache-2.0
#include "serve/server/served_journal.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace metronome {

namespace {

constexpr const char* kNoSync = "cannot move to the disk";

}  // namespace

ServedJournal::ServedJournal(std::string path) : path_(std::move(path)) {
  descriptor_ = open(path_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (descriptor_ < 0 && errno == EEXIST) {
    throw ConfigError(path_ +
                      ": exists, and may have the requests of a server that was killed; allowed: "
                      "no such file. Move it away, or run it as a trace of format sharegpt");
  }
  if (descriptor_ < 0) fail("cannot create the file", errno);
  const std::string folder = std::filesystem::path(path_).parent_path().string();
  const int parent =
      open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (parent >= 0) {
    fsync(parent);  // so that the name is durable, too
    close(parent);
  }
  thread_ = std::thread([this] { sync(); });
}

ServedJournal::~ServedJournal() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    has_lines_.notify_one();
  }
  thread_.join();
  if (size_ == 0) remove();
  close(descriptor_);
}

std::string ServedJournal::text_of(const char* what, int error) const {
  return path_ + ": " + what + ": " + std::generic_category().message(error);
}

void ServedJournal::fail(const char* what, int error) const {
  throw std::runtime_error(text_of(what, error));
}

std::string ServedJournal::sync_error() {
  const std::lock_guard lock(mutex_);
  return sync_error_ == 0 ? "" : text_of(kNoSync, sync_error_);
}

ServedJournal::Line ServedJournal::append(std::string_view line) {
  const Line place{size_, static_cast<std::int64_t>(line.size())};
  while (!line.empty()) {
    const ssize_t count = pwrite(descriptor_, line.data(), line.size(), size_);
    if (count > 0) {
      line.remove_prefix(static_cast<std::size_t>(count));
      size_ += count;
    } else if (count == 0 || errno != EINTR) {
      const int error = count == 0 ? ENOSPC : errno;
      size_ = place.begin;
      if (ftruncate(descriptor_, size_) != 0) fail("cannot remove a part of a line", errno);
      fail("cannot write", error);
    }
  }
  const std::lock_guard lock(mutex_);
  if (sync_error_ != 0) fail(kNoSync, sync_error_);
  ++num_lines_;
  has_lines_.notify_one();
  return place;
}

// All lines that came during one call are moved by the next.
void ServedJournal::sync() {
  std::unique_lock lock(mutex_);
  while (true) {
    has_lines_.wait(lock, [this] { return is_stopped_ || num_lines_ > num_durable_; });
    if (num_lines_ == num_durable_ || sync_error_ != 0) return;
    const std::int64_t count = num_lines_;
    lock.unlock();
    const bool is_moved = fdatasync(descriptor_) == 0;
    const int error = errno;
    lock.lock();
    if (!is_moved) {
      sync_error_ = error;
      return;
    }
    num_durable_ = count;
    lock.unlock();
    on_durable_();
    lock.lock();
  }
}

std::string ServedJournal::read(const Line& line) const {
  std::string bytes(static_cast<std::size_t>(line.size), '\0');
  std::size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t count = pread(descriptor_, bytes.data() + done, bytes.size() - done,
                                line.begin + static_cast<std::int64_t>(done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) fail("cannot read what was written", count == 0 ? EIO : errno);
    done += static_cast<std::size_t>(count);
  }
  return bytes;
}

void ServedJournal::remove() { unlink(path_.c_str()); }

}  // namespace metronome
