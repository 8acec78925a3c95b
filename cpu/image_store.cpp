// SPDX-License-Identifier: Apache-2.0
#include "cpu/image_store.h"

#include <utility>

namespace metronome {

void ImageStore::encode(const PromptImage& image, const VisionEncoder::PollFn& poll) {
  std::vector<float> features;
  encoder_.encode(processor_.patches(image), image.grid, features, poll);
  features_[image.content] = std::move(features);
  ++num_encoded_;
}

void ImageStore::drop(std::span<const std::uint64_t> contents) {
  for (const std::uint64_t content : contents) features_.erase(content);
}

std::span<const PlacedImage> ImageStore::place(std::span<const PromptImage> images) {
  placed_.clear();
  for (const PromptImage& image : images) {
    const auto found = features_.find(image.content);
    const VisionTower& tower = processor_.tower;
    placed_.push_back(
        {.span = {image.first_token, static_cast<std::int32_t>(image.grid.n_token_rows(tower)),
                  static_cast<std::int32_t>(image.grid.n_token_columns(tower))},
         .features = found == features_.end() ? nullptr : found->second.data()});
  }
  return placed_;
}

}  // namespace metronome
