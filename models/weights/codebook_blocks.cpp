// SPDX-License-Identifier: Apache-2.0
#include "models/weights/codebook_blocks.h"

#include <bit>
#include <cmath>
#include <cstdint>

#include "models/weights/block_bytes.h"
#include "models/weights/codebook_grids.h"

namespace metronome {
namespace {

constexpr int kWeights = 256;
constexpr int kEight = 8;  // weights of an entry of most codebooks, and of a byte of signs

constexpr float kIq2Values[] = {8, 25, 43, 0};  // the fourth is in no entry
constexpr float kIq1Values[] = {-1, 0, 1, 0};
constexpr float kIq3XxsValues[] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr float kIq3SValues[] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr float kIq4Values[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                1,    13,   25,  38,  53,  69,  89,  113};
// Twice the numbers of e2m1.
constexpr float kFp4Values[] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Seven signs in the lower bits; the eighth makes their number even.
int eight_signs(std::uint32_t seven) {
  const unsigned low = seven & 127U;
  return static_cast<int>(low | (static_cast<unsigned>(std::popcount(low)) & 1U) << 7);
}

float sign(int signs, int i) { return ((signs >> i) & 1) == 0 ? 1.0f : -1.0f; }

// Eight weights of IQ2.
void put_iq2(float scale, std::uint16_t entry, int signs, float* out) {
  for (int i = 0; i < kEight; ++i) {
    out[i] = scale * kIq2Values[(entry >> (2 * i)) & 3] * sign(signs, i);
  }
}

// Four weights of IQ3, whose signs begin at bit `first`.
void put_iq3(float scale, const float* values, std::uint16_t entry, int signs, int first,
             float* out) {
  for (int i = 0; i < 4; ++i) {
    out[i] = scale * values[(entry >> (4 * i)) & 7] * sign(signs, first + i);
  }
}

// Eight weights of IQ1.
void put_iq1(float scale, float delta, std::uint16_t entry, float* out) {
  for (int i = 0; i < kEight; ++i) out[i] = scale * (kIq1Values[(entry >> (2 * i)) & 3] + delta);
}

constexpr float kIq1Delta = 0.125f;

// Half of e8m0.
float half_of_e8m0(int exponent) {
  const auto number = static_cast<std::uint32_t>(exponent);
  return std::bit_cast<float>(number < 2 ? 0x00200000U << number : (number - 1) << 23);
}

// Half of e4m3 without its sign; the largest code stands for 0.
float half_of_ue4m3(int code) {
  if (code == 0x7f) return 0;
  const int exponent = (code >> 3) & 15;
  const auto fraction = static_cast<float>(code & 7);
  return exponent == 0 ? std::ldexp(fraction, -10) : std::ldexp(8 + fraction, exponent - 11);
}

}  // namespace

// d; 8 low bits of 32 indices; for each 32 weights 16 bits: four times 3 high bits of an index, 3
// of the scale, the sign of the delta.
void dequantise_iq1_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* const low = block + 2;
  const std::byte* const high = low + kWeights / kEight;
  for (int i = 0; i < kWeights / kEight; ++i) {
    const int bits = word16_at(high + i / 4 * 2);
    const float scale = d * static_cast<float>(2 * ((bits >> 12) & 7) + 1);
    const float delta = (bits & 0x8000) == 0 ? kIq1Delta : -kIq1Delta;
    const int index = byte_at(low, i) | ((bits >> (i % 4 * 3)) & 7) << 8;
    put_iq1(scale, delta, kIq1Grid[static_cast<std::size_t>(index)], out + i * kEight);
  }
}

// 8 low bits of 32 indices; for each two of them a byte: 3 high bits and the sign of the delta,
// twice; four words of 16 bits, each four scales of 16 weights, 3 bits wide, and 4 bits of d.
void dequantise_iq1_m(const std::byte* block, float* out) {
  const std::byte* const high = block + kWeights / kEight;
  const std::byte* const scales = high + kWeights / 16;
  unsigned bits_of_d = 0;
  for (int i = 0; i < 4; ++i) bits_of_d |= unsigned{word16_at(scales + 2 * i)} >> 12 << (4 * i);
  const float d = float_of_half(static_cast<std::uint16_t>(bits_of_d));
  for (int i = 0; i < kWeights / kEight; ++i) {
    const int packed = word16_at(scales + i / 8 * 2) >> (i / 2 % 4 * 3);
    const float scale = d * static_cast<float>(2 * (packed & 7) + 1);
    const int bits = byte_at(high, i / 2) >> (i % 2 * 4);
    const int index = byte_at(block, i) | (bits & 7) << 8;
    put_iq1(scale, (bits & 8) == 0 ? kIq1Delta : -kIq1Delta,
            kIq1Grid[static_cast<std::size_t>(index)], out + i * kEight);
  }
}

// d; for each 32 weights four indices, then four times seven signs and a scale in 32 bits.
void dequantise_iq2_xxs(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int part = 0; part < kWeights / 32; ++part, out += 32) {
    const std::byte* const indices = block + 2 + 8 * part;
    const std::uint32_t signs = word32_at(indices + 4);
    const float scale = d * (0.5f + static_cast<float>(signs >> 28)) * 0.25f;
    for (int i = 0; i < 4; ++i) {
      const auto index = static_cast<std::size_t>(byte_at(indices, i));
      put_iq2(scale, kIq2XxsGrid[index], eight_signs(signs >> (7 * i)), out + i * kEight);
    }
  }
}

// d; 32 words of 16 bits: an index of 9 and seven signs; 16 scales of 4 bits.
void dequantise_iq2_xs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* const scales = block + 2 + kWeights / 4;
  for (int i = 0; i < kWeights / kEight; ++i) {
    const unsigned bits = word16_at(block + 2 + 2 * i);
    const int packed = byte_at(scales, i / 4) >> (i / 2 % 2 * 4);
    const float scale = d * (0.5f + static_cast<float>(packed & 15)) * 0.25f;
    put_iq2(scale, kIq2XsGrid[bits & 511U], eight_signs(bits >> 9), out + i * kEight);
  }
}

// d; 8 low bits of 32 indices; their weights' signs; two high bits each; 16 scales of 4 bits.
void dequantise_iq2_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* const low = block + 2;
  const std::byte* const signs = low + kWeights / kEight;
  const std::byte* const high = signs + kWeights / kEight;
  const std::byte* const scales = high + kWeights / 32;
  for (int i = 0; i < kWeights / kEight; ++i) {
    const int packed = byte_at(scales, i / 4) >> (i / 2 % 2 * 4);
    const float scale = d * (0.5f + static_cast<float>(packed & 15)) * 0.25f;
    const int index = byte_at(low, i) | ((byte_at(high, i / 4) >> (i % 4 * 2)) & 3) << 8;
    put_iq2(scale, kIq2SGrid[static_cast<std::size_t>(index)], byte_at(signs, i), out + i * kEight);
  }
}

// d; 64 indices; for each 32 weights four times seven signs and a scale in 32 bits.
void dequantise_iq3_xxs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* const indices = block + 2;
  for (int i = 0; i < kWeights / 4; ++i) {
    const std::uint32_t signs = word32_at(indices + kWeights / 4 + i / 8 * 4);
    const float scale = d * (0.5f + static_cast<float>(signs >> 28)) * 0.5f;
    const auto index = static_cast<std::size_t>(byte_at(indices, i));
    put_iq3(scale, kIq3XxsValues, kIq3XxsGrid[index], eight_signs(signs >> (i % 8 / 2 * 7)),
            i % 2 * 4, out + 4 * i);
  }
}

// d; 8 low bits of 64 indices; their ninth bits; the weights' signs; 8 scales of 4 bits.
void dequantise_iq3_s(const std::byte* block, float* out) {
  const float d = half_at(block);
  const std::byte* const low = block + 2;
  const std::byte* const high = low + kWeights / 4;
  const std::byte* const signs = high + kWeights / 32;
  const std::byte* const scales = signs + kWeights / kEight;
  for (int i = 0; i < kWeights / 4; ++i) {
    const int packed = byte_at(scales, i / 16) >> (i / 8 % 2 * 4);
    const float scale = d * static_cast<float>(1 + 2 * (packed & 15));
    const int index = byte_at(low, i) | ((byte_at(high, i / 8) >> (i % 8)) & 1) << 8;
    put_iq3(scale, kIq3SValues, kIq3SGrid[static_cast<std::size_t>(index)], byte_at(signs, i / 2),
            i % 2 * 4, out + 4 * i);
  }
}

// d; indices of 4 bits.
void dequantise_iq4_nl(const std::byte* block, float* out) {
  const float d = half_at(block);
  for (int i = 0; i < 32; ++i) out[i] = d * kIq4Values[nibble(block + 2, i)];
}

// d; two high bits of the scales of 32 weights; their four low bits; indices of 4 bits.
void dequantise_iq4_xs(const std::byte* block, float* out) {
  const float d = half_at(block);
  const int high = word16_at(block + 2);
  for (int part = 0; part < kWeights / 32; ++part, out += 32) {
    const int low = byte_at(block, 4 + part / 2) >> (part % 2 * 4);
    const int packed = (low & 15) | ((high >> (2 * part)) & 3) << 4;
    const float scale = d * static_cast<float>(packed - 32);
    const std::byte* const indices = block + 8 + 16 * part;
    for (int i = 0; i < 32; ++i) out[i] = scale * kIq4Values[nibble(indices, i)];
  }
}

// An exponent; indices of 4 bits.
void dequantise_mxfp4(const std::byte* block, float* out) {
  const float scale = half_of_e8m0(byte_at(block, 0));
  for (int i = 0; i < 32; ++i) out[i] = scale * kFp4Values[nibble(block + 1, i)];
}

// Four scales of 16 weights; their indices of 4 bits.
void dequantise_nvfp4(const std::byte* block, float* out) {
  for (int part = 0; part < 4; ++part, out += 16) {
    const float scale = half_of_ue4m3(byte_at(block, part));
    const std::byte* const indices = block + 4 + 8 * part;
    for (int i = 0; i < 16; ++i) out[i] = scale * kFp4Values[nibble(indices, i, 8)];
  }
}

}  // namespace metronome
