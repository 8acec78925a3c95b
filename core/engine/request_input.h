// SPDX-License-Identifier: Apache-2.0
// The inputs that a computing executor needs for a request in addition to its lengths.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/sampling.h"
#include "core/model/image_grid.h"
#include "core/model/image_pixels.h"

namespace metronome {

// An image of a prompt.
struct PromptImage {
  std::int32_t first_token = 0;  // number of the first prompt token that stands for it
  ImageGrid grid;
  std::uint64_t content = 0;  // equal for equal pixels
  // grid.height x grid.width; null: those of the file, resized.
  std::shared_ptr<const ImagePixels> pixels;
  // The picture before it was resized; null and no pixels: drawn from the content.
  std::shared_ptr<const ImageFile> file;
};

class RequestInput {
 public:
  virtual ~RequestInput() = default;
  // Writes the prompt's ids; their number is the request's prompt tokens.
  virtual void prompt(RequestId request, std::vector<TokenId>& out) const = 0;
  virtual SamplingParams sampling(RequestId request) const = 0;
  // The images of its prompt, in order. Valid while the request is computed.
  virtual std::span<const PromptImage> images(RequestId) const { return {}; }
};

}  // namespace metronome
