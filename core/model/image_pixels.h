// SPDX-License-Identifier: Apache-2.0
// A picture in memory.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace metronome {

struct ImagePixels {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]

  bool operator==(const ImagePixels&) const = default;
};

// A picture as the bytes of a PNG or JPEG file.
struct ImageFile {
  std::string name;  // for messages
  std::string bytes;
};

// A number for pixels: equal pixels have equal numbers, others differ but for a chance of 2^-56.
std::uint64_t image_content(const ImagePixels& pixels);
// A number for the bytes of a file, as image_content() gives one for pixels.
std::uint64_t file_content(std::string_view bytes);

}  // namespace metronome
