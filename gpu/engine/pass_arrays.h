// SPDX-License-Identifier: Apache-2.0
// Device pointers to the index arrays of a pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "gpu/plan/step_arrays.h"

namespace metronome {

// Every pointer is the block's address plus the array's offset.
class PassArrays {
 public:
  // `block` is arrays.bytes in device memory.
  PassArrays(const StepArrays& arrays, const std::byte* block) : arrays_(arrays), block_(block) {}

  const StepArrays* operator->() const { return &arrays_; }

  template <class T = std::int32_t>
  const T* at(const ArraySpan& span) const {
    return reinterpret_cast<const T*>(block_ + span.offset);
  }

  // The arrays for a kind of layer. Window layers with their own blocks have their own arrays.
  // [num_tokens]
  const std::int32_t* slots(bool is_window) const {
    return at(has_own_blocks(is_window) ? arrays_.window_slots : arrays_.slots);
  }
  // [blocks of all sequences]
  const std::int32_t* block_tables(bool is_window) const {
    return at(has_own_blocks(is_window) ? arrays_.window_block_tables : arrays_.block_tables);
  }
  // [num_sequences]
  const std::int32_t* table_start(bool is_window) const {
    return at(has_own_blocks(is_window) ? arrays_.window_table_start : arrays_.table_start);
  }
  // [num_decodes + 1]
  const std::int32_t* item_start(bool is_window) const {
    return at(is_window ? arrays_.window_item_start : arrays_.item_start);
  }
  // [num_items]
  const std::int32_t* item_decode(bool is_window) const {
    return at(is_window ? arrays_.window_item_decode : arrays_.item_decode);
  }

 private:
  bool has_own_blocks(bool is_window) const { return is_window && arrays_.window_slots.count > 0; }

  const StepArrays& arrays_;
  const std::byte* block_;
};

}  // namespace metronome
