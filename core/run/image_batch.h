// SPDX-License-Identifier: Apache-2.0
// The images of requests in a forward pass.
#pragma once

#include <functional>
#include <span>

#include "core/model/layer_parts.h"
#include "core/model/mrope.h"
#include "core/run/forward_batch.h"

namespace metronome {

// An image of a sequence. `features` is of the whole image, as ImageTokens has it; null: it is not
// in memory, and no token of it may be in a batch.
struct PlacedImage {
  ImageSpan span;
  const float* features = nullptr;
};

// The images of a request, in order. Valid until the next call.
using ImagesOf = std::function<std::span<const PlacedImage>(RequestId)>;

// Fills batch.rope_positions and batch.image_tokens, if a request of the batch has images. Requires
// a batch without them, and features of every image whose tokens are in the batch.
void place_images(const VisionTower& tower, const ImagesOf& images_of, ForwardBatch& batch);

}  // namespace metronome
