// SPDX-License-Identifier: Apache-2.0
#include "models/image/image_patches.h"

#include <array>
#include <cstddef>
#include <cstdint>

#include "core/base/error.h"

namespace metronome {
namespace {

// By colour: what each of the 256 values becomes, rounded as float tensors are.
using ColourTable = std::array<std::array<float, 256>, 3>;

ColourTable colour_table(const PixelRange& range) {
  ColourTable table;
  for (std::size_t c = 0; c < 3; ++c) {
    const auto mean = static_cast<float>(range.mean[c] * 255);
    const auto std = static_cast<float>(range.std[c] * 255);
    for (std::size_t i = 0; i < 256; ++i) table[c][i] = (static_cast<float>(i) - mean) / std;
  }
  return table;
}

}  // namespace

std::vector<float> image_patches(const VisionTower& tower, const ImagePixels& pixels,
                                 const ImageGrid& grid, const PixelRange& range) {
  METRONOME_CHECK(
      pixels.height == grid.height && pixels.width == grid.width && tower.in_channels == 3,
      "pixels of the grid's size");
  const ColourTable colours = colour_table(range);
  const std::int64_t merge = tower.merge_size;
  const std::int64_t size = tower.patch_size;
  std::vector<float> patches;
  patches.reserve(static_cast<std::size_t>(grid.num_patches() * tower.patch_inputs()));
  const auto add_patch = [&](std::int64_t patch_row, std::int64_t patch_column) {
    for (std::size_t c = 0; c < 3; ++c) {
      for (std::int64_t frame = 0; frame < tower.temporal_patch_size; ++frame) {
        for (std::int64_t row = patch_row * size; row < (patch_row + 1) * size; ++row) {
          const std::uint8_t* const first =
              pixels.rgb.data() + (row * pixels.width + patch_column * size) * 3;
          for (std::int64_t i = 0; i < size; ++i) {
            patches.push_back(colours[c][first[static_cast<std::size_t>(i) * 3 + c]]);
          }
        }
      }
    }
  };
  for (std::int64_t group_row = 0; group_row < grid.n_patch_rows; group_row += merge) {
    for (std::int64_t group_column = 0; group_column < grid.n_patch_columns;
         group_column += merge) {
      for (std::int64_t i = 0; i < merge * merge; ++i) {
        add_patch(group_row + i / merge, group_column + i % merge);
      }
    }
  }
  return patches;
}

}  // namespace metronome
