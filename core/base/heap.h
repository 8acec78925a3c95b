// How the process gets its memory.
#pragma once

namespace metronome {

// Lets the heap of the main thread grow in steps of many huge pages: first uses of small pages are
// a tenth of a short simulation's time. For programs that compute and end; memory that is freed
// stays with the process. Does nothing where the C library or the kernel cannot.
void use_huge_pages();

}  // namespace metronome
