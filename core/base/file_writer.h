// Writes one file with plain write(2) calls and reports errors.
#pragma once

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
  void close();

 private:
  std::string path_;
  std::function<void()> before_write_;
  int descriptor_ = -1;
};

// Writes a whole file. Throws as FileWriter does.
void write_file(const std::string& path, std::string_view content);

// Writes a temporary file beside the target and renames it, so the target is complete or untouched.
void replace_file(const std::string& path, std::string_view content);

}  // namespace metronome
