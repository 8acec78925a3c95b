// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_grid.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"

namespace metronome {
namespace {

// a / b to the nearest integer, and halves to the even one, as Python's round.
std::int64_t round_half_even(std::int64_t a, std::int64_t b) {
  const std::int64_t floor = a / b;
  const std::int64_t twice_rest = 2 * (a % b);
  const bool is_up = twice_rest > b || (twice_rest == b && floor % 2 == 1);
  return floor + (is_up ? 1 : 0);
}

}  // namespace

ImageGrid grid_of_tokens(const VisionTower& tower, std::int64_t num_rows,
                         std::int64_t num_columns) {
  METRONOME_CHECK(!tower.is_empty(), "the model takes images");
  METRONOME_CHECK(num_rows >= 1 && num_columns >= 1, "an image has an embedding");
  ImageGrid grid;
  grid.n_patch_rows = num_rows * tower.merge_size;
  grid.n_patch_columns = num_columns * tower.merge_size;
  grid.height = grid.n_patch_rows * tower.patch_size;
  grid.width = grid.n_patch_columns * tower.patch_size;
  grid.num_tokens = num_rows * num_columns;
  return grid;
}

std::string image_size_error(std::int64_t height, std::int64_t width) {
  const auto size = [&] { return fmt::format("{} x {}", width, height); };
  if (height < 1 || width < 1 || height > kMaxImageSide || width > kMaxImageSide) {
    return fmt::format("an image of {} pixels; a side has 1 to {}", size(), kMaxImageSide);
  }
  if (std::max(height, width) > kMaxAspectRatio * std::min(height, width)) {
    return fmt::format("an image of {} pixels; one side may be at most {} times the other", size(),
                       kMaxAspectRatio);
  }
  return {};
}

ImageGrid image_grid(const VisionTower& tower, std::int64_t height, std::int64_t width,
                     std::int64_t min_pixels, std::int64_t max_pixels) {
  METRONOME_CHECK(!tower.is_empty(), "the model takes images");
  METRONOME_CHECK(image_size_error(height, width).empty(), "the image's size was checked before");
  METRONOME_CHECK(min_pixels >= 1 && min_pixels <= max_pixels,
                  "the pixel range was checked before");
  const std::int64_t factor = tower.patch_size * tower.merge_size;
  const auto unit = static_cast<double>(factor);
  const auto h = static_cast<double>(height);
  const auto w = static_cast<double>(width);
  // Units of a side: rows and columns of embeddings.
  std::int64_t num_rows = round_half_even(height, factor);
  std::int64_t num_columns = round_half_even(width, factor);
  const std::int64_t num_pixels = num_rows * num_columns * factor * factor;
  if (num_pixels > max_pixels) {
    const double shrink = std::sqrt(h * w / static_cast<double>(max_pixels));
    num_rows = static_cast<std::int64_t>(std::floor(h / shrink / unit));
    num_columns = static_cast<std::int64_t>(std::floor(w / shrink / unit));
  } else if (num_pixels < min_pixels) {
    const double grow = std::sqrt(static_cast<double>(min_pixels) / (h * w));
    num_rows = static_cast<std::int64_t>(std::ceil(h * grow / unit));
    num_columns = static_cast<std::int64_t>(std::ceil(w * grow / unit));
  }
  // A long image, or a range below one unit, would leave a side without patches.
  return grid_of_tokens(tower, std::max<std::int64_t>(num_rows, 1),
                        std::max<std::int64_t>(num_columns, 1));
}

}  // namespace metronome
