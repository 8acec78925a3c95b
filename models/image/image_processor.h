// SPDX-License-Identifier: Apache-2.0
// From a picture to what a request has of it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/engine/request_input.h"
#include "core/model/image_grid.h"
#include "models/image/image_patches.h"

namespace metronome {

// Qwen's image processor. The defaults are those of Qwen3-VL's preprocessor_config.json.
struct ImageProcessor {
  VisionTower tower;
  std::int64_t min_pixels = kDefaultMinPixels;
  std::int64_t max_pixels = kDefaultMaxPixels;
  PixelRange range;

  // The resized picture with its grid and content; first_token stays 0. Throws ConfigError with
  // `name` for a size that the processor does not take.
  PromptImage prepare(const ImagePixels& pixels, const std::string& name) const;
  // Reads pixels from the image's file, or draws them, if they are not given. Throws ConfigError
  // for a broken file.
  std::vector<float> patches(const PromptImage& image) const;
};

// A processor for the tower, by the preprocessor_config.json of the model folder if there is one.
// Throws ConfigError for a malformed file.
ImageProcessor read_image_processor(const std::string& folder, const VisionTower& tower);
// A processor by the text of the file; `path` is shown in messages.
ImageProcessor parse_image_processor(std::string_view json, const std::string& path,
                                     const VisionTower& tower);

// Pixels from a seed, for images of which only the size is known.
ImagePixels drawn_pixels(std::uint64_t seed, std::int64_t height, std::int64_t width);

// Repeats each image token of a prompt as often as its image has tokens, and sets first_token of
// the images, in order. Throws ConfigError with `name` if there are more or fewer image tokens
// than images.
void place_prompt_images(std::int32_t image_token, const std::string& name,
                         std::vector<PromptImage>& images, std::vector<TokenId>& tokens);

}  // namespace metronome
