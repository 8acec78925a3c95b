// The layout of quantised weights for the kernels: each weight keeps the integers and the float16
// scales of its GGML block, rearranged so that a vector holds consecutive outputs.
//
// A panel of 64 outputs is two strips of 32. A strip is a sequence of blocks over its inputs, 32 or
// 256 of them as in the stored format. A block has a header and then a group for every 32 inputs.
// All of it are rows of 32-bit words: 32 words, one for each output of the strip.
//
// - Header: the scale d as float16. Formats without a second scale have 16 words: word j has output
//   j in the lower half and output j + 16 in the upper. With a second scale m, word j has d in the
//   lower half and m in the upper.
// - Header of Q4_K and Q5_K, further: 4 rows. Row i has the bytes s, t of inputs 64 i .. 64 i + 31,
//   then those of the next 32: the 6-bit scales of d and m.
// - Header of Q6_K, further: 4 rows. Row i has the 8-bit scales of inputs 64 i .. 64 i + 63, 16
//   inputs each.
// - Group: 4 rows of 4-bit integers. Row i has inputs 8 i .. 8 i + 7, the first in the lowest bits.
//   Q8_0 has 8 rows of 8-bit integers instead, biased by 128, 4 inputs each.
// - Group, further: the fifth bit of Q5 in one row, bits five and six of Q6_K in two rows of 16
//   inputs each. See high_bit_place().
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/model/tensor_type.h"
#include "cpu/kernels.h"

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

  constexpr int group_words() const { return (low_rows + high_rows) * kStripOutputs; }
  constexpr int block_words() const {
    return header_words + block_inputs / kGroupInputs * group_words();
  }
};

constexpr int kNumStripFormats = 8;
constexpr StripFormat kStripFormats[kNumStripFormats] = {
    {TensorType::Q4_0, 32, 16, 4, 0, false, 8},   {TensorType::Q4_1, 32, 32, 4, 0, true, 0},
    {TensorType::Q5_0, 32, 16, 4, 1, false, 16},  {TensorType::Q5_1, 32, 32, 4, 1, true, 0},
    {TensorType::Q8_0, 32, 16, 8, 0, false, 128}, {TensorType::Q4_K, 256, 160, 4, 0, true, 0},
    {TensorType::Q5_K, 256, 160, 4, 1, true, 0},  {TensorType::Q6_K, 256, 144, 4, 2, false, 32},
};

// nullptr for types that are not quantised.
const StripFormat* strip_format(TensorType type);

// The words of a panel of 64 outputs. Requires a multiple of block_inputs.
std::int64_t quantised_panel_words(const StripFormat& format, std::int64_t num_inputs);

// The lowest of the high bits of an input within its row: input 8 g + 2 b + o of the row has its
// bits in byte b. So a shift and a mask bring the bits of four inputs, 2 apart, above the low ones.
constexpr int high_bit_place(int high_rows, int input) {
  const int group = input / 8;
  const int byte = input % 8 / 2;
  const int odd = input % 2;
  return 8 * byte + high_rows * (2 * group + odd);
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
