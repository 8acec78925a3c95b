// SPDX-License-Identifier: Apache-2.0
#include "models/weights/quantised_blocks.h"

#include <algorithm>
#include <iterator>

#include "core/base/error.h"
#include "models/weights/block_bytes.h"
#include "models/weights/codebook_blocks.h"

namespace metronome {
namespace {

constexpr int kSmallBlock = 32;
constexpr int kLargeBlock = 256;

// The fifth bit of weight i, as the number 0 or 16.
int fifth_bit(const std::byte* high, int i) { return ((byte_at(high, i / 8) >> (i % 8)) & 1) << 4; }

// Blocks of 32: d; m (Q4_1, Q5_1); fifth bits (Q5_0, Q5_1); low bits.
void dequantise_q4_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = d * static_cast<float>(nibble(block + 2, i) - 8);
}

void dequantise_q4_1(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < kSmallBlock; ++i) out[i] = d * static_cast<float>(nibble(block + 4, i)) + m;
}

void dequantise_q5_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmallBlock; ++i) {
    const int q = (nibble(block + 6, i) | fifth_bit(block + 2, i)) - 16;
    out[i] = d * static_cast<float>(q);
  }
}

void dequantise_q5_1(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  for (int i = 0; i < kSmallBlock; ++i) {
    const int q = nibble(block + 8, i) | fifth_bit(block + 4, i);
    out[i] = d * static_cast<float>(q) + m;
  }
}

void dequantise_q8_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < kSmallBlock; ++i) {
    out[i] = d * static_cast<float>(static_cast<std::int8_t>(byte_at(block + 2, i)));
  }
}

// Scale and minimum of the 32 weights from 32 * part on. 12 bytes hold 8 of each, 6 bits wide.
struct ScaleMin {
  int scale;
  int min;
};

ScaleMin scale_min(const std::byte* packed, int part) {
  const int j = part % 4;
  const int low = byte_at(packed, j);
  const int high = byte_at(packed, j + 4);
  if (part < 4) return {low & 63, high & 63};
  const int both = byte_at(packed, j + 8);
  return {(both & 15) | ((low >> 2) & 48), (both >> 4) | ((high >> 2) & 48)};
}

// Q4_K and Q5_K: d, m, the scales, fifth bits (Q5_K; byte i has one bit of each part), low bits
// (32 bytes for two parts each).
template <bool kHasFifthBit>
void dequantise_q45_k(const std::byte* block, float* out) {
  const float d = half_at(block);
  const float m = half_at(block + 2);
  const std::byte* const high = block + 16;
  const std::byte* const low = high + (kHasFifthBit ? kLargeBlock / 8 : 0);
  for (int part = 0; part < kLargeBlock / kSmallBlock; ++part) {
    const ScaleMin packed = scale_min(block + 4, part);
    const float scale = d * static_cast<float>(packed.scale);
    const float min = m * static_cast<float>(packed.min);
    for (int i = 0; i < kSmallBlock; ++i) {
      int q = (byte_at(low, part / 2 * kSmallBlock + i) >> (part % 2 * 4)) & 15;
      if constexpr (kHasFifthBit) q |= ((byte_at(high, i) >> part) & 1) << 4;
      out[part * kSmallBlock + i] = scale * static_cast<float>(q) - min;
    }
  }
}

// Low bits (64 bytes for four parts of 32 weights), upper two bits (32 bytes for four parts), a
// scale for each 16 weights, d.
void dequantise_q6_k(const std::byte* block, float* out) {
  constexpr int kHighAt = kLargeBlock / 2;
  constexpr int kScalesAt = kHighAt + kLargeBlock / 4;
  constexpr int kScaleWeights = 16;
  const float d = half_at(block + kScalesAt + kLargeBlock / kScaleWeights);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int half = i / 128;
    const int part = i / 32 % 4;
    const int low = (byte_at(block, half * 64 + part % 2 * 32 + i % 32) >> (part / 2 * 4)) & 15;
    const int high = (byte_at(block + kHighAt, half * 32 + i % 32) >> (part * 2)) & 3;
    const auto scale = static_cast<std::int8_t>(byte_at(block + kScalesAt, i / kScaleWeights));
    out[i] = d * static_cast<float>(scale) * static_cast<float>((low | high << 4) - 32);
  }
}

// Bits 2 * place and 2 * place + 1 of a byte.
int pair_of_bits(int byte, int place) { return (byte >> (2 * place)) & 3; }

// Scale and minimum of 16 weights each, 4 bits wide; two bits of weights (32 bytes for four parts
// of 32); d, m.
void dequantise_q2_k(const std::byte* block, float* out) {
  const std::byte* const quants = block + kLargeBlock / 16;
  const float d = half_at(quants + kLargeBlock / 4);
  const float m = half_at(quants + kLargeBlock / 4 + 2);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int packed = byte_at(block, i / 16);
    const float scale = d * static_cast<float>(packed & 15);
    const float min = m * static_cast<float>(packed >> 4);
    const int q = pair_of_bits(byte_at(quants, i / 128 * 32 + i % 32), i / 32 % 4);
    out[i] = scale * static_cast<float>(q) - min;
  }
}

// Third bits (byte i has one of each part of 32 weights), whose absence takes off 4; two low bits
// (32 bytes for four parts); a scale for each 16 weights, 6 bits wide; d.
void dequantise_q3_k(const std::byte* block, float* out) {
  const std::byte* const quants = block + kLargeBlock / 8;
  const std::byte* const scales = quants + kLargeBlock / 4;
  const float d = half_at(scales + 12);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int j = i / 16;
    const int low = byte_at(scales, j % 8) >> (j / 8 * 4);
    const int packed = (low & 15) | pair_of_bits(byte_at(scales, 8 + j % 4), j / 4) << 4;
    const float scale = d * static_cast<float>(packed - 32);
    const int q = pair_of_bits(byte_at(quants, i / 128 * 32 + i % 32), i / 32 % 4);
    const bool has_third = ((byte_at(block, i % 32) >> (i / 32)) & 1) != 0;
    out[i] = scale * static_cast<float>(has_third ? q : q - 4);
  }
}

// Five weights of -1, 0 or 1 in a byte, as a fraction of 256 in the ternary system: digit `place`.
int ternary_digit(int byte, int place) {
  constexpr int kPowers[] = {1, 3, 9, 27, 81};
  return ((byte * kPowers[place] & 255) * 3 >> 8) - 1;
}

// 32 bytes of five weights that lie 32 apart, 16 bytes of five 16 apart, 4 bytes of four 4 apart;
// d.
void dequantise_tq1_0(const std::byte* block, float* out) {
  const float d = half_at(block + 52);
  for (int i = 0; i < 160; ++i) {
    out[i] = d * static_cast<float>(ternary_digit(byte_at(block, i % 32), i / 32));
  }
  for (int i = 0; i < 80; ++i) {
    out[160 + i] = d * static_cast<float>(ternary_digit(byte_at(block, 32 + i % 16), i / 16));
  }
  for (int i = 0; i < 16; ++i) {
    out[240 + i] = d * static_cast<float>(ternary_digit(byte_at(block, 48 + i % 4), i / 4));
  }
}

// Two bits of weights (32 bytes for four parts of 32); d.
void dequantise_tq2_0(const std::byte* block, float* out) {
  const float d = half_at(block + kLargeBlock / 4);
  for (int i = 0; i < kLargeBlock; ++i) {
    const int q = pair_of_bits(byte_at(block, i / 128 * 32 + i % 32), i / 32 % 4);
    out[i] = d * static_cast<float>(q - 1);
  }
}

// d; a bit of each of 128 weights: 1 or -1.
void dequantise_q1_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 128; ++i) {
    out[i] = ((byte_at(block + 2, i / 8) >> (i % 8)) & 1) != 0 ? d : -d;
  }
}

// d; two bits of each of 64 weights: -1 to 2.
void dequantise_q2_0(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 64; ++i) {
    out[i] = static_cast<float>(pair_of_bits(byte_at(block + 2, i / 4), i % 4) - 1) * d;
  }
}

// A format and what reads a block of it.
struct Row {
  BlockFormat format;
  void (*dequantise)(const std::byte* block, float* out);
};

constexpr Row kRows[kNumBlockFormats] = {
    {{TensorType::Q4_0, "Q4_0", kSmallBlock, 18}, dequantise_q4_0},
    {{TensorType::Q4_1, "Q4_1", kSmallBlock, 20}, dequantise_q4_1},
    {{TensorType::Q5_0, "Q5_0", kSmallBlock, 22}, dequantise_q5_0},
    {{TensorType::Q5_1, "Q5_1", kSmallBlock, 24}, dequantise_q5_1},
    {{TensorType::Q8_0, "Q8_0", kSmallBlock, 34}, dequantise_q8_0},
    {{TensorType::Q4_K, "Q4_K", kLargeBlock, 144}, dequantise_q45_k<false>},
    {{TensorType::Q5_K, "Q5_K", kLargeBlock, 176}, dequantise_q45_k<true>},
    {{TensorType::Q6_K, "Q6_K", kLargeBlock, 210}, dequantise_q6_k},
    {{TensorType::Q1_0, "Q1_0", 128, 18}, dequantise_q1_0},
    {{TensorType::Q2_0, "Q2_0", 64, 18}, dequantise_q2_0},
    {{TensorType::Q2_K, "Q2_K", kLargeBlock, 84}, dequantise_q2_k},
    {{TensorType::Q3_K, "Q3_K", kLargeBlock, 110}, dequantise_q3_k},
    {{TensorType::IQ1_S, "IQ1_S", kLargeBlock, 50}, dequantise_iq1_s},
    {{TensorType::IQ1_M, "IQ1_M", kLargeBlock, 56}, dequantise_iq1_m},
    {{TensorType::IQ2_XXS, "IQ2_XXS", kLargeBlock, 66}, dequantise_iq2_xxs},
    {{TensorType::IQ2_XS, "IQ2_XS", kLargeBlock, 74}, dequantise_iq2_xs},
    {{TensorType::IQ2_S, "IQ2_S", kLargeBlock, 82}, dequantise_iq2_s},
    {{TensorType::IQ3_XXS, "IQ3_XXS", kLargeBlock, 98}, dequantise_iq3_xxs},
    {{TensorType::IQ3_S, "IQ3_S", kLargeBlock, 110}, dequantise_iq3_s},
    {{TensorType::IQ4_NL, "IQ4_NL", kSmallBlock, 18}, dequantise_iq4_nl},
    {{TensorType::IQ4_XS, "IQ4_XS", kLargeBlock, 136}, dequantise_iq4_xs},
    {{TensorType::TQ1_0, "TQ1_0", kLargeBlock, 54}, dequantise_tq1_0},
    {{TensorType::TQ2_0, "TQ2_0", kLargeBlock, 66}, dequantise_tq2_0},
    {{TensorType::MXFP4, "MXFP4", kSmallBlock, 17}, dequantise_mxfp4},
    {{TensorType::NVFP4, "NVFP4", 64, 36}, dequantise_nvfp4},
};

const Row* find_row(TensorType type) {
  const auto* found = std::find_if(std::begin(kRows), std::end(kRows),
                                   [type](const Row& row) { return row.format.type == type; });
  return found == std::end(kRows) ? nullptr : found;
}

}  // namespace

const BlockFormat* block_format(TensorType type) {
  const Row* const row = find_row(type);
  return row == nullptr ? nullptr : &row->format;
}

const BlockFormat& block_format_at(std::int64_t index) {
  METRONOME_CHECK(0 <= index && index < kNumBlockFormats, "a block format that does not exist");
  return kRows[index].format;
}

std::string_view to_string(TensorType type) {
  switch (type) {
    case TensorType::Float32: return "F32";
    case TensorType::Float16: return "F16";
    case TensorType::BFloat16: return "BF16";
    case TensorType::Other: return "other";
    default: return block_format(type)->name;
  }
}

std::int64_t stored_bytes(TensorType type, std::int64_t num_weights) {
  METRONOME_CHECK(type != TensorType::Other, "the size of an unknown type");
  const BlockFormat* format = block_format(type);
  if (format == nullptr) return num_weights * (type == TensorType::Float32 ? 4 : 2);
  METRONOME_CHECK(num_weights % format->num_weights == 0, "a part of a block");
  return num_weights / format->num_weights * format->num_bytes;
}

void dequantise(TensorType type, const std::byte* blocks, std::int64_t num_blocks, float* out) {
  const Row* const row = find_row(type);
  METRONOME_CHECK(row != nullptr, "a type without blocks");
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    row->dequantise(blocks + i * row->format.num_bytes, out + i * row->format.num_weights);
  }
}

}  // namespace metronome
