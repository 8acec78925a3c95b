// SPDX-License-Identifier: Apache-2.0
// Images in chat messages.
#include <memory>
#include <string>
#include <vector>

#include "core/base/base64.h"
#include "core/base/files.h"
#include "core/base/json.h"
#include "models/image/image_processor.h"
#include "models/text/folder_chat.h"
#include "serve/server/chat_images.h"
#include "tests/catch.h"
#include "tests/places.h"
#include "tests/serve/server/serve_lab.h"

namespace metronome::TEST_FILE {
namespace {

using namespace testing;

// As Qwen's templates do, with characters for the tokens around an image.
constexpr const char* kTemplate =
    "{% for m in messages %}{{ m.role }}:{% if m.content is string %}{{ m.content }}{% else %}"
    "{% for p in m.content %}{% if p.type == 'image' %}<*>{% else %}{{ p.text }}{% endif %}"
    "{% endfor %}{% endif %};{% endfor %}";

ServedModel image_model() {
  ServedModel model = byte_model();
  ImageProcessor processor;
  processor.tower.depth = 1;
  processor.tower.patch_size = 4;
  processor.tower.temporal_patch_size = 2;
  processor.tower.merge_size = 2;
  processor.tower.image_token = '*';
  processor.min_pixels = 512;
  processor.max_pixels = 2304;
  model.images = std::make_shared<const ImageProcessor>(processor);
  model.chat =
      std::make_shared<const FolderChat>(FolderChat::from_text(kTemplate, "t", Json::object()));
  return model;
}

std::string picture(const std::string& name) {
  return read_file(source_dir() + "/tests/fixtures/images/" + name).value();
}

std::string image_part(const std::string& url) {
  return R"({"type": "image_url", "image_url": {"url": ")" + url + R"("}})";
}
std::string data_part(const std::string& name) {
  return image_part("data:image/png;base64," + encode_base64(picture(name)));
}
std::string chat_of(const std::string& parts) {
  return R"({"messages": [{"role": "user", "content": [)" + parts + R"(]}], "max_tokens": 2})";
}

std::string refusal_of(const std::string& parts, const ServedModel& model = image_model()) {
  try {
    parse_generation(ApiKind::Chat, chat_of(parts), model, 0);
  } catch (const ApiError& error) {
    return std::to_string(error.status) + " [" + error.param + "] " + error.what();
  }
  return "accepted";
}

TEST_CASE("an image of a message becomes as many tokens as its grid has", "[serve][images]") {
  const ApiRequest request =
      parse_generation(ApiKind::Chat,
                       chat_of(R"({"type": "text", "text": "ab"}, )" + data_part("colours.png") +
                               ", " + data_part("tall.jpg") + R"(, {"type": "text", "text": "c"})"),
                       image_model(), 0);
  REQUIRE(request.images.size() == 2);
  // 61 x 40 pixels become 56 x 32 (tests/fixtures/images), and 27 x 90 become 24 x 88.
  CHECK(request.images[0].grid.num_tokens == 7 * 4);
  CHECK(request.images[1].grid.num_tokens == 3 * 11);
  CHECK(request.images[0].pixels->width == 56);
  CHECK(request.images[0].content != request.images[1].content);
  std::string text;
  for (const TokenId token : request.prompts.front()) text += static_cast<char>(value(token));
  CHECK(text == "user:ab<" + std::string(28, '*') + "><" + std::string(33, '*') + ">c;");
  for (std::size_t i = 0; i < 2; ++i) {
    const auto first = static_cast<std::size_t>(request.images[i].first_token);
    CHECK(text[first - 1] == '<');
    CHECK(text[first] == '*');
  }
  CHECK(request.num_prompt_tokens == static_cast<std::int32_t>(text.size()));
}

TEST_CASE("what is no image is refused in one line", "[serve][images]") {
  const std::string field = "messages[0].content.image_url.url";
  const std::string begin = "400 [" + field + "] " + field + ": ";
  const std::string allowed = "; allowed: data:image/png;base64,... or image/jpeg";
  CHECK(refusal_of(image_part("https://example.com/a.png")) ==
        begin + "https URLs are not fetched" + allowed);
  CHECK(refusal_of(image_part("http://10.0.0.1/a.png")) ==
        begin + "http URLs are not fetched" + allowed);
  CHECK(refusal_of(image_part("file:///etc/passwd")) == begin + "is not a data: URL" + allowed);
  CHECK(refusal_of(image_part("data:image/png,abc")) ==
        begin + "a data: URL without base64 is not supported" + allowed);
  CHECK(refusal_of(image_part("data:image/png;base64,a*b=")) ==
        begin + "its data is not base64" + allowed);
  CHECK(refusal_of(image_part("data:image/png;base64,R0lGODlh")) ==
        begin + "is neither PNG nor JPEG; allowed: a PNG or JPEG image of at most 33554432 pixels");
  CHECK(refusal_of(R"({"type": "image_url"})") ==
        "400 [messages[0].content.image_url] messages[0].content.image_url: is missing; allowed: "
        "{\"url\": ...}");
  CHECK(refusal_of(R"({"type": "text", "text": "a * b"})") ==
        "400 [messages] messages: has 1 image tokens for 0 images; allowed: one for each image");
  std::string many = data_part("grey.png");
  for (int i = 0; i < 32; ++i) many += ", " + data_part("grey.png");
  CHECK(refusal_of(many).find("allowed: ") != std::string::npos);
  ServedModel text_only = image_model();
  text_only.images = nullptr;
  CHECK(refusal_of(data_part("grey.png"), text_only) ==
        "400 [messages[0].content.type] messages[0].content.type: parts of type image_url are not "
        "supported: the model has no vision tower; allowed: text");
  ServedModel byte_tokens = image_model();
  ImageProcessor processor = *byte_tokens.images;
  processor.tower.image_token = 151655;
  byte_tokens.images = std::make_shared<const ImageProcessor>(processor);
  CHECK(refusal_of(data_part("grey.png"), byte_tokens) ==
        "400 [messages] messages: have images, and the tokenizer has 256 tokens, without the "
        "model's image token 151655; allowed: text, or the model's own tokenizer (--tokenizer)");
  CHECK(refusal_of(R"({"type": "text", "text": "a"})", byte_tokens) == "accepted");
}

}  // namespace
}  // namespace metronome::TEST_FILE
