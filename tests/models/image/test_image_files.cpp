// SPDX-License-Identifier: Apache-2.0
// Pictures against Pillow, torchvision and Qwen's image processor in transformers. `tools/
// vision_parity images` makes tests/fixtures/images; its head says what is expected.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/base/files.h"
#include "core/base/rng.h"
#include "models/image/image_file.h"
#include "models/image/image_processor.h"
#include "models/image/image_resize.h"
#include "models/weights/safetensors.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

const char* const kPictures[] = {"colours.png",     "shrunk.png", "alpha.png", "grey.png",
                                 "palette.png",     "bits.png",   "tall.jpg",  "full-colour.jpg",
                                 "progressive.jpg", "grey.jpg"};

std::string folder() { return testing::source_dir() + "/tests/fixtures/images"; }

std::string bytes_of(const std::string& name) { return read_file(folder() + "/" + name).value(); }

// The processor of tools/vision_parity.
ImageProcessor test_processor() {
  ImageProcessor processor;
  processor.tower.depth = 1;
  processor.tower.patch_size = 4;
  processor.tower.temporal_patch_size = 2;
  processor.tower.merge_size = 2;
  processor.min_pixels = 512;
  processor.max_pixels = 2304;
  return processor;
}

std::vector<std::uint8_t> bytes_at(const SafetensorsFile& file, const std::string& name) {
  const Tensor* const tensor = file.find(name);
  REQUIRE(tensor != nullptr);
  std::vector<std::uint8_t> values(tensor->bytes.size());
  std::memcpy(values.data(), tensor->bytes.data(), values.size());
  return values;
}

int largest_difference(const std::vector<std::uint8_t>& a, const std::vector<std::uint8_t>& b) {
  REQUIRE(a.size() == b.size());
  int largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    largest = std::max(largest, std::abs(int{a[i]} - int{b[i]}));
  }
  return largest;
}

TEST_CASE("pictures are those of Pillow, torchvision and Qwen's image processor", "[image]") {
  const SafetensorsFile expected(folder() + "/expected.safetensors");
  const ImageProcessor processor = test_processor();
  for (const std::string name : kPictures) {
    INFO(name);
    const ImagePixels pixels = read_image(bytes_of(name), name);
    REQUIRE(expected.find(name + ".pixels")->shape ==
            std::vector<std::int64_t>{pixels.height, pixels.width, 3});
    CHECK(largest_difference(pixels.rgb, bytes_at(expected, name + ".pixels")) == 0);
    const PromptImage image = processor.prepare(pixels, name);
    REQUIRE(expected.find(name + ".resized")->shape ==
            std::vector<std::int64_t>{image.grid.height, image.grid.width, 3});
    CHECK(largest_difference(image.pixels->rgb, bytes_at(expected, name + ".resized")) == 0);
    const std::vector<float> patches = processor.patches(image);
    const std::vector<std::uint8_t> stored = bytes_at(expected, name + ".patches");
    REQUIRE(stored.size() == patches.size() * sizeof(float));
    CHECK(std::memcmp(stored.data(), patches.data(), stored.size()) == 0);
  }
}

TEST_CASE("16 bits lose their lower half", "[image]") {
  const ImagePixels pixels = read_image(bytes_of("deep.png"), "deep.png");
  CHECK(pixels.width == 30);
  CHECK(pixels.height == 21);
  // It was made of 8 bits, times 256 plus 77.
  CHECK(*std::max_element(pixels.rgb.begin(), pixels.rgb.end()) > 200);
  CHECK(*std::min_element(pixels.rgb.begin(), pixels.rgb.end()) < 50);
}

TEST_CASE("a broken file is refused in one line", "[image]") {
  const auto error = [](const std::string& bytes) {
    return testing::error_of([&] { read_image(bytes, "a.png"); });
  };
  const std::string allowed = "; allowed: a PNG or JPEG image of at most 33554432 pixels";
  CHECK(error("") == "a.png: is empty" + allowed);
  CHECK(error("GIF89a") == "a.png: is neither PNG nor JPEG" + allowed);
  for (const std::string name : kPictures) {
    INFO(name);
    const std::string bytes = bytes_of(name);
    for (const std::size_t size : {bytes.size() / 2, bytes.size() / 4, std::size_t{9}}) {
      const std::string text = error(bytes.substr(0, size));
      CHECK(text.starts_with("a.png: is a broken "));
      CHECK(text.ends_with(allowed));
    }
  }
}

TEST_CASE("a file with too many pixels is refused before they are decoded", "[image]") {
  std::string bytes = bytes_of("colours.png");
  // Width and height of the header, and its checksum, by the rule of the format.
  const auto put = [&bytes](std::size_t at, std::uint32_t value) {
    for (std::size_t i = 0; i < 4; ++i) {
      bytes[at + i] = static_cast<char>(value >> (24 - 8 * i));
    }
  };
  put(16, 60000);
  put(20, 60000);
  std::uint32_t crc = 0xffffffff;
  for (std::size_t i = 12; i < 29; ++i) {
    crc ^= static_cast<unsigned char>(bytes[i]);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0xedb88320 : 0);
  }
  put(29, ~crc);
  CHECK(testing::error_of([&] {
          read_image(bytes, "a");
        }).starts_with("a: has 60000 x 60000 pixels; allowed: "));
}

TEST_CASE("random bytes in a file never do harm", "[image]") {
  Rng rng(11, "image bytes");
  for (const std::string name : kPictures) {
    const std::string bytes = bytes_of(name);
    for (int i = 0; i < 60; ++i) {
      std::string changed = bytes;
      for (int k = 0; k < 3; ++k) changed[rng() % changed.size()] = static_cast<char>(rng());
      const std::string text = testing::error_of([&] {
        const ImagePixels pixels = read_image(changed, name);
        CHECK(pixels.rgb.size() == static_cast<std::size_t>(pixels.height * pixels.width * 3));
      });
      CHECK((text.empty() || text.find("; allowed: ") != text.npos));
    }
  }
}

TEST_CASE("resizing keeps a plain picture plain, and a picture of the same size", "[image]") {
  ImagePixels plain{.height = 13, .width = 31, .rgb = {}};
  plain.rgb.assign(13 * 31 * 3, 201);
  for (const auto& [height, width] :
       {std::pair{13, 31}, std::pair{5, 7}, std::pair{40, 3}, std::pair{64, 100}}) {
    const ImagePixels resized = resize_image(plain, height, width);
    CHECK(resized.rgb == std::vector<std::uint8_t>(static_cast<std::size_t>(height * width * 3),
                                                   std::uint8_t{201}));
  }
  const ImagePixels picture = read_image(bytes_of("colours.png"), "colours.png");
  CHECK(resize_image(picture, picture.height, picture.width) == picture);
}

TEST_CASE("equal pictures have one content, and others have others", "[image]") {
  const ImagePixels picture = read_image(bytes_of("colours.png"), "colours.png");
  const std::uint64_t content = image_content(picture);
  CHECK(content == image_content(ImagePixels(picture)));
  ImagePixels turned = picture;
  std::swap(turned.height, turned.width);
  CHECK(image_content(turned) != content);
  for (std::size_t i = 0; i < picture.rgb.size(); i += 97) {
    ImagePixels other = picture;
    other.rgb[i] ^= 1;
    CHECK(image_content(other) != content);
  }
}

TEST_CASE("preprocessor_config.json says the range of pixels and colours", "[image]") {
  const VisionTower tower = test_processor().tower;
  const auto parse = [&](const char* json) { return parse_image_processor(json, "p.json", tower); };
  const ImageProcessor made = parse(R"({"size": {"shortest_edge": 100, "longest_edge": 900},
      "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 2, 0.5], "patch_size": 4, "merge_size": 2})");
  CHECK(made.min_pixels == 100);
  CHECK(made.max_pixels == 900);
  CHECK(made.range.mean[2] == 0.3);
  CHECK(made.range.std[1] == 2);
  CHECK(parse("{}").max_pixels == kDefaultMaxPixels);
  const auto error = [&](const char* json) { return testing::error_of([&] { parse(json); }); };
  CHECK(error("[]") ==
        "p.json: must be an object; allowed: the preprocessor_config.json of a "
        "model");
  CHECK(error(R"({"patch_size": 16})") ==
        "p.json: patch_size: is 16; allowed: 4, as the vision_config of config.json says");
  CHECK(error(R"({"min_pixels": 7, "max_pixels": 6})") ==
        "p.json: size: has 7 to 6 pixels; allowed: a shortest_edge of at least 1, and at most "
        "longest_edge");
  CHECK(error(R"({"image_std": [1, 0, 1]})") ==
        "p.json: image_std: has a number of 0 or less; allowed: above 0");
  CHECK(error(R"({"resample": 2})") == "p.json: resample: is 2; allowed: 3 (bicubic)");
  CHECK(error(R"({"rescale_factor": 1})") ==
        "p.json: rescale_factor: is not supported; allowed: 1 / 255");
  CHECK(parse(R"({"resample": 3, "rescale_factor": 0.00392156862745098})").min_pixels > 0);
  CHECK(error(R"({"do_resize": false})") ==
        "p.json: do_resize: false is not supported; allowed: true");
}

TEST_CASE("each image token of a prompt becomes as many as its image has", "[image]") {
  std::vector<PromptImage> images(2);
  images[0].grid.num_tokens = 3;
  images[1].grid.num_tokens = 1;
  const auto ids = [](std::vector<int> values) {
    std::vector<TokenId> tokens;
    for (const int id : values) tokens.push_back(TokenId{id});
    return tokens;
  };
  std::vector<TokenId> tokens = ids({9, 5, 7, 9});
  place_prompt_images(9, "messages", images, tokens);
  CHECK(tokens == ids({9, 9, 9, 5, 7, 9}));
  CHECK(images[0].first_token == 0);
  CHECK(images[1].first_token == 5);
  tokens = ids({9, 5});
  CHECK(testing::error_of([&] { place_prompt_images(9, "messages", images, tokens); }) ==
        "messages: has 1 image tokens for 2 images; allowed: one for each image");
}

}  // namespace
}  // namespace metronome::TEST_FILE
