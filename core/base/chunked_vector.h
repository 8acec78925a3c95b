// SPDX-License-Identifier: Apache-2.0
// A growing array whose elements never move, so references stay valid. Growth copies no elements,
// which matters for arrays that fill most of the memory.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

namespace metronome {

template <class T, std::size_t kChunkSize = 1024>
class ChunkedVector {
  static_assert((kChunkSize & (kChunkSize - 1)) == 0, "an index splits into two bit fields");

 public:
  class Iterator {
   public:
    Iterator(const ChunkedVector* vector, std::size_t position)
        : vector_(vector), position_(position) {}
    const T& operator*() const { return (*vector_)[position_]; }
    Iterator& operator++() {
      ++position_;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return position_ != other.position_; }

   private:
    const ChunkedVector* vector_;
    std::size_t position_;
  };

  static constexpr std::size_t kElementsPerChunk = kChunkSize;

  // Appends a value-initialised element.
  T& emplace_back() {
    if (size_ % kChunkSize == 0) chunks_.push_back(std::make_unique<T[]>(kChunkSize));
    return chunks_.back()[size_++ % kChunkSize];
  }
  void push_back(const T& value) { emplace_back() = value; }
  // Appends value-initialised elements until there are `size`.
  void grow_to(std::size_t size) {
    while (size_ < size) emplace_back();
  }

  // Frees elements [chunk * kElementsPerChunk, (chunk + 1) * kElementsPerChunk), which must exist.
  // They must not be accessed afterwards. The other elements keep their indices.
  void forget_chunk(std::size_t chunk) { chunks_[chunk].reset(); }
  bool has_chunk(std::size_t chunk) const { return chunk < chunks_.size() && chunks_[chunk]; }

  T& operator[](std::size_t i) { return chunks_[i / kChunkSize][i % kChunkSize]; }
  const T& operator[](std::size_t i) const { return chunks_[i / kChunkSize][i % kChunkSize]; }
  const T& back() const { return (*this)[size_ - 1]; }  // requires an element

  std::size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  Iterator begin() const { return {this, 0}; }
  Iterator end() const { return {this, size_}; }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
  std::size_t size_ = 0;
};

}  // namespace metronome
