// SPDX-License-Identifier: Apache-2.0
// Images in traces.
#include <fmt/core.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "core/base/base64.h"
#include "core/model/image_pixels.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {
namespace {

// The bytes of a data: URL.
std::string bytes_of(const std::string& url, const TraceLines& lines) {
  const std::optional<std::string_view> text = base64_of_url(url);
  std::optional<std::string> bytes = text ? decode_base64(*text) : std::nullopt;
  if (!bytes) {
    lines.fail("images.url", quote_for_message(url) +
                                 " is not a data: URL; allowed: data:image/png;base64,... or "
                                 "image/jpeg");
  }
  return std::move(*bytes);
}

}  // namespace

void add_trace_images(std::span<const TraceImage> images, std::int32_t num_prompt_tokens,
                      const TraceLines& lines, Workload& workload) {
  std::int64_t end = 0;  // of the image before
  for (const TraceImage& image : images) {
    if (image.first_token < 0 || image.rows == 0 || image.columns == 0) {
      lines.fail("images", "one lacks a field; an image has first_token, rows and columns");
    }
    const std::int64_t num_tokens = std::int64_t{image.rows} * image.columns;
    if (image.first_token < end || image.first_token + num_tokens > num_prompt_tokens) {
      lines.fail("images", fmt::format("tokens {} to {} are not an image's; allowed: from {} to "
                                       "{}, in order, inside the prompt",
                                       image.first_token, image.first_token + num_tokens - 1, end,
                                       num_prompt_tokens - 1));
    }
    end = image.first_token + num_tokens;

    std::shared_ptr<const ImageFile> file;
    if (!image.url.empty()) {
      file = std::make_shared<const ImageFile>(
          ImageFile{.name = lines.place("images.url"), .bytes = bytes_of(image.url, lines)});
    } else if (!image.content) {
      lines.fail("images.content", "missing; an image has content, url, or both");
    }
    const std::uint64_t content =
        image.content ? *image.content : content_id(ContentKind::Image, file_content(file->bytes));
    const auto [found, is_new] = workload.pictures.try_emplace(
        content, Workload::Picture{.rows = image.rows, .columns = image.columns, .file = file});
    Workload::Picture& picture = found->second;
    if (picture.rows != image.rows || picture.columns != image.columns) {
      lines.fail(
          "images",
          fmt::format(
              "{} x {} tokens, but the same content had {} x {} before; allowed: equal sizes",
              image.rows, image.columns, picture.rows, picture.columns));
    }
    if (!picture.file) picture.file = file;
    workload.images.push_back({.content = content,
                               .begin = image.first_token,
                               .num_tokens = static_cast<std::int32_t>(num_tokens),
                               .num_embeddings = static_cast<std::int32_t>(num_tokens)});
  }
}

}  // namespace metronome
