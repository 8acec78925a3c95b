// SPDX-License-Identifier: Apache-2.0
// The types in which weights are stored.
#pragma once

#include <cstdint>

namespace metronome {

// Q4_0 to Q6_K are quantised: a row consists of blocks with common scales (quantised_blocks.h).
enum class TensorType : std::uint8_t {
  Float32,
  Float16,
  BFloat16,
  Q4_0,
  Q4_1,
  Q5_0,
  Q5_1,
  Q8_0,
  Q4_K,
  Q5_K,
  Q6_K,
  Other,
};

}  // namespace metronome
