#include "serve/server/chat_images.h"

#include <memory>
#include <optional>
#include <utility>

#include "core/base/base64.h"
#include "core/base/error.h"
#include "core/image/image_file.h"
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

void ChatImages::take(const Json& part, const std::string& name) {
  METRONOME_CHECK(are_taken(), "the model takes images");
  const ApiFields part_fields(part, name + ".");
  const std::optional<ApiFields> image_url = part_fields.fields("image_url");
  const std::string place = name + ".image_url.url";
  if (!image_url) part_fields.fail("image_url", "is missing; allowed: {\"url\": ...}");
  const std::optional<std::string> url = image_url->text("url");
  if (!url) image_url->fail("url", "is missing; allowed: a data: URL");
  if (images_.size() >= kMaxImages) {
    throw ApiError(
        400, "messages: have more than " + std::to_string(kMaxImages) + " images; allowed: fewer",
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

std::vector<PromptImage> ChatImages::place(std::vector<TokenId>& prompt) {
  if (!are_taken()) return {};
  try {
    place_prompt_images(processor_->tower.image_token, "messages", images_, prompt);
  } catch (const ConfigError& error) {
    throw ApiError(400, error.what(), "messages");
  }
  return std::move(images_);
}

}  // namespace metronome
