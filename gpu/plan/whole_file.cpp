// SPDX-License-Identifier: Apache-2.0
#include "gpu/plan/whole_file.h"

#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

[[noreturn]] void fail_write(const std::string& path, int error) {
  throw ConfigError(path + ": cannot be written: " + std::generic_category().message(error) +
                    "; allowed: a file in a folder that can be written to");
}

// A temporary file next to the final path. Removed unless put_in_place() renames it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& path) : final_path_(path), path_(path) {
    path_.append(".").append(6, 'X');  // mkstemp fills them in
    descriptor_ = ::mkstemp(path_.data());
    if (descriptor_ < 0) fail_write(final_path_, errno);
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  ~TemporaryFile() {
    if (descriptor_ >= 0) ::close(descriptor_);
    if (!is_in_place_) ::unlink(path_.c_str());
  }

  void write(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno != EINTR) fail_write(final_path_, errno);
      if (written > 0) bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  }

  // The data reach the disk before the rename: a crash leaves the old file or the new one.
  void put_in_place() {
    if (::fsync(descriptor_) != 0) fail_write(final_path_, errno);
    if (::close(std::exchange(descriptor_, -1)) != 0) fail_write(final_path_, errno);
    if (::rename(path_.c_str(), final_path_.c_str()) != 0) fail_write(final_path_, errno);
    is_in_place_ = true;
  }

 private:
  std::string final_path_;
  std::string path_;
  int descriptor_ = -1;
  bool is_in_place_ = false;
};

}  // namespace

void write_whole_file(const std::string& path, std::string_view text) {
  TemporaryFile file(path);
  file.write(text);
  file.put_in_place();
}

}  // namespace metronome
