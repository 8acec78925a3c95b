// SPDX-License-Identifier: Apache-2.0
#include "core/base/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <new>
#include <utility>

#include "core/base/error.h"
#include "core/base/names.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxPipeBytes = std::size_t{1} << 30;

// Of the file that a path leads to; nullopt, and errno: nothing that can be inspected.
std::optional<struct stat> status_of(const std::string& path) {
  struct stat status = {};
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  return status;
}

// Why a file of this kind is not read; 0: it is.
int kind_error(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  if (!status) return errno;
  return S_ISDIR(status->st_mode) ? EISDIR : is_pipe_or_device(path) ? ENOTSUP : 0;
}

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    const int error = errno;
    if (descriptor_ >= 0) ::close(descriptor_);
    errno = error;
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

// The bytes of one call: resize() zeroes them first, and a pipe gives no more.
constexpr std::size_t kReadBytes = 1 << 16;

// Appends all bytes of a file. False: errno says why.
bool append_all(int descriptor, std::size_t most, std::string& text) {
  while (true) {
    const std::size_t size = text.size();
    text.resize(size + kReadBytes);
    const ssize_t count = ::read(descriptor, text.data() + size, text.size() - size);
    text.resize(size + static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    if (count == 0) return true;
    if (count < 0 && errno != EINTR) return false;
    if (text.size() > most) {
      errno = EFBIG;
      return false;
    }
  }
}

}  // namespace

bool path_exists(const std::string& path) {
  return status_of(path) || (errno != ENOENT && errno != ENOTDIR && errno != ENAMETOOLONG);
}

bool is_folder(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  return status && S_ISDIR(status->st_mode);
}

bool is_pipe_or_device(const std::string& path) {
  const std::optional<struct stat> status = status_of(path);
  if (!status || S_ISREG(status->st_mode) || S_ISDIR(status->st_mode)) return false;
  return !S_ISFIFO(status->st_mode) || (path != "/dev/stdin" && !path.starts_with("/dev/fd/"));
}

std::ifstream open_input(const std::string& path) {
  std::ifstream file;
  const int error = kind_error(path);
  if (error == 0) {
    errno = 0;
    file.open(path, std::ios::binary);
  } else {
    file.setstate(std::ios::failbit);
    errno = error;
  }
  return file;
}

std::ifstream open_input(const std::string& path, std::string_view allowed) {
  std::ifstream file = open_input(path);
  if (!file) fail_input(path, allowed);
  errno = 0;
  return file;
}

bool next_line(std::istream& in, std::string& line) {
  line.clear();
  char part[1 << 14];
  while (line.size() <= kMaxLineBytes) {
    in.getline(part, sizeof part);
    const auto count = static_cast<std::size_t>(in.gcount());
    if (in.good()) {  // the end of the line is counted
      line.append(part, count - 1);
      return true;
    }
    line.append(part, count);
    if (in.bad()) return false;
    if (in.eof() || count == 0) return !line.empty();
    in.clear();  // the part is full
  }
  in.setstate(std::ios::badbit);
  errno = EFBIG;
  return false;
}

std::optional<std::string> read_file(const std::string& path, std::size_t most) {
  if (const int error = kind_error(path); error != 0) {
    errno = error;
    return std::nullopt;
  }
  // A file of the kernel may have no bytes yet: reading it fails instead of waiting.
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status = {};
  if (file.get() < 0 || ::fstat(file.get(), &status) != 0) return std::nullopt;
  if (S_ISFIFO(status.st_mode)) ::fcntl(file.get(), F_SETFL, O_RDONLY);
  try {
    std::string text;
    const bool is_file = S_ISREG(status.st_mode) && status.st_size > 0;
    const std::size_t size = is_file ? static_cast<std::size_t>(status.st_size) : 0;
    if (size > most) {
      errno = EFBIG;
      return std::nullopt;
    }
    text.reserve(size + kReadBytes);  // the last call reads nothing
    if (!is_file) most = std::min(most, kMaxPipeBytes);
    if (append_all(file.get(), most, text)) return text;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
  }
  return std::nullopt;
}

std::string read_file(const std::string& path, std::string_view allowed) {
  std::optional<std::string> text = read_file(path);
  if (!text) fail_input(path, allowed);
  return std::move(*text);
}

std::string input_problem() {
  switch (errno) {
    case 0: return "cannot be read to its end";
    case ENOENT:
    case ENOTDIR: return "does not exist";
    case EISDIR: return "is a folder";
    case ENOTSUP: return "is a pipe or a device";
    case EFBIG: return "is too large: a pipe may have 1 GiB, a line 256 MiB";
    case ENOMEM: return "does not fit into memory";
    default: return std::string("cannot be read (") + std::strerror(errno) + ")";
  }
}

void fail_input(const std::string& path, std::string_view allowed) {
  const std::string problem = input_problem();
  throw ConfigError(printable(path + ": " + problem + "; allowed: ").append(allowed));
}

void check_input(const std::string& path, std::string_view allowed) {
  const int error = kind_error(path);
  errno = error == EISDIR ? 0 : error;
  if (errno != 0 || ::access(path.c_str(), R_OK) != 0) fail_input(path, allowed);
}

void check_folder(const std::string& path, std::string_view allowed) {
  const std::optional<struct stat> status = status_of(path);
  if (!status) fail_input(path, allowed);
  if (S_ISDIR(status->st_mode)) return;
  throw ConfigError(printable(path + ": is not a folder; allowed: ").append(allowed));
}

}  // namespace metronome
