// SPDX-License-Identifier: Apache-2.0
// The formats behind image_file.h.
#pragma once

#include <string>
#include <string_view>

#include "core/model/image_pixels.h"

namespace metronome {

bool is_png(std::string_view bytes);
bool is_jpeg(std::string_view bytes);
// Throw ConfigError as read_image() does.
ImagePixels read_png(std::string_view bytes, const std::string& name);
ImagePixels read_jpeg(std::string_view bytes, const std::string& name);

// Refuses a size of more than kMaxFilePixels.
void check_file_size(std::int64_t height, std::int64_t width, const std::string& name);
[[noreturn]] void refuse_image(const std::string& name, const std::string& what);

}  // namespace metronome
