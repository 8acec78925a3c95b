// SPDX-License-Identifier: Apache-2.0
// A file that another program appends to, such as a log, read as it grows: as `tail -F` does.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include <sys/types.h>

namespace metronome {

enum class FileChange : std::uint8_t {
  None,
  Replaced,   // another file has its name: a rotation
  Truncated,  // it became shorter, and is read from its start
  Gone,       // no file has its name; the open one is still read
  Ended,      // standard input or a pipe: nothing will come any more
  Failed,     // it cannot be read; errno says why
};

class FollowedFile {
 public:
  // "-" is standard input. Throws UsageError, which begins with `origin`, if it cannot be opened.
  FollowedFile(std::string path, const std::string& origin);
  FollowedFile(const FollowedFile&) = delete;
  FollowedFile& operator=(const FollowedFile&) = delete;
  ~FollowedFile();

  // A regular file of more than `head` + `tail` bytes is then read without the bytes between; what
  // was left out ends as a line does. For a file of which nothing has been read.
  void skip_middle(std::int64_t head, std::int64_t tail);

  // Calls `take` with what has come since the last call, without waiting, up to some MiB a call. A
  // last line without an end gets one where another file follows. Each change is returned once.
  FileChange read(const std::function<void(std::string_view)>& take);
  bool has_more() const { return has_more_; }  // the last call left some

 private:
  bool open_named();
  // False: nothing came.
  bool read_once(const std::function<void(std::string_view)>& take);
  void end_line(const std::function<void(std::string_view)>& take);
  FileChange look_at_name(const std::function<void(std::string_view)>& take);

  std::string path_;
  int descriptor_ = -1;
  bool is_regular_ = true;
  bool is_gone_ = false;
  bool has_ended_ = false;
  bool has_failed_ = false;
  bool has_more_ = false;
  bool is_at_line_start_ = true;
  std::int64_t offset_ = 0;
  std::int64_t skip_from_ = -1, skip_to_ = -1;
  dev_t device_ = 0;
  ino_t inode_ = 0;
};

}  // namespace metronome
