// SPDX-License-Identifier: Apache-2.0
#include <cstdint>

#include "core/model/image_grid.h"
#include "tests/catch.h"

namespace TEST_FILE {
using namespace metronome;

namespace {

VisionTower qwen_tower() {
  VisionTower tower;
  tower.depth = 2;
  tower.patch_size = 16;
  tower.temporal_patch_size = 2;
  tower.merge_size = 2;
  return tower;
}

struct Resized {
  std::int64_t height, width, min_pixels, max_pixels, new_height, new_width;
};

// Made by smart_resize of transformers 5.23 with factor 32.
constexpr Resized kResized[] = {
    {480, 640, 65536, 16777216, 480, 640},
    {1080, 1920, 65536, 16777216, 1088, 1920},
    {1, 1, 65536, 16777216, 256, 256},
    {16, 16, 65536, 16777216, 256, 256},
    {48, 80, 1024, 16777216, 64, 64},
    {8192, 8192, 65536, 16777216, 4096, 4096},
    {200, 40000, 65536, 16777216, 192, 40000},
    {100, 20000, 65536, 16777216, 96, 20000},
    {1365, 1536, 65536, 16777216, 1376, 1536},
    {333, 777, 65536, 262144, 320, 768},
    {5, 1000, 65536, 16777216, 32, 3648},
    {112, 144, 1024, 1048576, 128, 128},
    {100, 100, 1, 4096, 64, 64},
};

}  // namespace

TEST_CASE("images become the grids that Qwen's processor makes", "[model][images]") {
  const VisionTower tower = qwen_tower();
  for (const Resized& size : kResized) {
    CAPTURE(size.height, size.width);
    const ImageGrid grid =
        image_grid(tower, size.height, size.width, size.min_pixels, size.max_pixels);
    CHECK(grid.height == size.new_height);
    CHECK(grid.width == size.new_width);
    CHECK(grid.n_patch_rows == size.new_height / 16);
    CHECK(grid.n_patch_columns == size.new_width / 16);
    CHECK(grid.num_tokens == (size.new_height / 32) * (size.new_width / 32));
    CHECK(grid.n_token_rows(tower) * grid.n_token_columns(tower) == grid.num_tokens);
  }
}

TEST_CASE("20,000 random images become the same grids", "[model][images]") {
  std::uint64_t state = 12345;
  const auto next = [&state] {
    state = state * 6364136223846793005U + 1442695040888963407U;
    return static_cast<std::int64_t>(state >> 33);
  };
  std::uint64_t digest = 14695981039346656037U;
  const auto mix = [&digest](std::int64_t value) {
    digest = (digest ^ static_cast<std::uint64_t>(value)) * 1099511628211U;
  };
  int num_images = 0;
  while (num_images < 20000) {
    const std::int64_t height = 1 + next() % 3000;
    const std::int64_t width = 1 + next() % 3000;
    if (!image_size_error(height, width).empty()) continue;
    const std::int64_t min_pixels = 1024 * (1 + next() % 100);
    const std::int64_t max_pixels = min_pixels + 1024 * (next() % 4000);
    const ImageGrid grid = image_grid(qwen_tower(), height, width, min_pixels, max_pixels);
    mix(grid.height);
    mix(grid.width);
    ++num_images;
  }
  // The digest of what transformers 5.23 makes of the same images.
  CHECK(digest == 9239303440265597477U);
}

TEST_CASE("images that the processor refuses have an error", "[model][images]") {
  CHECK(image_size_error(480, 640).empty());
  CHECK(image_size_error(10, 2000).empty());
  CHECK(image_size_error(10, 2001) ==
        "an image of 2001 x 10 pixels; one side may be at most 200 times the other");
  CHECK(image_size_error(0, 640) == "an image of 640 x 0 pixels; a side has 1 to 1048576");
}

}  // namespace TEST_FILE
