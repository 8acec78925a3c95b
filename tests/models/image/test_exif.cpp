// SPDX-License-Identifier: Apache-2.0
// Pictures that a camera stored lying on a side. Expected: Pillow's ImageOps.exif_transpose().
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/files.h"
#include "models/image/exif.h"
#include "models/image/image_file.h"
#include "tests/catch.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

std::string number(std::uint32_t value, int size, bool is_big_endian) {
  std::string bytes;
  for (int i = 0; i < size; ++i) {
    const int shift = 8 * (is_big_endian ? size - 1 - i : i);
    bytes += static_cast<char>(value >> shift & 0xff);
  }
  return bytes;
}

// EXIF data with two other entries before the orientation.
std::string exif_with(std::uint32_t orientation, bool is_big_endian = true,
                      std::uint32_t type = 3) {
  const auto entry = [&](std::uint32_t tag, std::uint32_t kind, std::uint32_t value) {
    const int size = kind == 3 ? 2 : 4;
    return number(tag, 2, is_big_endian) + number(kind, 2, is_big_endian) +
           number(1, 4, is_big_endian) + number(value, size, is_big_endian) +
           std::string(static_cast<std::size_t>(4 - size), '\0');
  };
  return (is_big_endian ? "MM" : "II") + number(42, 2, is_big_endian) +
         number(12, 4, is_big_endian) + "gap." + number(3, 2, is_big_endian) + entry(0x100, 4, 27) +
         entry(0x103, 3, 6) + entry(0x112, type, orientation) + number(0, 4, is_big_endian);
}

std::string jpeg_with(std::string jpeg, const std::string& exif) {
  const std::string data = std::string("Exif\0\0", 6) + exif;
  const auto length = static_cast<std::uint32_t>(data.size() + 2);
  return jpeg.insert(2, "\xff\xe1" + number(length, 2, true) + data);
}

std::uint32_t checksum(std::string_view bytes) {  // PNG, annex D
  std::uint32_t sum = 0xffffffff;
  for (const char byte : bytes) {
    sum ^= static_cast<unsigned char>(byte);
    for (int bit = 0; bit < 8; ++bit) sum = sum >> 1 ^ ((sum & 1) != 0 ? 0xedb88320 : 0);
  }
  return ~sum;
}

// With the data before the pixels, or behind them.
std::string png_with(std::string png, const std::string& exif, bool is_first) {
  constexpr std::size_t kHead = 8 + 25;  // the signature and IHDR
  constexpr std::size_t kEnd = 12;       // IEND
  const std::string data = "eXIf" + exif;
  return png.insert(is_first ? kHead : png.size() - kEnd,
                    number(static_cast<std::uint32_t>(exif.size()), 4, true) + data +
                        number(checksum(data), 4, true));
}

std::string fixture(const std::string& name) {
  return read_file(testing::source_dir() + "/tests/fixtures/images/" + name).value();
}

TEST_CASE("a picture is turned as its orientation says", "[image]") {
  // 0 1 2
  // 3 4 5
  ImagePixels stored{.height = 2, .width = 3, .rgb = {}};
  for (std::uint8_t i = 0; i < 6; ++i) {
    for (const int colour : {0, 10, 20}) {
      stored.rgb.push_back(static_cast<std::uint8_t>(i + colour));
    }
  }
  const std::vector<std::vector<int>> seen = {
      {0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0}, {3, 4, 5, 0, 1, 2},
      {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2}, {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    const ImagePixels turned = upright(stored, orientation);
    CHECK(turned.height == (orientation < 5 ? 2 : 3));
    CHECK(turned.width == (orientation < 5 ? 3 : 2));
    std::vector<int> places;
    for (std::size_t i = 0; i < turned.rgb.size(); i += 3) {
      places.push_back(turned.rgb[i]);
      CHECK(turned.rgb[i + 2] == turned.rgb[i] + 20);
    }
    CHECK(places == seen[static_cast<std::size_t>(orientation - 1)]);
  }
}

TEST_CASE("the orientation is read in both orders of bytes", "[image]") {
  for (std::uint32_t orientation = 0; orientation < 12; ++orientation) {
    const int expected = orientation >= 1 && orientation <= 8 ? static_cast<int>(orientation) : 1;
    for (const bool is_big_endian : {false, true}) {
      CHECK(exif_orientation(exif_with(orientation, is_big_endian)) == expected);
      CHECK(exif_orientation(exif_with(orientation, is_big_endian, 4)) == expected);
    }
  }
  CHECK(exif_orientation(exif_with(6, true, 5)) == 1);  // a fraction
  // Cut anywhere, it has none or is whole but for what follows.
  const std::string whole = exif_with(6);
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    const int expected = size + 4 >= whole.size() ? 6 : 1;
    CHECK(exif_orientation(whole.substr(0, size)) == expected);
  }
  std::string far = whole;
  far.replace(4, 4, "\xff\xff\xff\xff");
  CHECK(exif_orientation(far) == 1);
}

TEST_CASE("files with EXIF data are read upright", "[image]") {
  const std::string jpeg = fixture("tall.jpg");
  const std::string png = fixture("colours.png");
  const ImagePixels of_jpeg = read_image(jpeg, "tall.jpg");
  const ImagePixels of_png = read_image(png, "colours.png");
  for (int orientation = 1; orientation <= 8; ++orientation) {
    CAPTURE(orientation);
    const std::string exif = exif_with(static_cast<std::uint32_t>(orientation), orientation % 2);
    CHECK(read_image(jpeg_with(jpeg, exif), "a") == upright(of_jpeg, orientation));
    for (const bool is_first : {false, true}) {
      CHECK(read_image(png_with(png, exif, is_first), "b") == upright(of_png, orientation));
    }
  }
  // Data that nobody understands turns nothing.
  CHECK(read_image(jpeg_with(jpeg, "no TIFF header"), "c") == of_jpeg);
}

}  // namespace
}  // namespace metronome::TEST_FILE
