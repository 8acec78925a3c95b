// SPDX-License-Identifier: Apache-2.0
#include "models/image/image_file.h"

#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/names.h"
#include "models/image/image_formats.h"

namespace metronome {

void refuse_image(const std::string& name, const std::string& what) {
  throw ConfigError(printable(fmt::format(
      "{}: {}; allowed: a PNG or JPEG image of at most {} pixels", name, what, kMaxFilePixels)));
}

void check_file_size(std::int64_t height, std::int64_t width, const std::string& name) {
  // Formats have sides below 2^31, so the product fits.
  if (height >= 1 && width >= 1 && height * width <= kMaxFilePixels) return;
  refuse_image(name, fmt::format("has {} x {} pixels", width, height));
}

ImagePixels read_image(std::string_view bytes, const std::string& name) {
  if (is_png(bytes)) return read_png(bytes, name);
  if (is_jpeg(bytes)) return read_jpeg(bytes, name);
  refuse_image(name, bytes.empty() ? "is empty" : "is neither PNG nor JPEG");
}

std::string_view media_type(std::string_view bytes) {
  return is_png(bytes) ? "image/png" : "image/jpeg";
}

}  // namespace metronome
