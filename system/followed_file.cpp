// SPDX-License-Identifier: Apache-2.0
#include "system/followed_file.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "core/base/command_errors.h"
#include "core/base/files.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::size_t kReadBytes = std::size_t{1} << 16;
constexpr std::int64_t kMostBytesACall = std::int64_t{8} << 20;

}  // namespace

FollowedFile::FollowedFile(std::string path, const std::string& origin) : path_(std::move(path)) {
  if (path_ == "-") {
    descriptor_ = STDIN_FILENO;
    struct stat now {};
    is_regular_ = fstat(descriptor_, &now) == 0 && S_ISREG(now.st_mode);
    return;
  }
  if (!open_named()) {
    throw UsageError(origin + ": " + printable(path_) + " " + input_problem() +
                     "; allowed: a file, or - for standard input");
  }
}

FollowedFile::~FollowedFile() {
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
}

// Not open: errno says why.
bool FollowedFile::open_named() {
  const int opened = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (opened < 0) return false;
  struct stat now {};
  if (fstat(opened, &now) != 0 || S_ISDIR(now.st_mode)) {
    errno = EISDIR;
    close(opened);
    errno = EISDIR;
    return false;
  }
  if (descriptor_ > STDIN_FILENO) close(descriptor_);
  descriptor_ = opened;
  is_regular_ = S_ISREG(now.st_mode);
  device_ = now.st_dev;
  inode_ = now.st_ino;
  offset_ = 0;
  is_at_line_start_ = true;
  return true;
}

void FollowedFile::skip_middle(std::int64_t head, std::int64_t tail) {
  struct stat now {};
  if (!is_regular_ || fstat(descriptor_, &now) != 0 || now.st_size <= head + tail) return;
  skip_from_ = head;
  skip_to_ = now.st_size - tail;
}

void FollowedFile::end_line(const std::function<void(std::string_view)>& take) {
  if (!is_at_line_start_) take("\n");
  is_at_line_start_ = true;
}

bool FollowedFile::read_once(const std::function<void(std::string_view)>& take) {
  if (!is_regular_) {
    pollfd ready{descriptor_, POLLIN, 0};
    if (poll(&ready, 1, 0) <= 0 || ready.revents == 0) return false;
  }
  static thread_local std::vector<char> bytes(kReadBytes);
  std::size_t wanted = bytes.size();
  if (skip_from_ > offset_) {
    wanted = std::min(wanted, static_cast<std::size_t>(skip_from_ - offset_));
  }
  const ssize_t got = ::read(descriptor_, bytes.data(), wanted);
  if (got < 0) {
    has_failed_ = errno != EAGAIN && errno != EINTR;
    return false;
  }
  if (got == 0) {
    has_ended_ = !is_regular_;
    return false;
  }
  take({bytes.data(), static_cast<std::size_t>(got)});
  is_at_line_start_ = bytes[static_cast<std::size_t>(got) - 1] == '\n';
  offset_ += got;
  if (offset_ == skip_from_ && lseek(descriptor_, skip_to_, SEEK_SET) == skip_to_) {
    end_line(take);
    offset_ = skip_to_;
    skip_from_ = -1;
  }
  return true;
}

FileChange FollowedFile::look_at_name(const std::function<void(std::string_view)>& take) {
  struct stat now {};
  if (fstat(descriptor_, &now) == 0 && now.st_size < offset_) {
    end_line(take);
    if (lseek(descriptor_, 0, SEEK_SET) != 0) return FileChange::Failed;
    offset_ = 0;
    return FileChange::Truncated;
  }
  if (path_ == "-") return FileChange::None;
  if (stat(path_.c_str(), &now) != 0) {
    return std::exchange(is_gone_, true) ? FileChange::None : FileChange::Gone;
  }
  is_gone_ = false;
  if (now.st_dev == device_ && now.st_ino == inode_) return FileChange::None;
  // The rest of the old file comes first, and then the new one.
  while (read_once(take)) {
  }
  end_line(take);
  return open_named() ? FileChange::Replaced : FileChange::Failed;
}

FileChange FollowedFile::read(const std::function<void(std::string_view)>& take) {
  has_more_ = false;
  if (has_ended_ || has_failed_) return FileChange::None;
  const auto read_on = [&] {
    std::int64_t num_bytes = 0;
    std::int64_t before = offset_;
    while (num_bytes < kMostBytesACall && read_once(take)) {
      num_bytes += std::max<std::int64_t>(offset_ - before, 1);
      before = offset_;
    }
    has_more_ = num_bytes >= kMostBytesACall;
  };
  read_on();
  if (has_failed_) return FileChange::Failed;
  if (has_ended_) return FileChange::Ended;
  if (!is_regular_ || has_more_) return FileChange::None;
  const FileChange change = look_at_name(take);
  if (change == FileChange::Truncated || change == FileChange::Replaced) read_on();
  return change;
}

}  // namespace metronome
