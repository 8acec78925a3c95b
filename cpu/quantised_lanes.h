// Quantised weights (see quantised_panel.h) as vectors of floats, for one instruction set; a part
// of products_impl.h.
#pragma once

#include "cpu/lanes.h"
#include "cpu/quantised_panel.h"

namespace metronome::METRONOME_KERNELS {

constexpr int kStripVectors = kStripOutputs / kWidth;
constexpr int kOctet = 8;  // inputs that share a row of 4-bit integers
constexpr int kGroupOctets = kGroupInputs / kOctet;
constexpr int kLineWords = 16;  // of a cache line

// The lower halves as finite float16: their bits one place to the right are a float's, except for
// the exponent. Multiplying by a power of two is exact, for subnormal numbers, too.
METRONOME_INLINE Floats floats_of_halves(const Words& halves) {
  const Floats magnitude = (Floats)((halves & 0x7fffu) << 13) * 0x1p112f;
  return (Floats)((Words)magnitude | ((halves & 0x8000u) << 16));
}

// Integer i of 4 bits.
METRONOME_INLINE Floats nibbles(const Words& words, int i) {
#if defined(__AVX512F__)
  // Looks up the low 4 bits of each lane, so it needs neither a mask nor a conversion.
  const __m512 table = _mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  return (Floats)_mm512_maskz_permutexvar_ps(0xffff, (__m512i)(words >> (4 * i)), table);
#else
  return floats_of(i == 7 ? words >> 28 : (words >> (4 * i)) & 15u);
#endif
}

// Integer i of 8 bits.
METRONOME_INLINE Floats octets(const Words& words, int i) {
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
  // integer * scale + offset, rounded once.
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
      offset = scale * static_cast<float>(-format.bias);
    }
  }
};

// The integers of 8 inputs of a group, kVectors vectors of outputs from `lane` on.
template <int kFormat, int kVectors>
struct OctetQuants {
  static constexpr StripFormat format = kStripFormats[kFormat];
  Words first[kVectors];
  Words second[kVectors];

  METRONOME_INLINE OctetQuants load(const std::uint32_t* group, int octet, int lane) {
    OctetQuants quants;
    METRONOME_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::uint32_t* const column = group + lane + v * kWidth;
      if constexpr (format.low_rows == kOctet) {
        quants.first[v] = load_words(column + 2 * octet * kStripOutputs);
        quants.second[v] = load_words(column + (2 * octet + 1) * kStripOutputs);
      } else {
        quants.first[v] = load_words(column + octet * kStripOutputs);
      }
      if constexpr (format.high_rows > 0) {
        // Even inputs in the bytes of `first`, odd inputs in those of `second`.
        constexpr int kOctetsPerRow = kGroupInputs / kOctet / format.high_rows;
        constexpr std::uint32_t kMask = format.high_rows == 1 ? 0x10101010u : 0x30303030u;
        const Words high =
            load_words(column + (format.low_rows + octet / kOctetsPerRow) * kStripOutputs);
        const int place = 2 * format.high_rows * (octet % kOctetsPerRow);
        const Words low = quants.first[v];
        quants.first[v] = (low & 0x0f0f0f0fu) | (shifted_left(high, 4 - place) & kMask);
        quants.second[v] =
            ((low >> 4) & 0x0f0f0f0fu) | (shifted_left(high, 4 - place - format.high_rows) & kMask);
      }
    }
    return quants;
  }

  METRONOME_INLINE Floats get(const OctetQuants& quants, int input, int vector) {
    if constexpr (format.low_rows == kOctet) {
      return octets(input < 4 ? quants.first[vector] : quants.second[vector], input % 4);
    } else if constexpr (format.high_rows > 0) {
      return octets(input % 2 == 0 ? quants.first[vector] : quants.second[vector], input / 2);
    } else {
      return nibbles(quants.first[vector], input);
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
  constexpr int kPartOctets = kScaleInputs / kOctet;
  constexpr int kBlockGroups = format.block_inputs / kGroupInputs;
  constexpr int kAheadWords = kProductBlock / format.block_inputs * format.block_words();
  constexpr int kGroupLines = kAheadWords / (kProductBlock / kGroupInputs) / kLineWords;
  constexpr int kOctetLines = (kGroupLines + kGroupOctets - 1) / kGroupOctets;
  using Quants = OctetQuants<kFormat, kVectors>;
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
      for (int o = 0; o < kPartOctets; ++o) {
        const int octet = part * kPartOctets + o;
        prefetch_lines<kOctetLines>(words + octet * kOctetLines * kLineWords + kAheadWords);
        const Quants quants = Quants::load(words, octet, lane);
        METRONOME_UNROLL
        for (int i = 0; i < kOctet; ++i) {
          Floats weights[kVectors];
          METRONOME_UNROLL
          for (int v = 0; v < kVectors; ++v) {
            weights[v] = multiply_add(Quants::get(quants, i, v), scale[v], offset[v]);
          }
          use(group * kGroupInputs + octet * kOctet + i, weights);
        }
      }
    }
  }
}

}  // namespace metronome::METRONOME_KERNELS
