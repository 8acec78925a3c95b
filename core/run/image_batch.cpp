// SPDX-License-Identifier: Apache-2.0
#include "core/run/image_batch.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/base/error.h"

namespace metronome {
namespace {

// Places the tokens of one sequence, which are at consecutive positions.
void place_tokens(const VisionTower& tower, std::span<const PlacedImage> images,
                  std::int32_t first_token, std::int32_t num_tokens, ForwardBatch& batch) {
  const std::int32_t begin = batch.positions[static_cast<std::size_t>(first_token)];
  const std::int32_t end = begin + num_tokens;
  const std::int64_t per_token = tower.features_per_token() * tower.out_dim;
  for (const PlacedImage& image : images) {
    const std::int32_t from = std::max(begin, image.span.first_token);
    const std::int32_t to = std::min(end, image.span.end_token());
    if (from >= to) continue;
    METRONOME_CHECK(image.features != nullptr,
                    "an image is encoded before its tokens are computed");
    batch.image_tokens.push_back(
        {.first_token = first_token + from - begin,
         .num_tokens = to - from,
         .features = image.features + (from - image.span.first_token) * per_token});
  }
}

}  // namespace

void place_images(const VisionTower& tower, const ImagesOf& images_of, ForwardBatch& batch) {
  std::vector<ImageSpan> spans;
  for (std::int32_t s = 0; s < batch.num_sequences(); ++s) {
    const auto i = static_cast<std::size_t>(s);
    const std::span<const PlacedImage> images = images_of(batch.requests[i]);
    if (images.empty()) continue;
    if (batch.rope_positions.empty()) {
      for (const std::int32_t position : batch.positions) {
        batch.rope_positions.push_back({position, position, position});
      }
    }
    spans.clear();
    for (const PlacedImage& image : images) spans.push_back(image.span);
    const std::int32_t first = batch.query_start[i];
    const std::int32_t end = batch.query_start[i + 1];
    for (std::int32_t token = first; token < end; ++token) {
      const auto t = static_cast<std::size_t>(token);
      batch.rope_positions[t] = rope_position(spans, batch.positions[t]);
    }
    place_tokens(tower, images, first, end - first, batch);
  }
}

}  // namespace metronome
