// SPDX-License-Identifier: Apache-2.0
#include "models/weights/quantised_blocks.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/base/error.h"
#include "models/weights/float16.h"

namespace metronome {
namespace {

constexpr int kSmallBlock = 32;
constexpr int kLargeBlock = 256;

constexpr BlockFormat kFormats[kNumBlockFormats] = {
    {TensorType::Q4_0, "Q4_0", kSmallBlock, 18},  {TensorType::Q4_1, "Q4_1", kSmallBlock, 20},
    {TensorType::Q5_0, "Q5_0", kSmallBlock, 22},  {TensorType::Q5_1, "Q5_1", kSmallBlock, 24},
    {TensorType::Q8_0, "Q8_0", kSmallBlock, 34},  {TensorType::Q4_K, "Q4_K", kLargeBlock, 144},
    {TensorType::Q5_K, "Q5_K", kLargeBlock, 176}, {TensorType::Q6_K, "Q6_K", kLargeBlock, 210},
};

static_assert(std::endian::native == std::endian::little, "scales are stored little-endian");

int byte_at(const std::byte* from, int index) { return std::to_integer<int>(from[index]); }

float half_at(const std::byte* from) {
  std::uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  return float_of_half(bits);
}

// The four low bits of weight i. Bytes hold weights 16 apart.
int nibble(const std::byte* quants, int i) {
  return (byte_at(quants, i % 16) >> (i / 16 * 4)) & 15;
}

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

using DequantiseFn = void (*)(const std::byte* block, float* out);
constexpr DequantiseFn kDequantise[kNumBlockFormats] = {
    dequantise_q4_0, dequantise_q4_1,         dequantise_q5_0,        dequantise_q5_1,
    dequantise_q8_0, dequantise_q45_k<false>, dequantise_q45_k<true>, dequantise_q6_k,
};

}  // namespace

const BlockFormat* block_format(TensorType type) {
  const auto* found =
      std::find_if(std::begin(kFormats), std::end(kFormats),
                   [type](const BlockFormat& format) { return format.type == type; });
  return found == std::end(kFormats) ? nullptr : found;
}

const BlockFormat& block_format_at(std::int64_t index) {
  METRONOME_CHECK(0 <= index && index < kNumBlockFormats, "a block format that does not exist");
  return kFormats[index];
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
  const BlockFormat* format = block_format(type);
  METRONOME_CHECK(format != nullptr, "a type without blocks");
  const DequantiseFn dequantise_block = kDequantise[format - kFormats];
  for (std::int64_t i = 0; i < num_blocks; ++i) {
    dequantise_block(blocks + i * format->num_bytes, out + i * format->num_weights);
  }
}

}  // namespace metronome
