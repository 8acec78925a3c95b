// SPDX-License-Identifier: Apache-2.0
// JPEG files by libjpeg-turbo.
#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

// jpeglib.h needs cstdio before it.
#include <jerror.h>
#include <jpeglib.h>

#include "models/image/exif.h"
#include "models/image/image_file.h"
#include "models/image/image_formats.h"

namespace metronome {
namespace {

// Real files have about ten; more only take time.
constexpr int kMaxScans = 100;

// A marker of this kind has EXIF data if it begins so (EXIF 2.32, section 4.7.2).
constexpr int kExifMarker = JPEG_APP0 + 1;
constexpr std::string_view kExifHead("Exif\0\0", 6);

// Functions that libjpeg may leave by a jump have no variable with a destructor.
struct JpegErrors {
  jpeg_error_mgr manager;  // first: libjpeg hands it back
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX];
};

[[noreturn]] void leave_jpeg(j_common_ptr common) {
  auto* const errors = reinterpret_cast<JpegErrors*>(common->err);
  common->err->format_message(common, errors->message);
  std::longjmp(errors->jump, 1);
}

// Pixels that a file lacks are no image.
void hear_message(j_common_ptr common, int level) {
  if (level >= 0) return;
  const int code = common->err->msg_code;
  if (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER) leave_jpeg(common);
}

void watch_scans(j_common_ptr common) {
  auto* const jpeg = reinterpret_cast<j_decompress_ptr>(common);
  if (jpeg->input_scan_number > kMaxScans) ERREXIT(jpeg, JERR_BAD_PROGRESSION);
}

class JpegReader {
 public:
  JpegReader() {
    jpeg_.err = jpeg_std_error(&errors_.manager);
    errors_.manager.error_exit = leave_jpeg;
    errors_.manager.emit_message = hear_message;
    progress_.progress_monitor = watch_scans;
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;
  ~JpegReader() { jpeg_destroy_decompress(&jpeg_); }

  // Reads up to the pixels; false: broken.
  bool read_header(const unsigned char* bytes, unsigned long size) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_create_decompress(&jpeg_);
    jpeg_.progress = &progress_;
    jpeg_mem_src(&jpeg_, bytes, size);
    jpeg_save_markers(&jpeg_, kExifMarker, 0xffff);
    jpeg_read_header(&jpeg_, TRUE);
    return true;
  }

  // Reads the pixels to [height, width, 3]; false: broken.
  bool read_rows(unsigned char* out) {
    if (setjmp(errors_.jump) != 0) return false;
    jpeg_.out_color_space = JCS_RGB;
    jpeg_start_decompress(&jpeg_);
    while (jpeg_.output_scanline < jpeg_.output_height) {
      JSAMPROW row = out + std::size_t{jpeg_.output_scanline} * jpeg_.output_width * 3;
      jpeg_read_scanlines(&jpeg_, &row, 1);
    }
    jpeg_finish_decompress(&jpeg_);
    return true;
  }

  std::int64_t height() const { return jpeg_.image_height; }
  std::int64_t width() const { return jpeg_.image_width; }
  // Inks cannot be converted by libjpeg.
  bool has_inks() const {
    return jpeg_.jpeg_color_space == JCS_CMYK || jpeg_.jpeg_color_space == JCS_YCCK;
  }
  // EXIF data from its TIFF header on; empty: none.
  std::string_view exif() const {
    for (const jpeg_marker_struct* marker = jpeg_.marker_list; marker != nullptr;
         marker = marker->next) {
      const std::string_view data(reinterpret_cast<const char*>(marker->data), marker->data_length);
      if (data.starts_with(kExifHead)) return data.substr(kExifHead.size());
    }
    return {};
  }
  const char* message() const { return errors_.message; }

 private:
  jpeg_decompress_struct jpeg_ = {};
  JpegErrors errors_ = {};
  jpeg_progress_mgr progress_ = {};
};

}  // namespace

bool is_jpeg(std::string_view bytes) { return bytes.starts_with("\xff\xd8\xff"); }

ImagePixels read_jpeg(std::string_view bytes, const std::string& name) {
  JpegReader reader;
  const auto fail = [&] {
    refuse_image(name, std::string("is a broken JPEG file (") + reader.message() + ")");
  };
  if (!reader.read_header(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size())) {
    fail();
  }
  if (reader.has_inks()) refuse_image(name, "is a JPEG file of four inks, which is not supported");
  ImagePixels image{.height = reader.height(), .width = reader.width(), .rgb = {}};
  check_file_size(image.height, image.width, name);
  image.rgb.resize(static_cast<std::size_t>(image.height * image.width * 3));
  const int orientation = exif_orientation(reader.exif());  // before they are forgotten
  if (!reader.read_rows(image.rgb.data())) fail();
  return upright(std::move(image), orientation);
}

}  // namespace metronome
