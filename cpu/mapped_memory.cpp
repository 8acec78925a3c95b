// SPDX-License-Identifier: Apache-2.0
#include "cpu/mapped_memory.h"

#include <sys/mman.h>

#include <new>

namespace metronome {

MappedMemory::MappedMemory(std::size_t num_bytes, Pages pages) {
  if (num_bytes == 0) return;
  void* const memory = mmap(nullptr, num_bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  memory_ = {memory, UnmapMemory{num_bytes}};
  if (pages == Pages::Huge) madvise(memory, num_bytes, MADV_HUGEPAGE);  // only a hint: may fail
}

void UnmapMemory::operator()(void* memory) const { munmap(memory, num_bytes); }

}  // namespace metronome
