// SPDX-License-Identifier: Apache-2.0
// The bytes as a PNG or JPEG file. Large pictures are left out: they only take time.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/base/error.h"
#include "models/image/image_file.h"
#include "models/image/image_resize.h"
#include "tests/fuzz/refusal.h"

namespace {

// The larger side of a PNG's header; 0 for other files.
std::uint32_t png_side(std::string_view bytes) {
  if (bytes.size() < 24 || bytes[0] != '\x89') return 0;
  std::uint32_t sides[2] = {0, 0};
  for (std::size_t i = 0; i < 8; ++i) {
    sides[i / 4] = sides[i / 4] << 8 | static_cast<unsigned char>(bytes[16 + i]);
  }
  return sides[0] > sides[1] ? sides[0] : sides[1];
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::uint32_t side = png_side(bytes);
  if (side > 1000 && side < 10'000'000) return 0;
  metronome::testing::parse_or_refuse([&] {
    const metronome::ImagePixels pixels = metronome::read_image(bytes, "fuzz");
    METRONOME_CHECK(pixels.rgb.size() == static_cast<std::size_t>(pixels.height * pixels.width * 3),
                    "every pixel has a colour");
    const metronome::ImagePixels resized = metronome::resize_image(pixels, 3, 5);
    METRONOME_CHECK(resized.rgb.size() == 45, "every pixel has a colour");
  });
  return 0;
}
