// Memory of exactly the size asked for, so that sanitizers see what is beyond.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace metronome::emulator {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<void, FreeMemory>;

// Null where there is none left. Requires a power of two, at least sizeof(void*).
inline AlignedMemory allocate_aligned(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size) != 0) memory = nullptr;
  return AlignedMemory(memory);
}

}  // namespace metronome::emulator
