// SPDX-License-Identifier: Apache-2.0
// Writes files with plain write(2) calls and reports errors.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace metronome {

class FileWriter {
 public:
  // Creates the file, or empties it. Throws std::runtime_error naming the path. Each write calls
  // `before_write` first; an exception from it ends the writing.
  explicit FileWriter(std::string path, std::function<void()> before_write = {});
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter();  // closes without a check: call close() to learn of late errors

  // Writes all of it. Throws std::runtime_error naming the path (disk full, ...).
  void write(std::string_view bytes);
  // Lets the system begin to write to the disk what it has not yet, so that sync() waits less.
  void begin_sync();
  // Returns once the bytes are on the disk. Throws as write() does.
  void sync();
  void close();
  std::int64_t num_bytes() const { return num_bytes_; }  // written so far

 private:
  friend void replace_file(const std::string& path, std::string_view content);

  // Creates `partial`. Fails if anything has that name, a link too. Errors name `path`.
  FileWriter(std::string path, const std::string& partial);

  std::string path_;
  std::function<void()> before_write_;
  int descriptor_ = -1;
  std::int64_t num_bytes_ = 0;
  std::int64_t num_begun_ = 0;  // by begin_sync()
};

// Writes a whole file. Throws as FileWriter does.
void write_file(const std::string& path, std::string_view content);

// Writes a temporary file beside the target and renames it, so the target is complete or untouched,
// after a loss of power too. The temporary name cannot be guessed and never replaces a file. A link
// at the target is replaced, not followed. Throws as FileWriter does.
void replace_file(const std::string& path, std::string_view content);

// Return once the names in a folder are on the disk; sync_tree() also syncs all files and folders
// in it. File systems that cannot sync folders are not an error. Throw std::runtime_error naming
// the path.
void sync_folder(const std::string& path);
void sync_tree(const std::string& path);

// Makes a folder and its missing parents. Returns once their names are on the disk. Throws
// std::filesystem::filesystem_error, and as sync_folder() does.
void make_folders(const std::string& path);

}  // namespace metronome
