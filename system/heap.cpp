// SPDX-License-Identifier: Apache-2.0
#include "system/heap.h"

#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>

namespace metronome {

void use_huge_pages() {
#ifdef __GLIBC__
  constexpr rlim_t kLeastSpace = rlim_t{1} << 30;  // with less, the steps of the heap do not fit
  rlimit space{};
  if (getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur < kLeastSpace) return;
  constexpr std::size_t kStep = std::size_t{64} << 20;
  constexpr std::uintptr_t kHugePage = std::uintptr_t{2} << 20;
  // Blocks up to the second size come from the heap, too.
  if (mallopt(M_TOP_PAD, static_cast<int>(kStep)) == 0) return;
  mallopt(M_MMAP_THRESHOLD, 32 << 20);
  mallopt(M_TRIM_THRESHOLD, static_cast<int>(kStep));
  const auto begin = reinterpret_cast<std::uintptr_t>(sbrk(0));
  void* volatile block = std::malloc(std::size_t{1} << 20);  // more than is left of the first step
  std::free(block);
  const auto end = reinterpret_cast<std::uintptr_t>(sbrk(0));
  const std::uintptr_t first = (begin + kHugePage - 1) / kHugePage * kHugePage;
  if (end <= first) return;
  madvise(reinterpret_cast<void*>(first), end - first, MADV_HUGEPAGE);
#endif
}

}  // namespace metronome
