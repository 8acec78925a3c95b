// SPDX-License-Identifier: Apache-2.0
#include "core/model/image_pixels.h"

#include <algorithm>
#include <cstring>

#include "core/base/rng.h"

namespace metronome {
namespace {

// 56 bits of a hash.
std::uint64_t content_of(std::int64_t height, std::int64_t width, const void* bytes,
                         std::size_t num_bytes) {
  // Two chains, so that a difference which one loses shows in the other.
  std::uint64_t a = mix64(static_cast<std::uint64_t>(height));
  std::uint64_t b = mix64(~static_cast<std::uint64_t>(width));
  for (std::size_t i = 0; i < num_bytes; i += sizeof(std::uint64_t)) {
    std::uint64_t word = 0;
    std::memcpy(&word, static_cast<const char*>(bytes) + i, std::min(sizeof word, num_bytes - i));
    a = mix64(a ^ word);
    b = mix64(b + word);
  }
  return mix64(a ^ (b << 1)) >> 8;
}

}  // namespace

std::uint64_t image_content(const ImagePixels& pixels) {
  return content_of(pixels.height, pixels.width, pixels.rgb.data(), pixels.rgb.size());
}

std::uint64_t file_content(std::string_view bytes) {
  const auto size = static_cast<std::int64_t>(bytes.size());
  return content_of(size, 0, bytes.data(), bytes.size());
}

}  // namespace metronome
