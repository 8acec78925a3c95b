// SPDX-License-Identifier: Apache-2.0
// Quantised weights (see quantised_panel.h) as vectors of floats, for one instruction set; a part
// of products_impl.h.
#pragma once

#include "cpu/lanes.h"
#include "cpu/quantised_panel.h"

namespace metronome::METRONOME_KERNELS {

constexpr int kStripVectors = kStripOutputs / kWidth;
constexpr int kQuad = 4;  // inputs whose integers are in the bytes of a word
constexpr int kGroupQuads = kGroupInputs / kQuad;
constexpr int kLineWords = 16;  // of a cache line

// The lower halves as finite float16: their bits one place to the right are a float's, except for
// the exponent. Multiplying by a power of two is exact, for subnormal numbers, too.
METRONOME_INLINE Floats floats_of_halves(const Words& halves) {
  const Floats magnitude = (Floats)((halves & 0x7fffu) << 13) * 0x1p112f;
  return (Floats)((Words)magnitude | ((halves & 0x8000u) << 16));
}

// The 4 bits at a place.
METRONOME_INLINE Floats nibbles(const Words& words, int place) {
#if defined(__AVX512F__)
  // Looks up the low 4 bits of each lane, so it needs neither a mask nor a conversion.
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return (Floats)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)(words >> place), table);
#else
  return floats_of(place == 28 ? words >> 28 : (words >> place) & 15u);
#endif
}

// kWidth signed bytes.
METRONOME_INLINE Floats floats_of_bytes(const std::uint8_t* from) {
#if defined(__AVX512F__)
  return floats_of(
      (Words)_mm512_maskz_cvtepi8_epi32(0xffff, _mm_loadu_si128((const __m128i*)from)));
#elif defined(__AVX2__)
  return floats_of((Words)_mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i*)from)));
#else
  Integers bytes;
  METRONOME_UNROLL
  for (int i = 0; i < kWidth; ++i) bytes[i] = static_cast<std::int8_t>(from[i]);
  return __builtin_convertvector(bytes, Floats);
#endif
}

// Byte i, without sign.
METRONOME_INLINE Floats floats_of_byte(const Words& words, int i) {
  return floats_of(i == 3 ? words >> 24 : (words >> (8 * i)) & 255u);
}

METRONOME_INLINE Words shifted_left(const Words& words, int places) {
  return places >= 0 ? words << places : words >> -places;
}

template <int kFormat>
struct StripScales {
  static constexpr StripFormat format = kStripFormats[kFormat];
  // Inputs with a common scale.
  static constexpr int kScaleInputs = format.type == TensorType::Q6_K ? 16 : kGroupInputs;

  // Of inputs [kScaleInputs * part, ...) of a block, with `words` its header. A weight is
  // integer * scale + offset, rounded once; Q8_0 has no offset.
  METRONOME_INLINE void load(const std::uint32_t* words, int part, int lane, Floats& scale,
                             Floats& offset) {
    if constexpr (format.has_minimum) {
      const Words both = load_words(words + lane);
      scale = floats_of_halves(both);
      offset = floats_of_halves(both >> 16);
      if constexpr (format.block_inputs != kGroupInputs) {
        const Words bytes =
            load_words(words + (1 + part / 2) * kStripOutputs + lane) >> (part % 2 * 16);
        scale = scale * floats_of(bytes & 255u);
        offset = -(offset * floats_of((bytes >> 8) & 255u));
      }
    } else {
      constexpr int kHalf = kStripOutputs / 2;
      const Words halves = load_words(words + lane % kHalf);
      scale = floats_of_halves(lane < kHalf ? halves : halves >> 16);
      if constexpr (format.block_inputs != kGroupInputs) {
        const Words bytes = load_words(words + kHalf + part / 4 * kStripOutputs + lane);
        const Integers top = (Integers)(bytes << (24 - part % 4 * 8));
        scale = scale * __builtin_convertvector(top >> 24, Floats);
      }
      if constexpr (format.has_offset()) offset = scale * static_cast<float>(-format.bias);
    }
  }
};

// The integers of 4 inputs of a group, kVectors vectors of outputs from `lane` on.
template <int kFormat, int kVectors>
struct QuadQuants {
  static constexpr StripFormat format = kStripFormats[kFormat];
  const std::uint8_t* signed_bytes = nullptr;  // of Q8_0
  Words words[kVectors] = {};                  // of the others
  int place = 0;                               // the first input's lowest bit, as stored

  METRONOME_INLINE QuadQuants load(const std::uint32_t* group, int quad, int lane) {
    QuadQuants quants;
    if constexpr (format.has_bytes()) {
      quants.signed_bytes = (const std::uint8_t*)group + quad * kQuad * kStripOutputs + lane;
    } else {
      quants.place = quad % 2 * 4;
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const std::uint32_t* const column = group + lane + v * kWidth;
        quants.words[v] = load_words(column + quad / 2 * kStripOutputs);
        if constexpr (format.high_rows > 0) {
          constexpr int kQuadsPerRow = kGroupInputs / kQuad / format.high_rows;
          constexpr std::uint32_t kMask = format.high_rows == 1 ? 0x10101010u : 0x30303030u;
          const Words high =
              load_words(column + (format.low_rows + quad / kQuadsPerRow) * kStripOutputs);
          const int high_place = quad % kQuadsPerRow * format.high_rows;
          quants.words[v] = ((quants.words[v] >> quants.place) & 0x0f0f0f0fu) |
                            (shifted_left(high, 4 - high_place) & kMask);
        }
      }
    }
    return quants;
  }

  METRONOME_INLINE Floats get(const QuadQuants& quants, int input, int vector) {
    if constexpr (format.has_bytes()) {
      return floats_of_bytes(quants.signed_bytes + input * kStripOutputs + vector * kWidth);
    } else if constexpr (format.high_rows > 0) {
      return floats_of_byte(quants.words[vector], input);
    } else {
      return nibbles(quants.words[vector], quants.place + 8 * input);
    }
  }
};

// Processors load sequential memory ahead by themselves, but not when scales are read first.
template <int kLines>
METRONOME_INLINE void prefetch_lines(const std::uint32_t* words) {
  METRONOME_UNROLL
  for (int line = 0; line < kLines; ++line) __builtin_prefetch(words + line * kLineWords);
}

// The scales of at most kProductBlock inputs.
template <int kFormat, int kVectors>
struct BlockScales {
  static constexpr int kScaleInputs = StripScales<kFormat>::kScaleInputs;
  Floats scale[kProductBlock / kScaleInputs][kVectors];
  Floats offset[kProductBlock / kScaleInputs][kVectors];

  METRONOME_INLINE void load(const std::uint32_t* blocks, std::int64_t num_inputs, int lane,
                             BlockScales& scales) {
    constexpr StripFormat format = kStripFormats[kFormat];
    constexpr int kBlockParts = format.block_inputs / kScaleInputs;
    for (int part = 0; part < num_inputs / kScaleInputs; ++part) {
      const std::uint32_t* const block = blocks + part / kBlockParts * format.block_words();
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        StripScales<kFormat>::load(block, part % kBlockParts, lane + v * kWidth,
                                   scales.scale[part][v], scales.offset[part][v]);
      }
    }
  }
};

// Calls use(input, weights) for at most kProductBlock inputs of a strip in order, beginning with a
// block; weights[v] has the outputs from lane + v * kWidth on. The scales come first, so that the
// sums do not wait for them. The block after these inputs is prefetched.
template <int kFormat, int kVectors, class Use>
METRONOME_INLINE void for_weights(const std::uint32_t* blocks, std::int64_t num_inputs, int lane,
                                  const Use& use) {
  constexpr StripFormat format = kStripFormats[kFormat];
  constexpr int kScaleInputs = StripScales<kFormat>::kScaleInputs;
  constexpr int kGroupParts = kGroupInputs / kScaleInputs;
  constexpr int kPartQuads = kScaleInputs / kQuad;
  constexpr int kBlockGroups = format.block_inputs / kGroupInputs;
  constexpr int kAheadWords = kProductBlock / format.block_inputs * format.block_words();
  constexpr int kGroupLines = kAheadWords / (kProductBlock / kGroupInputs) / kLineWords;
  constexpr int kQuadLines = (kGroupLines + kGroupQuads - 1) / kGroupQuads;
  using Quants = QuadQuants<kFormat, kVectors>;
  BlockScales<kFormat, kVectors> scales;
  BlockScales<kFormat, kVectors>::load(blocks, num_inputs, lane, scales);
  for (int group = 0; group < num_inputs / kGroupInputs; ++group) {
    const std::uint32_t* const words =
        blocks + (group / kBlockGroups + 1) * format.header_words + group * format.group_words();
    METRONOME_UNROLL
    for (int part = 0; part < kGroupParts; ++part) {
      const Floats* const scale = scales.scale[group * kGroupParts + part];
      const Floats* const offset = scales.offset[group * kGroupParts + part];
      METRONOME_UNROLL
      for (int q = 0; q < kPartQuads; ++q) {
        const int quad = part * kPartQuads + q;
        prefetch_lines<kQuadLines>(words + quad * kQuadLines * kLineWords + kAheadWords);
        const Quants quants = Quants::load(words, quad, lane);
        METRONOME_UNROLL
        for (int i = 0; i < kQuad; ++i) {
          Floats weights[kVectors];
          METRONOME_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            const Floats integer = Quants::get(quants, i, v);
            if constexpr (format.has_offset()) {
              weights[v] = multiply_add(integer, scale[v], offset[v]);
            } else {
              weights[v] = integer * scale[v];
            }
          }
          use(group * kGroupInputs + quad * kQuad + i, weights);
        }
      }
    }
  }
}

}  // namespace metronome::METRONOME_KERNELS
