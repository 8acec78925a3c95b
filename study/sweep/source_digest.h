// Which program this is, as far as its results go.
#pragma once

#include <string_view>

namespace metronome {

// 16 hexadecimal digits that stand for the content of every source file on which a result or the id
// of a sweep's run depends: core/, sim/, cpu/, gpu/, what reports/ writes with, and the two of
// tools/ that put a run together. Made when the program is built (study/sweep/source_digest.cmake).
//
// Neither the version of a release, which stays while behaviour changes from one commit to the
// next, nor a digest of the executable, which compilers, build types and work on the command line
// change while results stay: those of Metronome are the same for all of them. A comment in one of
// these files changes it too, which costs a rerun; nobody has to remember anything.
extern const std::string_view kSourceDigest;

}  // namespace metronome
