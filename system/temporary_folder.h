// SPDX-License-Identifier: Apache-2.0
// A folder for files that nobody keeps.
#pragma once

#include <string>

namespace metronome {

// A folder in the system's folder for temporary files, removed with all it holds.
class TemporaryFolder {
 public:
  TemporaryFolder();  // throws std::runtime_error
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  ~TemporaryFolder();

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace metronome
