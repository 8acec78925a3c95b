// SPDX-License-Identifier: Apache-2.0
// Memory of exactly the requested size, so that sanitizers detect accesses beyond it.
#pragma once

#include <cstddef>
#include <cstdlib>
#include <memory>

namespace metronome::emulator {

struct FreeMemory {
  void operator()(void* memory) const { std::free(memory); }
};
using AlignedMemory = std::unique_ptr<void, FreeMemory>;

// Null if memory runs out. The alignment must be a power of two, at least sizeof(void*).
inline AlignedMemory allocate_aligned(std::size_t alignment, std::size_t size) {
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, size) != 0) memory = nullptr;
  return AlignedMemory(memory);
}

}  // namespace metronome::emulator
