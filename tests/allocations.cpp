// SPDX-License-Identifier: Apache-2.0
// Counts calls of operator new of the whole program. In a file of its own: inlined into the tests,
// compilers would pair them with the library's.
#include "tests/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

// Sanitizers have an operator new of their own, which knows what must free its memory.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define METRONOME_COUNTS_ALLOCATIONS 0
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define METRONOME_COUNTS_ALLOCATIONS 0
#endif
#endif
#ifndef METRONOME_COUNTS_ALLOCATIONS
#define METRONOME_COUNTS_ALLOCATIONS 1
#endif

namespace {

std::atomic<std::int64_t> count{0};

}  // namespace

#if METRONOME_COUNTS_ALLOCATIONS
void* operator new(std::size_t size) {
  ++count;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

#endif

namespace metronome::testing {

std::int64_t num_allocations() { return count; }

}  // namespace metronome::testing
