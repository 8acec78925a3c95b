// How the weights of linear layers are stored.
#pragma once

#include <cstdint>
#include <string_view>

namespace metronome {

enum class WeightFormat : std::uint8_t {
  Plain,     // the type of the other weights, ModelConfig::bytes_per_weight each
  Fp8,       // e4m3, a scale for each tensor or output channel
  Fp8Block,  // e4m3, a scale for each block of 128 x 128
  Nvfp4,     // e2m1, an e4m3 scale for each 16
  Mxfp4,     // e2m1, an e8m0 scale for each 32
  Int4,      // a 16-bit scale for each group of weights; products are computed in 16 bits
};

// As written in files, in the order of the enumerators.
constexpr std::string_view kWeightFormatNames[] = {"plain", "fp8",   "fp8_block",
                                                   "nvfp4", "mxfp4", "int4"};

std::string_view to_string(WeightFormat format);

// Bytes of a weight and its share of the scales; `plain_bytes` those of a plain one,
// `int4_group_size` the weights of a group of Int4 (0: many).
double bytes_of(WeightFormat format, std::int64_t plain_bytes, std::int64_t int4_group_size);

}  // namespace metronome
