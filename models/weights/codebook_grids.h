// SPDX-License-Identifier: Apache-2.0
// The codebooks of GGML's block formats IQ1, IQ2 and IQ3.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace metronome {

// Eight numbers an entry, two bits each from the lowest on. IQ2: 0, 1 and 2 stand for 8, 25 and 43;
// IQ1: for -1, 0 and 1.
extern const std::array<std::uint16_t, 256> kIq2XxsGrid;
extern const std::array<std::uint16_t, 512> kIq2XsGrid;
extern const std::array<std::uint16_t, 1024> kIq2SGrid;
extern const std::array<std::uint16_t, 2048> kIq1Grid;
// Four numbers an entry, four bits each. IQ3_XXS: 0 to 7 stand for 4, 12, 20, 28, 36, 44, 52 and
// 62; IQ3_S: for 1, 3, ..., 15.
extern const std::array<std::uint16_t, 256> kIq3XxsGrid;
extern const std::array<std::uint16_t, 512> kIq3SGrid;

}  // namespace metronome
