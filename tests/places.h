// SPDX-License-Identifier: Apache-2.0
// Where the repository and the program under test are. Defined in one small file, so that nothing
// else that is compiled depends on them: a compiler cache then serves every checkout.
#pragma once

#include <string>

namespace metronome::testing {

// The repository's folder, and the program that was built beside the tests: where they were when
// that was done, or where $METRONOME_SOURCE_DIR and $METRONOME_BINARY say that they were carried.
std::string source_dir();
std::string metronome_program();

}  // namespace metronome::testing
