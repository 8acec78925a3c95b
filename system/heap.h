// SPDX-License-Identifier: Apache-2.0
// How the process gets its memory.
#pragma once

namespace metronome {

// Gives the first 64 MB of the main thread's heap huge pages: first uses of small pages are a tenth
// of a short simulation's time. For programs that compute and end, as the heap shrinks late. Does
// nothing where the C library or the kernel cannot.
void use_huge_pages();

}  // namespace metronome
