// SPDX-License-Identifier: Apache-2.0
// The types in which weights are stored.
#pragma once

#include <cstdint>

namespace metronome {

// Q4_0 to NVFP4 are quantised: a row consists of blocks with common scales (quantised_blocks.h).
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
  Q1_0,
  Q2_0,
  Q2_K,
  Q3_K,
  IQ1_S,
  IQ1_M,
  IQ2_XXS,
  IQ2_XS,
  IQ2_S,
  IQ3_XXS,
  IQ3_S,
  IQ4_NL,
  IQ4_XS,
  TQ1_0,
  TQ2_0,
  MXFP4,
  NVFP4,
  Other,
};

}  // namespace metronome
