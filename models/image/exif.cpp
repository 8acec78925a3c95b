// SPDX-License-Identifier: Apache-2.0
#include "models/image/exif.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace metronome {
namespace {

constexpr std::uint32_t kOrientation = 0x112;  // tag
constexpr std::uint32_t kShort = 3;            // types of a value
constexpr std::uint32_t kLong = 4;
constexpr std::size_t kEntryBytes = 12;

// Numbers of a TIFF file, in its order of bytes. Bytes beyond its end are 0.
class TiffNumbers {
 public:
  explicit TiffNumbers(std::string_view bytes)
      : bytes_(bytes), is_big_endian_(bytes.starts_with("MM")) {}

  std::uint32_t at(std::size_t offset, std::size_t size) const {
    std::uint32_t number = 0;
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t place = offset + (is_big_endian_ ? i : size - 1 - i);
      const auto byte = place < bytes_.size() ? static_cast<unsigned char>(bytes_[place]) : 0u;
      number = number << 8 | byte;
    }
    return number;
  }

 private:
  std::string_view bytes_;
  bool is_big_endian_;
};

}  // namespace

int exif_orientation(std::string_view tiff) {
  if (!tiff.starts_with("II") && !tiff.starts_with("MM")) return 1;
  const TiffNumbers numbers(tiff);
  if (numbers.at(2, 2) != 42) return 1;
  const std::size_t begin = numbers.at(4, 4);
  const std::size_t num_entries = numbers.at(begin, 2);
  for (std::size_t i = 0; i < num_entries; ++i) {
    const std::size_t entry = begin + 2 + i * kEntryBytes;
    if (entry + kEntryBytes > tiff.size()) return 1;
    if (numbers.at(entry, 2) != kOrientation) continue;
    const std::uint32_t type = numbers.at(entry + 2, 2);
    if ((type != kShort && type != kLong) || numbers.at(entry + 4, 4) != 1) return 1;
    const std::uint32_t value = numbers.at(entry + 8, type == kShort ? 2 : 4);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

ImagePixels upright(ImagePixels pixels, int orientation) {
  // The steps from a seen pixel to the stored one.
  struct Turn {
    bool swaps_sides, flips_rows, flips_columns;
  };
  constexpr std::array<Turn, 9> kTurns = {{{false, false, false},
                                           {false, false, false},
                                           {false, false, true},
                                           {false, true, true},
                                           {false, true, false},
                                           {true, false, false},
                                           {true, true, false},
                                           {true, true, true},
                                           {true, false, true}}};
  if (orientation <= 1) return pixels;
  const Turn turn = kTurns[static_cast<std::size_t>(orientation)];
  ImagePixels seen{.height = pixels.height, .width = pixels.width, .rgb = {}};
  if (turn.swaps_sides) std::swap(seen.height, seen.width);
  seen.rgb.reserve(pixels.rgb.size());
  for (std::int64_t y = 0; y < seen.height; ++y) {
    for (std::int64_t x = 0; x < seen.width; ++x) {
      std::int64_t row = turn.swaps_sides ? x : y;
      std::int64_t column = turn.swaps_sides ? y : x;
      if (turn.flips_rows) row = pixels.height - 1 - row;
      if (turn.flips_columns) column = pixels.width - 1 - column;
      const std::uint8_t* const stored = pixels.rgb.data() + (row * pixels.width + column) * 3;
      seen.rgb.insert(seen.rgb.end(), stored, stored + 3);
    }
  }
  return seen;
}

}  // namespace metronome
