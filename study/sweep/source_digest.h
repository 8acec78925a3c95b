// SPDX-License-Identifier: Apache-2.0
// Identifies the program by the sources that affect its results.
#pragma once

#include <string_view>

namespace metronome {

// 16 hexadecimal digits: a digest of every source file that affects a result or the id of a sweep's
// run. These are core/, engines/, models/, sim/, cpu/, gpu/, reports/, and the sources of study/
// that set up a run. Computed at build time (tools/source_digest.cmake).
//
// A release version is not enough, as behaviour changes between commits. A digest of the executable
// changes with compilers, build types and the command line, although results stay the same. A
// changed comment in one of these files also changes the digest, which costs a rerun; no manual
// step is needed.
extern const std::string_view kSourceDigest;

}  // namespace metronome
