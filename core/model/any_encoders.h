// SPDX-License-Identifier: Apache-2.0
// Encoders of images and sounds by the keys of their section, whatever their family.
#pragma once

#include <cstdint>

#include "core/model/json_section.h"

namespace metronome {

// Wider ones count as so wide: no product of a count overflows.
constexpr std::int64_t kMaxEncoderWidth = std::int64_t{1} << 16;

struct EncoderSize {
  std::int64_t params = 0;  // without biases and norms; 0: the section describes no encoder
  std::int64_t width = 0;   // of the vectors that it returns
};

// Transformers of patches and of sounds, conformers, SAM, and encoders that a name alone describes.
EncoderSize encoder_size(const JsonSection& section);
// Convolutions that write an image as codes of a table, with the way back where the section has
// it; 0: the section describes none.
std::int64_t codebook_params(const JsonSection& section);

}  // namespace metronome
