// SPDX-License-Identifier: Apache-2.0
// Reads PNG and JPEG files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/model/image_pixels.h"

namespace metronome {

// A larger picture is refused before its pixels are decoded: an 8K picture fits.
constexpr std::int64_t kMaxFilePixels = std::int64_t{1} << 25;

// The pixels of a file's bytes, as red, green and blue of 8 bits. Transparent pixels lie on white,
// as in transformers; 16 bits lose their lower half. A picture that its EXIF data says is turned is
// turned upright, as vLLM does.
// Throws ConfigError "name: what; allowed: what" for bytes that are neither format, broken or
// too large; the name is `name`.
ImagePixels read_image(std::string_view bytes, const std::string& name);

// Of bytes that read_image() takes: image/png or image/jpeg.
std::string_view media_type(std::string_view bytes);

}  // namespace metronome
