// SPDX-License-Identifier: Apache-2.0
// How many patches and tokens an image of so many pixels becomes in a model with a vision tower.
#pragma once

#include <cstdint>
#include <string>

#include "core/model/layer_parts.h"

namespace metronome {

// The most and fewest pixels of a resized image where nothing else is said: Qwen3-VL's
// preprocessor_config.json (size.shortest_edge, size.longest_edge).
constexpr std::int64_t kDefaultMinPixels = 65536;
constexpr std::int64_t kDefaultMaxPixels = 16777216;
// Images that are longer than so many times their width are refused, as Qwen's processor does.
constexpr std::int64_t kMaxAspectRatio = 200;
// Of a side, in pixels. The counts of an image then fit in 64 bits and in a double.
constexpr std::int64_t kMaxImageSide = std::int64_t{1} << 20;

struct ImageGrid {
  std::int64_t height = 0;  // pixels after resizing; multiples of patch_size * merge_size
  std::int64_t width = 0;
  std::int64_t n_patch_rows = 0;
  std::int64_t n_patch_columns = 0;
  std::int64_t num_tokens = 0;  // embeddings: patches / merge_size^2

  std::int64_t num_patches() const { return n_patch_rows * n_patch_columns; }
  // Of the merged grid: rows and columns of embeddings.
  std::int64_t n_token_rows(const VisionTower& tower) const {
    return n_patch_rows / tower.merge_size;
  }
  std::int64_t n_token_columns(const VisionTower& tower) const {
    return n_patch_columns / tower.merge_size;
  }

  bool operator==(const ImageGrid&) const = default;
};

// The grid of so many rows and columns of embeddings. Requires a tower that is not empty, and at
// least one of each.
ImageGrid grid_of_tokens(const VisionTower& tower, std::int64_t num_rows, std::int64_t num_columns);

// Why an image of these pixels cannot be taken; empty if it can.
std::string image_size_error(std::int64_t height, std::int64_t width);

// Rounds both sides to multiples of patch_size * merge_size, and scales them where the result has
// fewer than `min_pixels` or more than `max_pixels`. Formula: smart_resize of Qwen2-VL's image
// processor in transformers. Requires a tower that is not empty, no image_size_error() and
// 1 <= min_pixels <= max_pixels. An image has one frame, which is repeated temporal_patch_size
// times.
ImageGrid image_grid(const VisionTower& tower, std::int64_t height, std::int64_t width,
                     std::int64_t min_pixels = kDefaultMinPixels,
                     std::int64_t max_pixels = kDefaultMaxPixels);

}  // namespace metronome
