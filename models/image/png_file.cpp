// SPDX-License-Identifier: Apache-2.0
// PNG files by libpng.
#include <png.h>

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "models/image/exif.h"
#include "models/image/image_file.h"
#include "models/image/image_formats.h"

namespace metronome {
namespace {

// The data of libpng's callbacks. Functions that libpng may leave by a jump have no variable with a
// destructor.
struct PngInput {
  const char* bytes = nullptr;
  std::size_t size = 0;
  std::size_t position = 0;
  char message[200] = {};
};

void read_bytes(png_structp png, png_bytep out, std::size_t count) {
  auto* const input = static_cast<PngInput*>(png_get_io_ptr(png));
  if (count > input->size - input->position) png_error(png, "the file ends too early");
  std::memcpy(out, input->bytes + input->position, count);
  input->position += count;
}

[[noreturn]] void leave_png(png_structp png, png_const_charp message) {
  auto* const input = static_cast<PngInput*>(png_get_error_ptr(png));
  std::snprintf(input->message, sizeof input->message, "%s", message);
  png_longjmp(png, 1);
}

void ignore_warning(png_structp, png_const_charp) {}

class PngReader {
 public:
  explicit PngReader(std::string_view bytes)
      : input_{.bytes = bytes.data(), .size = bytes.size()},
        png_(png_create_read_struct(PNG_LIBPNG_VER_STRING, &input_, leave_png, ignore_warning)),
        info_(png_ == nullptr ? nullptr : png_create_info_struct(png_)) {
    METRONOME_CHECK(info_ != nullptr, "libpng of the version that this program was built with");
    png_set_read_fn(png_, &input_, read_bytes);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }

  // Reads up to the pixels; false: broken.
  bool read_header() {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    // Metadata may be made to fill the memory.
    png_set_chunk_malloc_max(png_, 1 << 20);
    png_set_chunk_cache_max(png_, 16);
    png_set_user_limits(png_, 1 << 24, 1 << 24);
    png_read_info(png_, info_);
    return true;
  }

  // Reads the pixels as RGBA; false: broken.
  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    png_set_expand(png_);
    png_set_strip_16(png_);
    png_set_gray_to_rgb(png_);
    png_set_add_alpha(png_, 0xff, PNG_FILLER_AFTER);
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    if (png_get_rowbytes(png_, info_) != std::size_t{4} * png_get_image_width(png_, info_)) {
      png_error(png_, "its pixels are not those of an image");
    }
    png_read_image(png_, rows);
    png_read_end(png_, info_);  // EXIF data may be behind the pixels
    return true;
  }

  std::int64_t height() const { return png_get_image_height(png_, info_); }
  std::int64_t width() const { return png_get_image_width(png_, info_); }
  // EXIF data from its TIFF header on; empty: none. Complete after read_rows().
  std::string_view exif() {
    png_bytep data = nullptr;
    png_uint_32 size = 0;
    if (png_get_eXIf_1(png_, info_, &size, &data) == 0) return {};
    return {reinterpret_cast<const char*>(data), size};
  }
  const char* message() const { return input_.message; }

 private:
  PngInput input_;
  png_structp png_;
  png_infop info_;
};

// Red, green or blue over white. Rounding: Pillow's alpha_composite.
std::uint8_t over_white(std::uint32_t colour, std::uint32_t alpha) {
  const std::uint32_t sum = colour * alpha + 255 * (255 - alpha);
  const std::uint32_t rounded = sum + 128;
  return static_cast<std::uint8_t>((rounded + (rounded >> 8)) >> 8);
}

}  // namespace

bool is_png(std::string_view bytes) {
  return bytes.starts_with(std::string_view("\x89PNG\r\n\x1a\n", 8));
}

ImagePixels read_png(std::string_view bytes, const std::string& name) {
  PngReader reader(bytes);
  const auto fail = [&] {
    refuse_image(name, std::string("is a broken PNG file (") + reader.message() + ")");
  };
  if (!reader.read_header()) fail();
  ImagePixels image{.height = reader.height(), .width = reader.width(), .rgb = {}};
  check_file_size(image.height, image.width, name);
  std::vector<std::uint8_t> rgba(static_cast<std::size_t>(image.height * image.width * 4));
  std::vector<png_bytep> rows;
  for (std::int64_t row = 0; row < image.height; ++row) {
    rows.push_back(rgba.data() + row * image.width * 4);
  }
  if (!reader.read_rows(rows.data())) fail();
  image.rgb.reserve(rgba.size() / 4 * 3);
  for (std::size_t i = 0; i < rgba.size(); i += 4) {
    for (std::size_t c = 0; c < 3; ++c) image.rgb.push_back(over_white(rgba[i + c], rgba[i + 3]));
  }
  return upright(std::move(image), exif_orientation(reader.exif()));
}

}  // namespace metronome
