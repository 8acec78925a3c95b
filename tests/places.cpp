// SPDX-License-Identifier: Apache-2.0
#include "tests/places.h"

#include <cstdlib>

namespace metronome::testing {
namespace {

std::string path_from(const char* variable, const char* when_built) {
  const char* const carried = std::getenv(variable);
  return carried != nullptr && *carried != '\0' ? carried : when_built;
}

}  // namespace

std::string source_dir() { return path_from("METRONOME_SOURCE_DIR", METRONOME_SOURCE_DIR); }
std::string metronome_program() { return path_from("METRONOME_BINARY", METRONOME_BINARY); }

}  // namespace metronome::testing
