// SPDX-License-Identifier: Apache-2.0
// Large memory allocated directly from the operating system.
#pragma once

#include <cstddef>
#include <memory>

namespace metronome {

struct UnmapMemory {
  std::size_t num_bytes = 0;
  void operator()(void* memory) const;
};

// Zero-initialised and page-aligned, in huge pages if requested and available. A page takes memory
// once it is written.
class MappedMemory {
 public:
  enum class Pages { Small, Huge };

  MappedMemory() = default;
  MappedMemory(std::size_t num_bytes, Pages pages);  // throws std::bad_alloc

  std::size_t num_bytes() const { return memory_.get_deleter().num_bytes; }
  template <class T>
  T* as() const {
    return static_cast<T*>(memory_.get());
  }

 private:
  std::unique_ptr<void, UnmapMemory> memory_;
};

}  // namespace metronome
