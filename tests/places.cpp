#include "tests/places.h"

#include <cstdlib>

namespace metronome::testing {
namespace {

std::string place_of(const char* variable, const char* when_built) {
  const char* const carried = std::getenv(variable);
  return carried != nullptr && *carried != '\0' ? carried : when_built;
}

}  // namespace

std::string source_dir() { return place_of("METRONOME_SOURCE_DIR", METRONOME_SOURCE_DIR); }
std::string metronome_program() { return place_of("METRONOME_BINARY", METRONOME_BINARY); }

}  // namespace metronome::testing
