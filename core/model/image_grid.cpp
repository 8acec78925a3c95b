#include "core/model/image_grid.h"

#include <algorithm>
#include <cmath>

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

std::string image_size_error(std::int64_t height, std::int64_t width) {
  const auto size = [&] { return std::to_string(width) + " x " + std::to_string(height); };
  if (height < 1 || width < 1 || height > kMaxImageSide || width > kMaxImageSide) {
    return "an image of " + size() + " pixels; a side has 1 to " + std::to_string(kMaxImageSide);
  }
  if (std::max(height, width) > kMaxAspectRatio * std::min(height, width)) {
    return "an image of " + size() + " pixels; one side may be at most " +
           std::to_string(kMaxAspectRatio) + " times the other";
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
  ImageGrid grid;
  grid.height = round_half_even(height, factor) * factor;
  grid.width = round_half_even(width, factor) * factor;
  if (grid.height * grid.width > max_pixels) {
    const double shrink = std::sqrt(h * w / static_cast<double>(max_pixels));
    const auto fit = [&](double side) {
      const auto num_units = static_cast<std::int64_t>(std::floor(side / shrink / unit));
      return std::max<std::int64_t>(num_units, 1) * factor;
    };
    grid.height = fit(h);
    grid.width = fit(w);
  } else if (grid.height * grid.width < min_pixels) {
    const double grow = std::sqrt(static_cast<double>(min_pixels) / (h * w));
    const auto fit = [&](double side) {
      return static_cast<std::int64_t>(std::ceil(side * grow / unit)) * factor;
    };
    grid.height = fit(h);
    grid.width = fit(w);
  }
  // Only a range below one unit leaves a side without patches.
  grid.height = std::max(grid.height, factor);
  grid.width = std::max(grid.width, factor);
  grid.n_patch_rows = grid.height / tower.patch_size;
  grid.n_patch_columns = grid.width / tower.patch_size;
  grid.num_tokens = grid.num_patches() / (tower.merge_size * tower.merge_size);
  return grid;
}

}  // namespace metronome
