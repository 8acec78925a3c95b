// SPDX-License-Identifier: Apache-2.0
// Images in drawn prompts: keys, checks and draws.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fmt/core.h>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/files.h"
#include "core/base/names.h"
#include "core/base/rng.h"
#include "core/model/image_grid.h"
#include "core/model/image_pixels.h"
#include "core/workload/file_readers.h"
#include "core/workload/length_draws.h"
#include "core/workload/workload.h"
#include "core/workload/workload_sections.h"

namespace metronome {

namespace {

constexpr std::string_view kImageKindNames[] = {"none", "tokens", "pixels", "folder"};
constexpr std::string_view kImagePlaceNames[] = {"start", "end", "spread"};
constexpr std::int32_t kNumMarks = 1;  // tokens on each side of an image
constexpr std::int64_t kMaxImagesOfRequest = 4096;

constexpr unsigned kAnyImage = bits(ImageKind::Tokens, ImageKind::Pixels, ImageKind::Folder);
constexpr KeyUse kImageUses[] = {
    {"share", kAnyImage},
    {"count", kAnyImage},
    {"tokens", bits(ImageKind::Tokens), bits(ImageKind::Tokens)},
    {"width", bits(ImageKind::Pixels), bits(ImageKind::Pixels)},
    {"height", bits(ImageKind::Pixels), bits(ImageKind::Pixels)},
    {"folder", bits(ImageKind::Folder), bits(ImageKind::Folder)},
    {"place", kAnyImage},
    {"num_distinct", bits(ImageKind::Tokens, ImageKind::Pixels)},
    {"pixels_per_token", kAnyImage},
    {"min_pixels", kAnyImage},
    {"max_pixels", kAnyImage},
};
constexpr UseTable kImages = {"kind", kImageKindNames, kImageUses};

Unused unused_by_image_kind(std::string_view name) { return unused_in_table(kImages, name); }

// The grid that an image of these pixels has.
ImageGrid token_grid(const ImageConfig& config, std::int64_t height, std::int64_t width) {
  VisionTower tower;
  tower.depth = 1;
  tower.patch_size = config.pixels_per_token;
  tower.merge_size = 1;
  return image_grid(tower, height, width, config.min_pixels, config.max_pixels);
}

void check_fits(const ImageConfig& config, std::int64_t num_tokens) {
  if (num_tokens <= config.max_tokens()) return;
  throw UnplacedConfigError("workload.images.max_pixels",
                            fmt::format("an image of {} tokens is drawn, and max_pixels has room "
                                        "for {}; allowed: smaller images, or more pixels",
                                        num_tokens, config.max_tokens()));
}

// The tokens of one image after the other.
class ImageSizes {
 public:
  ImageSizes(const ImageConfig& config, std::uint64_t seed)
      : config_(config),
        tokens_(config.tokens, seed, "image_tokens"),
        widths_(config.width, seed, "image_width"),
        heights_(config.height, seed, "image_height") {}

  std::int32_t next() {
    const std::int64_t num_tokens =
        config_.kind == ImageKind::Tokens ? tokens_.next() : tokens_of_pixels();
    check_fits(config_, num_tokens);
    return static_cast<std::int32_t>(num_tokens);
  }

 private:
  std::int64_t tokens_of_pixels() {
    const std::int64_t width = widths_.next();
    const std::int64_t height = heights_.next();
    if (const std::string error = image_size_error(height, width); !error.empty()) {
      throw UnplacedConfigError("workload.images", error);
    }
    return token_grid(config_, height, width).num_tokens;
  }

  const ImageConfig& config_;
  LengthDraws tokens_, widths_, heights_;
};

// Draws which image comes next, and how long it is.
class ImageDraws {
 public:
  struct Image {
    std::uint64_t content;
    std::int32_t num_tokens;
  };

  // Adds what is known of a folder's files to `pictures`.
  ImageDraws(const ImageConfig& config, std::uint64_t seed,
             std::map<std::uint64_t, Workload::Picture>& pictures)
      : sizes_(config, seed), rng_(seed, "image") {
    for (std::int64_t i = 0; i < config.num_distinct; ++i) pool_.push_back(new_image());
    if (config.kind != ImageKind::Folder) return;
    const WorkloadFileReaders& readers = workload_readers(config.where, "workload.images.folder");
    for (const std::shared_ptr<const ImageFile>& file : read_pictures(config)) {
      const ImagePixels pixels = readers.read_image(file->bytes, file->name);
      if (const std::string error = image_size_error(pixels.height, pixels.width); !error.empty()) {
        throw ConfigError(printable(file->name + ": " + error + "; allowed: another picture"));
      }
      const ImageGrid grid = token_grid(config, pixels.height, pixels.width);
      check_fits(config, grid.num_tokens);
      const std::uint64_t content = content_id(ContentKind::Image, file_content(file->bytes));
      pool_.push_back({content, static_cast<std::int32_t>(grid.num_tokens)});
      pictures[content] = {static_cast<std::int32_t>(grid.n_patch_rows),
                           static_cast<std::int32_t>(grid.n_patch_columns), file};
    }
  }

  Image next() {
    if (pool_.empty()) return new_image();
    const auto last = static_cast<std::int64_t>(pool_.size()) - 1;
    return pool_[static_cast<std::size_t>(rng_.uniform_int(0, last))];
  }

 private:
  Image new_image() { return {content_id(ContentKind::Image, num_images_++), sizes_.next()}; }

  ImageSizes sizes_;
  Rng rng_;
  std::vector<Image> pool_;
  std::uint64_t num_images_ = 0;
};

// Writes the prompt of one request: prefix, then text and images.
class ImagePrompt {
 public:
  ImagePrompt(std::size_t request, std::vector<PromptSegment> prefix, Workload& workload)
      : request_(request), workload_(workload) {
    workload_.segment_begin.push_back(static_cast<std::uint32_t>(workload_.segments.size()));
    workload_.image_begin.push_back(static_cast<std::uint32_t>(workload_.images.size()));
    for (const PromptSegment& segment : prefix) add(segment);
  }

  void add_text(std::int32_t num_tokens) {
    if (num_tokens == 0) return;
    // The parts of a request's text differ.
    const std::uint64_t id = num_parts_++ << 32 | static_cast<std::uint64_t>(request_);
    add({content_id(ContentKind::Request, id), num_tokens});
  }
  void add_image(const ImageDraws::Image& image) {
    add_text(kNumMarks);
    workload_.images.push_back({.content = image.content,
                                .begin = position_,
                                .num_tokens = image.num_tokens,
                                .num_embeddings = image.num_tokens});
    add({image.content, image.num_tokens});
    add_text(kNumMarks);
  }
  std::int64_t num_tokens() const { return position_; }

 private:
  void add(const PromptSegment& segment) {
    if (std::int64_t{position_} + segment.num_tokens > kMaxLengthTokens) {
      throw UnplacedConfigError(
          "workload.images",
          fmt::format("a prompt is too long; allowed: at most {} tokens with its images",
                      kMaxLengthTokens));
    }
    workload_.segments.push_back(segment);
    position_ += segment.num_tokens;
  }

  std::size_t request_;
  Workload& workload_;
  std::uint64_t num_parts_ = 0;
  std::int32_t position_ = 0;
};

// Images and text in turn: `before` says how many of `num_text` tokens come before each image.
void write_prompt(const ImageConfig& config, std::int32_t num_text, std::int64_t num_images,
                  ImageDraws& draws, ImagePrompt& prompt) {
  std::int64_t num_written = 0;
  for (std::int64_t i = 0; i < num_images; ++i) {
    std::int64_t num_before = 0;
    if (config.place == ImagePlace::End) num_before = num_text;
    if (config.place == ImagePlace::Spread) num_before = num_text * (i + 1) / (num_images + 1);
    prompt.add_text(static_cast<std::int32_t>(num_before - num_written));
    num_written = num_before;
    prompt.add_image(draws.next());
  }
  prompt.add_text(static_cast<std::int32_t>(num_text - num_written));
}

}  // namespace

std::vector<std::shared_ptr<const ImageFile>> read_pictures(const ImageConfig& config) {
  constexpr const char* kKey = "workload.images.folder";
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(config.folder, error), end; entry != end && !error;
       entry.increment(error)) {
    std::string extension = entry->path().extension().string();
    for (char& c : extension) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    if (extension == ".png" || extension == ".jpg" || extension == ".jpeg") {
      names.push_back(entry->path().string());
    }
  }
  if (error) {
    fail_config(config.where, kKey,
                "'" + config.folder + "' cannot be read (" + error.message() +
                    "); allowed: a folder of PNG and JPEG files");
  }
  if (names.empty()) {
    fail_config(config.where, kKey,
                "'" + config.folder + "' has no picture; allowed: a folder of PNG and JPEG files");
  }
  std::sort(names.begin(), names.end());
  std::vector<std::shared_ptr<const ImageFile>> files;
  for (std::string& name : names) {
    std::string bytes = read_file(name, "a readable file");
    files.push_back(
        std::make_shared<const ImageFile>(ImageFile{std::move(name), std::move(bytes)}));
  }
  return files;
}

void visit_images(FieldVisitor& v, ImageConfig& c) {
  if (!v.open_section("images",
                      "images in prompts, behind the prefix; for models that take them")) {
    return;
  }
  v.choice("kind", c.kind, kImageKindNames,
           "how the size of an image is given; tokens are without the mark on each side");
  v.number("share", c.share, 0, 1, "share of the requests that have images");
  visit_length(v, "count", c.count, "images of such a request");
  visit_length(v, "tokens", c.tokens, "tokens: tokens of an image");
  visit_length(v, "width", c.width, "pixels: width of an image");
  visit_length(v, "height", c.height, "pixels: height of an image");
  v.path("folder", c.folder,
         "folder: PNG and JPEG files that images are drawn from; a path as that of a trace");
  v.choice("place", c.place, kImagePlaceNames,
           "where images are: before, behind or evenly among the text of prompt_tokens");
  v.integer("num_distinct", c.num_distinct, 0, 1'000'000,
            "tokens, pixels: images that requests draw from, so that some have the same; "
            "0 = all differ");
  v.integer("pixels_per_token", c.pixels_per_token, 1, 1024,
            "side of a token in pixels: the model's patch size times its merge size");
  v.integer("min_pixels", c.min_pixels, 1, std::int64_t{1} << 40,
            "smaller images are enlarged; Qwen3-VL's processor has 65536");
  v.integer("max_pixels", c.max_pixels, 1, std::int64_t{1} << 40,
            "larger images are reduced, and the encoder's cache holds one such image; Qwen3-VL's "
            "processor has 16777216");
  v.close_section();
}

void append_image_choices(std::vector<Choice>& choices) {
  choices.push_back({"images", kImages.selector, unused_by_image_kind});
  for (const char* key : {"count", "tokens", "width", "height"}) {
    append_length_choices("images." + std::string(key), choices);
  }
}

void check_images(const Section& section, const ImageConfig& c) {
  if (!c.is_on()) return;
  check_needed(section, kImages, static_cast<std::size_t>(c.kind));
  const std::pair<const char*, const LengthConfig*> lengths[] = {
      {"count", &c.count}, {"tokens", &c.tokens}, {"width", &c.width}, {"height", &c.height}};
  for (const auto& [key, length] : lengths) {
    if (section.get(key) != nullptr) {
      check_length(Section(*section.node, section.path, key), *length);
    }
  }
  if (c.max_pixels < c.min_pixels || c.max_tokens() < 1) {
    section.fail("max_pixels", fmt::format("{} has no room for one image; allowed: at least "
                                           "min_pixels and pixels_per_token squared",
                                           c.max_pixels));
  }
}

void draw_images(const ImageConfig& config, std::uint64_t seed, std::int32_t num_prefix_tokens,
                 Workload& workload) {
  if (!config.is_on()) return;
  Rng chooser(seed, "image_share");
  LengthDraws counts(config.count, seed, "image_count");
  ImageDraws draws(config, seed, workload.pictures);
  const std::vector<PromptSegment> old_segments = std::move(workload.segments);
  const std::vector<std::uint32_t> old_begin = std::move(workload.segment_begin);
  workload.segments.clear();
  workload.segment_begin.clear();
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    RequestSpec& request = workload.requests[i];
    std::vector<PromptSegment> prefix;
    if (!old_begin.empty()) {  // the last segment is the request's text
      const auto begin = old_segments.begin();
      prefix.assign(begin + static_cast<std::ptrdiff_t>(old_begin[i]),
                    begin + static_cast<std::ptrdiff_t>(old_begin[i + 1]) - 1);
    }
    const bool has_images = chooser.uniform() < config.share;
    const std::int64_t count = std::min(counts.next(), kMaxImagesOfRequest);
    ImagePrompt prompt(i, std::move(prefix), workload);
    write_prompt(config, request.num_prompt_tokens - num_prefix_tokens, has_images ? count : 0,
                 draws, prompt);
    request.num_prompt_tokens = static_cast<std::int32_t>(prompt.num_tokens());
  }
  workload.segment_begin.push_back(static_cast<std::uint32_t>(workload.segments.size()));
  workload.image_begin.push_back(static_cast<std::uint32_t>(workload.images.size()));
}

}  // namespace metronome
