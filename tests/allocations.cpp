// Counts calls of operator new of the whole program. In a file of its own: inlined into the tests,
// compilers would pair them with the library's.
#include "tests/allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> count{0};

}  // namespace

void* operator new(std::size_t size) {
  ++count;
  if (void* memory = std::malloc(size > 0 ? size : 1)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }

namespace metronome::testing {

std::int64_t num_allocations() { return count; }

}  // namespace metronome::testing
