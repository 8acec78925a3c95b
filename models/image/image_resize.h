// SPDX-License-Identifier: Apache-2.0
// Bicubic resizing with antialiasing.
#pragma once

#include <cstdint>

#include "core/model/image_pixels.h"

namespace metronome {

// The picture in another size: what torchvision's resize gives for 8-bit pixels with bicubic
// interpolation and antialias=True, to the bit where PyTorch sums in integers. Columns first, then
// rows; each sum has weights of 16 bits. Filter: Keys' cubic with a = -0.5, as wide as the scale.
// Source: PyTorch's UpSampleKernel.cpp. Requires sizes of at least 1.
ImagePixels resize_image(const ImagePixels& image, std::int64_t height, std::int64_t width);

}  // namespace metronome
