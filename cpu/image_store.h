// SPDX-License-Identifier: Apache-2.0
// The images that a run has encoded.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/engine/request_input.h"
#include "core/run/image_batch.h"
#include "cpu/vision_encoder.h"
#include "models/image/image_processor.h"

namespace metronome {

// Features by content: requests with equal images share them. The plan of a step says what is
// encoded and when it is dropped (core/engine/encoder_cache.h).
class ImageStore {
 public:
  // The encoder outlives the store.
  ImageStore(VisionEncoder& encoder, ImageProcessor processor)
      : encoder_(encoder), processor_(std::move(processor)) {}

  // Encodes an image, and keeps the features until they are dropped. An exception from `poll` ends
  // it, and then nothing is kept.
  void encode(const PromptImage& image, const VisionEncoder::PollFn& poll);
  // Contents that are not there are passed over.
  void drop(std::span<const std::uint64_t> contents);

  // A prompt's images with the features that are there. Valid until the next call of any function.
  std::span<const PlacedImage> place(std::span<const PromptImage> images);

  std::size_t num_images() const { return features_.size(); }
  std::int64_t num_encoded() const { return num_encoded_; }  // so far

 private:
  VisionEncoder& encoder_;
  ImageProcessor processor_;
  std::map<std::uint64_t, std::vector<float>> features_;  // by content
  std::vector<PlacedImage> placed_;
  std::int64_t num_encoded_ = 0;
};

}  // namespace metronome
