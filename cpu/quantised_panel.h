// SPDX-License-Identifier: Apache-2.0
// The layout of quantised weights for the kernels: each weight keeps the integers and the float16
// scales of its GGML block, rearranged so that a vector holds consecutive outputs.
//
// A panel of 64 outputs is two strips of 32. A strip is a sequence of blocks over its inputs, 32 or
// 256 of them as in the stored format. A block has a header and then a group for every 32 inputs.
// All of it are rows of 32-bit words: 32 words, one for each output of the strip. Groups of Q8_0
// are bytes instead.
//
// - Header: the scale d as float16. Formats without a second scale have 16 words: word j has output
//   j in the lower half and output j + 16 in the upper. With a second scale m, word j has d in the
//   lower half and m in the upper.
// - Header of Q4_K and Q5_K, further: 4 rows. Row i has the bytes s, t of inputs 64 i .. 64 i + 31,
//   then those of the next 32: the 6-bit scales of d and m.
// - Header of Q6_K, further: 4 rows. Row i has the 8-bit scales of inputs 64 i .. 64 i + 63, 16
//   inputs each.
// - Group: 4 rows of 4-bit integers. Row i has inputs 8 i .. 8 i + 7: byte b of a word has input b
//   of these in the lower half and input b + 4 in the upper.
//   Q8_0 has 1,024 signed bytes instead: byte 32 i + j has input i of output j.
// - Group, further: the fifth bit of Q5 in one row, bits five and six of Q6_K in two rows of 16
//   inputs each. See high_bit_place().
#pragma once

#include <cstddef>
#include <cstdint>

#include "cpu/kernels.h"
#include "models/weights/tensor_type.h"

namespace metronome {

constexpr int kStripOutputs = 32;
constexpr int kGroupInputs = 32;

// Sizes in words. The constants of the kernels' templates, too.
struct StripFormat {
  TensorType type;
  int block_inputs;  // 32 or 256
  int header_words;  // of a block
  int low_rows;      // of a group: 4, or 8 for Q8_0
  int high_rows;     // of a group
  bool has_minimum;  // a second scale m
  int bias;          // a weight is (integer - bias) * scale, or integer * scale +- minimum

  // Signed bytes: Q8_0.
  constexpr bool has_bytes() const { return low_rows == kGroupInputs / 4; }
  constexpr bool has_offset() const { return has_minimum || bias != 0; }
  constexpr int group_words() const { return (low_rows + high_rows) * kStripOutputs; }
  constexpr int block_words() const {
    return header_words + block_inputs / kGroupInputs * group_words();
  }
};

constexpr int kNumStripFormats = 8;
constexpr StripFormat kStripFormats[kNumStripFormats] = {
    {TensorType::Q4_0, 32, 16, 4, 0, false, 8},  {TensorType::Q4_1, 32, 32, 4, 0, true, 0},
    {TensorType::Q5_0, 32, 16, 4, 1, false, 16}, {TensorType::Q5_1, 32, 32, 4, 1, true, 0},
    {TensorType::Q8_0, 32, 16, 8, 0, false, 0},  {TensorType::Q4_K, 256, 160, 4, 0, true, 0},
    {TensorType::Q5_K, 256, 160, 4, 1, true, 0}, {TensorType::Q6_K, 256, 144, 4, 2, false, 32},
};

// nullptr for types that are not quantised.
const StripFormat* strip_format(TensorType type);

// The words of a panel of 64 outputs. Requires a multiple of block_inputs.
std::int64_t quantised_panel_words(const StripFormat& format, std::int64_t num_inputs);

// The place of an input's 4 low bits in a word of 8 inputs.
constexpr int low_bit_place(int input) { return 8 * (input % 4) + 4 * (input / 4); }

// The lowest place of an input's high bits within its row: in the byte of its low bits, so that a
// shift and a mask bring the bits of four inputs above the low ones.
constexpr int high_bit_place(int high_rows, int input) {
  return 8 * (input % 4) + high_rows * (input / 4);
}

// Whether all float16 scales are finite. Kernels require that.
bool has_finite_scales(const StripFormat& format, const std::byte* blocks, std::int64_t num_blocks);

// Packs `num_rows` <= 64 stored rows, one after the other. Missing rows become zeros.
void pack_quantised_panel(const StripFormat& format, const std::byte* blocks, std::int64_t num_rows,
                          std::int64_t num_inputs, std::uint32_t* panel);

// The stored blocks of output `output` < 64, as they were packed.
void unpack_quantised_row(const StripFormat& format, const std::uint32_t* panel,
                          std::int64_t output, std::int64_t num_inputs, std::byte* blocks);

}  // namespace metronome
