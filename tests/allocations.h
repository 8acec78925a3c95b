// SPDX-License-Identifier: Apache-2.0
// How often a program of tests has asked for memory so far; not at all under a sanitizer.
#pragma once

#include <cstdint>

namespace metronome::testing {

std::int64_t num_allocations();

}  // namespace metronome::testing
