// SPDX-License-Identifier: Apache-2.0
// The orientation that a camera notes in a picture's EXIF data.
#pragma once

#include <string_view>

#include "core/model/image_pixels.h"

namespace metronome {

// 1 to 8, of EXIF data that begins with its TIFF header. 1, upright, where the data has none or is
// broken. EXIF 2.32, sections 4.5 and 4.6.4.
int exif_orientation(std::string_view tiff);

// The picture as it is to be seen, by the orientation of its file: as Pillow's exif_transpose(),
// which vLLM applies (vllm/multimodal/image.py, 0.33).
ImagePixels upright(ImagePixels pixels, int orientation);

}  // namespace metronome
