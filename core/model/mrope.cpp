// SPDX-License-Identifier: Apache-2.0
#include "core/model/mrope.h"

#include "core/base/error.h"

namespace metronome {

RopePosition rope_position(std::span<const ImageSpan> images, std::int32_t token) {
  std::int32_t offset = 0;  // of a text token's position from its number
  for (const ImageSpan& image : images) {
    if (token < image.first_token) break;
    const std::int32_t begin = image.first_token + offset;
    if (token < image.end_token()) {
      const std::int32_t place = token - image.first_token;
      return {begin, begin + place / image.columns, begin + place % image.columns};
    }
    offset += image.num_positions() - image.num_tokens();
  }
  return {token + offset, token + offset, token + offset};
}

std::vector<std::uint8_t> mrope_axes(std::span<const std::int64_t> sections,
                                     std::int64_t num_pairs) {
  METRONOME_CHECK(sections.size() == 3, "sections of time, height and width");
  std::vector<std::uint8_t> axes(static_cast<std::size_t>(num_pairs));
  for (std::int64_t i = 0; i < num_pairs; ++i) {
    const auto axis = static_cast<std::size_t>(i % 3);
    if (axis != 0 && i < 3 * sections[axis]) {
      axes[static_cast<std::size_t>(i)] = static_cast<std::uint8_t>(axis);
    }
  }
  return axes;
}

}  // namespace metronome
