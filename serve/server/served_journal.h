// SPDX-License-Identifier: Apache-2.0
// A file to which the ends of requests are appended, and which survives the death of the process.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace metronome {

class ServedJournal {
 public:
  // Where a line is in the file.
  struct Line {
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };

  // Creates the file. Throws ConfigError if something has its name: it may be all that is left of a
  // server that was killed. Throws std::runtime_error with the path if it cannot be created.
  explicit ServedJournal(std::string path);
  ServedJournal(const ServedJournal&) = delete;
  ServedJournal& operator=(const ServedJournal&) = delete;
  ~ServedJournal();  // the file stays, unless remove() was called or nothing was written

  // Writes a line, or counts one without a byte. Throws std::runtime_error with the path (no space
  // left, ...): then the file has the lines before, and no part of this one.
  Line append(std::string_view line);
  std::int64_t num_bytes() const { return size_; }  // of all lines; for append()'s thread
  // How many lines a loss of power leaves whole. A thread of its own moves them to the disk.
  std::int64_t num_durable() const { return num_durable_; }
  // Why lines cannot be moved to the disk; empty: they can. For any thread.
  std::string sync_error();
  // Called by that thread when more lines are durable. Set it before the first line.
  void on_durable(std::function<void()> call) { on_durable_ = std::move(call); }

  // The bytes of a line. Throws std::runtime_error.
  std::string read(const Line& line) const;
  // The results are written elsewhere: the file is not needed any more.
  void remove();

 private:
  void sync();
  std::string text_of(const char* what, int error) const;
  [[noreturn]] void fail(const char* what, int error) const;

  std::string path_;
  int descriptor_ = -1;
  std::int64_t size_ = 0;  // of the file
  std::function<void()> on_durable_ = [] {};
  std::mutex mutex_;
  std::condition_variable has_lines_;
  std::int64_t num_lines_ = 0;  // guarded by the mutex, as are the next two
  int sync_error_ = 0;
  bool is_stopped_ = false;
  std::atomic<std::int64_t> num_durable_ = 0;
  std::thread thread_;
};

}  // namespace metronome
