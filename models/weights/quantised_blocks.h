// SPDX-License-Identifier: Apache-2.0
// The quantised block formats of GGML: weights in blocks of 32 to 256 with common scales.
// Formats: github.com/ggml-org/ggml, src/ggml-common.h and the dequantize_row functions of
// src/ggml-quants.c. The `gguf` package (gguf/quants.py) computes the same floats, but for Q1_0 and
// Q2_0, which it does not read.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "models/weights/tensor_type.h"

namespace metronome {

struct BlockFormat {
  TensorType type;
  std::string_view name;  // as GGML writes it: "Q4_K"
  std::int64_t num_weights;
  std::int64_t num_bytes;
};

// Of the types Q4_0 to NVFP4; nullptr for any other.
const BlockFormat* block_format(TensorType type);

// Every block format, in the order of TensorType.
constexpr std::int64_t kNumBlockFormats = 25;
const BlockFormat& block_format_at(std::int64_t index);

// "F32", "F16", "BF16", or the name of the block format; "other" for Other.
std::string_view to_string(TensorType type);

// The bytes of `num_weights` stored weights, a multiple of the block. Not for Other.
std::int64_t stored_bytes(TensorType type, std::int64_t num_weights);

// Writes the weights of `num_blocks` blocks to out, in order. With d, m the scales of the block and
// q, s, t integers, a weight is d * q (Q4_0, Q5_0, Q8_0, IQ4_NL, MXFP4, NVFP4, and q of few bits in
// Q1_0, Q2_0, TQ1_0 and TQ2_0), d * q + m (Q4_1, Q5_1), (d * s) * q (Q3_K, Q6_K, IQ4_XS), (d * s) *
// q
// - (m * t) (Q2_K, Q4_K, Q5_K), or the like with q of a codebook (IQ1 to IQ3), in float32. Every
// product of finite scales up to Q6_K is exact, so only the sum rounds. A scale that is infinite or
// NaN gives what float arithmetic gives: infinite or NaN weights. Requires a quantised type; blocks
// may have any alignment.
void dequantise(TensorType type, const std::byte* blocks, std::int64_t num_blocks, float* out);

}  // namespace metronome
