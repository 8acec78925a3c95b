// Writes one file with plain write(2) calls and says what went wrong.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace metronome {

class FileWriter {
 public:
  // Creates the file, or empties it. Throws std::runtime_error naming the path. `before_write` is
  // called at each write; what it throws ends the writing.
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

// The same beside its target first, so that it is there whole or not at all.
void replace_file(const std::string& path, std::string_view content);

}  // namespace metronome
