// How often a program of tests has asked for memory so far.
#pragma once

#include <cstdint>

namespace metronome::testing {

std::int64_t num_allocations();

}  // namespace metronome::testing
