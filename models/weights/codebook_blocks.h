// SPDX-License-Identifier: Apache-2.0
// The block formats of GGML whose integers are indices into tables of numbers; a part of
// quantised_blocks.h.
#pragma once

#include <cstddef>

namespace metronome {

// Each writes the weights of one block, 32 (IQ4_NL, MXFP4), 64 (NVFP4) or 256.
void dequantise_iq1_s(const std::byte* block, float* out);
void dequantise_iq1_m(const std::byte* block, float* out);
void dequantise_iq2_xxs(const std::byte* block, float* out);
void dequantise_iq2_xs(const std::byte* block, float* out);
void dequantise_iq2_s(const std::byte* block, float* out);
void dequantise_iq3_xxs(const std::byte* block, float* out);
void dequantise_iq3_s(const std::byte* block, float* out);
void dequantise_iq4_nl(const std::byte* block, float* out);
void dequantise_iq4_xs(const std::byte* block, float* out);
void dequantise_mxfp4(const std::byte* block, float* out);
void dequantise_nvfp4(const std::byte* block, float* out);

}  // namespace metronome
