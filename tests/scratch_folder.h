// SPDX-License-Identifier: Apache-2.0
// A folder of its own for one test, gone afterwards.
#pragma once

#include <string>
#include <string_view>

namespace metronome::testing {

class ScratchFolder {
 public:
  ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder();

  const std::string& path() const { return path_; }

  // Makes the folders on the way. Returns the file's path.
  std::string write(const std::string& name, std::string_view text) const;

 private:
  std::string path_;
};

}  // namespace metronome::testing
