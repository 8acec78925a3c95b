// SPDX-License-Identifier: Apache-2.0
// The input of a vision tower.
#pragma once

#include <vector>

#include "core/model/image_grid.h"
#include "core/model/image_pixels.h"
#include "core/model/layer_parts.h"

namespace metronome {

// Colours of 0 to 255 become (x / 255 - mean) / std.
struct PixelRange {
  double mean[3] = {0.5, 0.5, 0.5};
  double std[3] = {0.5, 0.5, 0.5};

  bool operator==(const PixelRange&) const = default;
};

// The patches of a resized image, [num_patches, patch_inputs]. Patches are in groups of merge_size
// x merge_size, so that those of one token are neighbours. A patch has channels, then frames (the
// same one temporal_patch_size times), rows and columns. Formula: Qwen2-VL's image processor in
// transformers. Requires pixels of the grid's size.
std::vector<float> image_patches(const VisionTower& tower, const ImagePixels& pixels,
                                 const ImageGrid& grid, const PixelRange& range = {});

}  // namespace metronome
