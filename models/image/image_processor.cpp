// SPDX-License-Identifier: Apache-2.0
#include "models/image/image_processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fmt/core.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "core/base/json_place.h"
#include "core/base/names.h"
#include "core/base/rng.h"
#include "core/model/json_section.h"
#include "models/image/image_file.h"
#include "models/image/image_resize.h"

namespace metronome {
namespace {

constexpr const char* kFile = "preprocessor_config.json";

void read_colours(const JsonSection& root, const char* key, double (&colours)[3]) {
  const Json* const values = root.find(key);
  if (values == nullptr) return;
  const auto is_number = [](const Json& value) { return value.is_number(); };
  bool is_list = values->is_array() && values->size() == 3;
  for (std::size_t i = 0; is_list && i < 3; ++i) is_list = is_number((*values)[i]);
  if (!is_list) {
    root.fail(key, "must be three numbers, got " + JsonSection::excerpt(*values) +
                       "; allowed: one for red, green and blue each");
  }
  for (std::size_t i = 0; i < 3; ++i) colours[i] = (*values)[i].get<double>();
}

void require_equal(const JsonSection& root, const char* key, std::int64_t of_model) {
  const std::int64_t value = root.integer_or(key, of_model);
  if (value == of_model) return;
  root.fail(key, fmt::format("is {}; allowed: {}, as the vision_config of config.json says", value,
                             of_model));
}

void require_true(const JsonSection& root, const char* key) {
  if (!root.boolean_or(key, true)) root.fail(key, "false is not supported; allowed: true");
}

}  // namespace

PromptImage ImageProcessor::prepare(const ImagePixels& pixels, const std::string& name) const {
  if (const std::string error = image_size_error(pixels.height, pixels.width); !error.empty()) {
    throw ConfigError(printable(name + ": " + error + "; allowed: another size"));
  }
  PromptImage image;
  image.grid = image_grid(tower, pixels.height, pixels.width, min_pixels, max_pixels);
  image.pixels = std::make_shared<const ImagePixels>(
      resize_image(pixels, image.grid.height, image.grid.width));
  image.content = image_content(*image.pixels);
  return image;
}

std::vector<float> ImageProcessor::patches(const PromptImage& image) const {
  const ImageGrid& grid = image.grid;
  if (image.pixels) return image_patches(tower, *image.pixels, grid, range);
  const ImagePixels pixels =
      image.file
          ? resize_image(read_image(image.file->bytes, image.file->name), grid.height, grid.width)
          : drawn_pixels(image.content, grid.height, grid.width);
  return image_patches(tower, pixels, grid, range);
}

ImageProcessor read_image_processor(const std::string& folder, const VisionTower& tower) {
  const std::string path = (std::filesystem::path(folder) / kFile).string();
  ImageProcessor processor;
  processor.tower = tower;
  if (folder.empty() || !path_exists(path)) return processor;
  return parse_image_processor(read_file(path, "a readable file"), path, tower);
}

ImageProcessor parse_image_processor(std::string_view json, const std::string& path,
                                     const VisionTower& tower) {
  const auto refuse = [&](const char* what) {
    throw ConfigError(printable(path + ": " + what + "; allowed: the " + kFile + " of a model"));
  };
  Json document;
  try {
    document = Json::parse(json, {.keys_once = true});
  } catch (const JsonError& error) {
    refuse_key_twice(error, path);
    refuse("is not JSON");
  }
  if (!document.is_object()) refuse("must be an object");
  const JsonSection root(document, path, "");
  ImageProcessor processor;
  processor.tower = tower;
  if (const std::optional<JsonSection> size = root.section("size")) {
    processor.min_pixels = size->integer_or("shortest_edge", processor.min_pixels);
    processor.max_pixels = size->integer_or("longest_edge", processor.max_pixels);
  }
  processor.min_pixels = root.integer_or("min_pixels", processor.min_pixels);
  processor.max_pixels = root.integer_or("max_pixels", processor.max_pixels);
  if (processor.min_pixels < 1 || processor.min_pixels > processor.max_pixels) {
    root.fail(
        "size",
        fmt::format(
            "has {} to {} pixels; allowed: a shortest_edge of at least 1, and at most longest_edge",
            processor.min_pixels, processor.max_pixels));
  }
  read_colours(root, "image_mean", processor.range.mean);
  read_colours(root, "image_std", processor.range.std);
  for (const double std : processor.range.std) {
    if (!(std > 0)) root.fail("image_std", "has a number of 0 or less; allowed: above 0");
  }
  require_equal(root, "patch_size", tower.patch_size);
  require_equal(root, "temporal_patch_size", tower.temporal_patch_size);
  require_equal(root, "merge_size", tower.merge_size);
  for (const char* key : {"do_resize", "do_rescale", "do_normalize"}) require_true(root, key);
  constexpr std::int64_t kBicubic = 3;  // of Pillow's filters
  if (const std::int64_t filter = root.integer_or("resample", kBicubic); filter != kBicubic) {
    root.fail("resample", fmt::format("is {}; allowed: 3 (bicubic)", filter));
  }
  constexpr double kRescaling = 1.0 / 255;
  if (std::abs(root.number_or("rescale_factor", kRescaling) - kRescaling) > 1e-9) {
    root.fail("rescale_factor", "is not supported; allowed: 1 / 255");
  }
  return processor;
}

ImagePixels drawn_pixels(std::uint64_t seed, std::int64_t height, std::int64_t width) {
  ImagePixels pixels{.height = height, .width = width, .rgb = {}};
  pixels.rgb.resize(static_cast<std::size_t>(height * width * 3));
  Rng rng(seed, "pixels");
  for (std::size_t i = 0; i < pixels.rgb.size(); i += sizeof(std::uint64_t)) {
    const std::uint64_t drawn = rng();
    std::memcpy(pixels.rgb.data() + i, &drawn, std::min(sizeof drawn, pixels.rgb.size() - i));
  }
  return pixels;
}

void place_prompt_images(std::int32_t image_token, const std::string& name,
                         std::vector<PromptImage>& images, std::vector<TokenId>& tokens) {
  std::vector<TokenId> placed;
  std::size_t num_images = 0;
  for (const TokenId token : tokens) {
    if (value(token) != image_token) {
      placed.push_back(token);
      continue;
    }
    if (num_images++ >= images.size()) continue;
    PromptImage& image = images[num_images - 1];
    image.first_token = static_cast<std::int32_t>(placed.size());
    placed.insert(placed.end(), static_cast<std::size_t>(image.grid.num_tokens), token);
  }
  if (num_images != images.size()) {
    throw ConfigError(
        printable(fmt::format("{}: has {} image tokens for {} images; allowed: one for each image",
                              name, num_images, images.size())));
  }
  tokens = std::move(placed);
}

}  // namespace metronome
