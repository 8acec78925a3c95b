// SPDX-License-Identifier: Apache-2.0
// The images of a chat request.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json.h"
#include "models/image/image_processor.h"
#include "models/text/tokenizer.h"

namespace metronome {

constexpr std::size_t kMaxImages = 32;  // of a request

// Reads the parts of type image_url, in order.
class ChatImages {
 public:
  // `processor` is null for a model that takes text only, and outlives this. Images have at most
  // `max_tokens` together.
  ChatImages(const ImageProcessor* processor, std::size_t max_tokens)
      : processor_(processor), tokens_left_(max_tokens) {}

  bool are_taken() const { return processor_ != nullptr; }
  // Why a part of another type is refused, and what is allowed.
  std::string refusal(const std::string& type) const;
  // Takes {"type": "image_url", "image_url": {"url": "data:image/png;base64,..."}}. `name` is of
  // the part, in messages. Requires are_taken(). Throws ApiError for another scheme, data that is
  // not base64, a file that is no image, and too many images.
  void take(const Json& part, const std::string& name);
  // Puts them at the image tokens of the prompt, each of which becomes as many as its image has.
  // Throws ApiError if there are other image tokens. `tokenizer` made the prompt.
  std::vector<PromptImage> place(std::vector<TokenId>& prompt, const Tokenizer& tokenizer);

 private:
  const ImageProcessor* processor_;
  std::size_t tokens_left_;
  std::vector<PromptImage> images_;
};

// The refusal of a part in a chat without a template. `has_images`: the model takes images.
std::string plain_part_refusal(const std::string& type, bool has_images);

// The bytes of a data: URL with base64. Throws ApiError for another URL; `name` is the field.
std::string decode_data_url(std::string_view url, const std::string& name);

}  // namespace metronome
