// A picture in memory.
#pragma once

#include <cstdint>
#include <vector>

namespace metronome {

struct ImagePixels {
  std::int64_t height = 0;
  std::int64_t width = 0;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]

  bool operator==(const ImagePixels&) const = default;
};

}  // namespace metronome
