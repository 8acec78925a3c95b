// SPDX-License-Identifier: Apache-2.0
// Public data files that are not part of the repository. Tests use them when they are at hand.
#pragma once

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <string>
#include <string_view>

#include "tests/places.h"

namespace metronome::testing {

// The path of a shared data file: $METRONOME_SHARED/relative, else <source>/../shared/relative.
// When it does not exist, says on stderr what is skipped and returns nullopt.
inline std::optional<std::string> shared_path(std::string_view relative) {
  namespace fs = std::filesystem;
  const char* root = std::getenv("METRONOME_SHARED");
  const fs::path base =
      root != nullptr ? fs::path(root) : fs::path(source_dir()).parent_path() / "shared";
  const fs::path path = base / relative;
  if (fs::exists(path)) return path.string();
  std::cerr << "SKIPPED: no shared data file " << relative << " (set METRONOME_SHARED)\n";
  return std::nullopt;
}

}  // namespace metronome::testing
