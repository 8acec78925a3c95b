// SPDX-License-Identifier: Apache-2.0
#include "serve/server/chat_images.h"

#include <fmt/core.h>
#include <memory>
#include <optional>
#include <utility>

#include "core/base/base64.h"
#include "core/base/clip.h"
#include "core/base/error.h"
#include "models/image/image_file.h"
#include "serve/server/api_fields.h"
#include "serve/server/api_request.h"

namespace metronome {

std::string decode_data_url(std::string_view url, const std::string& name) {
  constexpr const char* kAllowed = "; allowed: data:image/png;base64,... or image/jpeg";
  const auto fail = [&](const std::string& what) {
    throw ApiError(400, name + ": " + what + kAllowed, name);
  };
  if (!url.starts_with("data:")) {
    const std::string scheme(url.substr(0, std::min(url.find(':'), std::size_t{16})));
    fail(url.starts_with("http:") || url.starts_with("https:") ? scheme + " URLs are not fetched"
                                                               : "is not a data: URL");
  }
  const std::optional<std::string_view> text = base64_of_url(url);
  if (!text) fail("a data: URL without base64 is not supported");
  std::optional<std::string> bytes = decode_base64(*text);
  if (!bytes) fail("its data is not base64");
  return std::move(*bytes);
}

namespace {

bool is_image(const std::string& type) { return type == "image_url"; }

}  // namespace

std::string plain_part_refusal(const std::string& type, bool has_images) {
  std::string reason;
  if (is_image(type)) {
    reason = has_images
                 ? ": the model has no chat template here, which writes the place of an image"
                 : ": the model has no vision tower";
  }
  const bool is_mendable = is_image(type) && has_images;
  return "parts of type " + clipped(type) + " are not supported" + reason + "; allowed: text" +
         (is_mendable ? ", or a model folder with a tokenizer.json and a chat template, or "
                        "--tokenizer and --chat-template"
                      : "");
}

std::string ChatImages::refusal(const std::string& type) const {
  if (!are_taken()) return plain_part_refusal(type, false);
  return "parts of type " + clipped(type) + " are not supported; allowed: text, image_url";
}

void ChatImages::take(const Json& part, const std::string& name) {
  METRONOME_CHECK(are_taken(), "the model takes images");
  const ApiFields part_fields(part, name + ".");
  const std::optional<ApiFields> image_url = part_fields.fields("image_url");
  const std::string place = name + ".image_url.url";
  if (!image_url) part_fields.fail("image_url", "is missing; allowed: {\"url\": ...}");
  const std::optional<std::string> url = image_url->text("url");
  if (!url) image_url->fail("url", "is missing; allowed: a data: URL");
  if (images_.size() >= kMaxImages) {
    throw ApiError(400,
                   fmt::format("messages: have more than {} images; allowed: fewer", kMaxImages),
                   "messages");
  }
  try {
    std::string bytes = decode_data_url(*url, place);
    images_.push_back(processor_->prepare(read_image(bytes, place), place));
    images_.back().file = std::make_shared<const ImageFile>(ImageFile{place, std::move(bytes)});
  } catch (const ConfigError& error) {
    throw ApiError(400, error.what(), place);
  }
  const auto num_tokens = static_cast<std::size_t>(images_.back().grid.num_tokens);
  if (num_tokens > tokens_left_) {
    throw ApiError(400,
                   place +
                       ": the images have more tokens than the model's context; allowed: "
                       "smaller or fewer images",
                   place);
  }
  tokens_left_ -= num_tokens;
}

std::vector<PromptImage> ChatImages::place(std::vector<TokenId>& prompt,
                                           const Tokenizer& tokenizer) {
  if (!are_taken()) return {};
  const std::int32_t image_token = processor_->tower.image_token;
  if (!images_.empty() && image_token >= tokenizer.vocab_size()) {
    throw ApiError(
        400,
        fmt::format("messages: have images, and the tokenizer has {} tokens, without the model's "
                    "image token {}; allowed: text, or the model's own tokenizer (--tokenizer)",
                    tokenizer.vocab_size(), image_token),
        "messages");
  }
  try {
    place_prompt_images(image_token, "messages", images_, prompt);
  } catch (const ConfigError& error) {
    throw ApiError(400, error.what(), "messages");
  }
  return std::move(images_);
}

}  // namespace metronome
