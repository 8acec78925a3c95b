// SPDX-License-Identifier: Apache-2.0
#include "system/temporary_folder.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace metronome {

namespace fs = std::filesystem;

TemporaryFolder::TemporaryFolder() {
  std::string name = (fs::temp_directory_path() / "metronome.").string();
  name.append(6, 'X');  // mkdtemp fills them in
  if (mkdtemp(name.data()) == nullptr) {
    throw std::runtime_error(name + ": cannot be created: " + std::strerror(errno));
  }
  path_ = std::move(name);
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace metronome
