// SPDX-License-Identifier: Apache-2.0
// Pictures in workloads: in the lines of a trace, and in a folder.
#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "core/base/base64.h"
#include "core/base/files.h"
#include "core/run/workload_input.h"
#include "models/image/image_file.h"
#include "models/image/image_processor.h"
#include "models/image/image_resize.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"
#include "tests/places.h"
#include "tests/scratch_folder.h"

namespace metronome::testing::TEST_FILE {
namespace {

namespace fs = std::filesystem;

std::string picture_path(const std::string& name) {
  return source_dir() + "/tests/fixtures/images/" + name;
}
std::string picture_bytes(const std::string& name) { return read_file(picture_path(name)).value(); }

VisionTower tower() {
  VisionTower tower;
  tower.depth = 1;
  tower.patch_size = 4;
  tower.temporal_patch_size = 2;
  tower.merge_size = 2;
  tower.image_token = 99;
  return tower;
}

// ---- Traces ----

std::string data_url(const std::string& name) {
  return "data:image/png;base64," + encode_base64(picture_bytes(name));
}

// A line whose prompt has the ids 0, 1, ...
std::string line_of(int num_tokens, int arrival_ns, const std::string& images) {
  std::string ids;
  for (int i = 0; i < num_tokens; ++i) ids += (i > 0 ? ", " : "") + std::to_string(i);
  return "{\"input_toks\": " + std::to_string(num_tokens) +
         ", \"output_toks\": 2, \"arrival_time_ns\": " + std::to_string(arrival_ns) +
         ", \"input_tok_ids\": [" + ids + "]" +
         (images.empty() ? "" : ", \"images\": [" + images + "]") + "}\n";
}

struct PictureTrace {
  ScratchFolder folder;

  Workload load(const std::string& text, const std::string& keys = "") {
    folder.write("t", text);
    return make_workload(read_config("{trace: {file: t" + keys + "}}", folder.path()), 7);
  }
  std::string error(const std::string& images, int num_tokens = 20) {
    const std::string message = error_of([&] { load(line_of(num_tokens, 0, images)); });
    const std::size_t at = message.find("/t:1: ");
    return at == message.npos ? message : message.substr(at + 6);
  }
};

TEST_CASE("a line of a trace has images", "[core][trace][images]") {
  PictureTrace trace;
  // The first line comes last, and its second image has its file in the other line.
  const std::string text =
      line_of(20, 900,
              R"({"first_token": 1, "rows": 2, "columns": 3, "content": 7},)"
              R"({"first_token": 10, "rows": 2, "columns": 2, "content": 8})") +
      line_of(6, 500, "") +
      line_of(9, 100,
              R"({"url": ")" + data_url("grey.png") +
                  R"(", "content": 8, "columns": 2, "rows": 2, "first_token": 5})");
  const Workload workload = trace.load(text);
  REQUIRE(workload.requests.size() == 3);
  const auto items_of = [&](std::size_t i) {
    std::string found;
    for (const EncoderItem& item : workload.encoder_items(static_cast<RequestId>(i))) {
      found += std::to_string(item.content) + "@" + std::to_string(item.begin) + "+" +
               std::to_string(item.num_tokens) + " ";
      CHECK(item.first_embedding == 0);
      CHECK(item.num_embeddings == item.num_tokens);
    }
    return found;
  };
  CHECK(items_of(0) == "8@5+4 ");
  CHECK(items_of(1).empty());
  CHECK(items_of(2) == "7@1+6 8@10+4 ");
  CHECK(trace.load(text, ", limit: 2").images.size() == 1);

  // The executor gets the grid, the file's bytes, and the model's id for images.
  const WorkloadInput input(workload, 1, 100, {}, tower());
  const std::span<const PromptImage> images = input.images(RequestId(2));
  REQUIRE(images.size() == 2);
  CHECK(images[0].grid == grid_of_tokens(tower(), 2, 3));
  CHECK(images[0].file == nullptr);
  CHECK(images[1].first_token == 10);
  REQUIRE(images[1].file);
  CHECK(images[1].file->bytes == picture_bytes("grey.png"));
  std::vector<TokenId> prompt;
  input.prompt(RequestId(0), prompt);
  CHECK(std::count(prompt.begin(), prompt.end(), TokenId{99}) == 4);
}

TEST_CASE("images without content are shared by their files", "[core][trace][images]") {
  PictureTrace trace;
  const auto image = [](int first, const std::string& name) {
    return R"({"first_token": )" + std::to_string(first) +
           R"(, "rows": 1, "columns": 4, "url": ")" + data_url(name) + "\"}";
  };
  const Workload workload =
      trace.load(line_of(20, 0, image(0, "grey.png") + "," + image(4, "alpha.png")) +
                 line_of(20, 1, image(9, "grey.png")));
  REQUIRE(workload.images.size() == 3);
  CHECK(workload.images[0].content == workload.images[2].content);
  CHECK(workload.images[0].content != workload.images[1].content);
}

TEST_CASE("a trace whose images cannot be is refused", "[core][trace][images]") {
  PictureTrace trace;
  CHECK(trace.error(R"({"first_token": 1, "rows": 2, "columns": 3})") ==
        "images.content: missing; an image has content, url, or both");
  CHECK(trace.error(R"({"first_token": 1, "rows": 2, "content": 5})") ==
        "images: one lacks a field; an image has first_token, rows and columns");
  CHECK(trace.error(R"({"first_token": 15, "rows": 2, "columns": 3, "content": 1})") ==
        "images: tokens 15 to 20 are not an image's; allowed: from 0 to 19, in order, inside the "
        "prompt");
  CHECK(trace
            .error(R"({"first_token": 0, "rows": 2, "columns": 3, "content": 1},)"
                   R"({"first_token": 5, "rows": 2, "columns": 3, "content": 1})")
            .starts_with("images: tokens 5 to 10 are not an image's; allowed: from 6 to 19"));
  CHECK(trace.error(R"({"first_token": 0, "rows": 2, "columns": 3, "content": 1},)"
                    R"({"first_token": 6, "rows": 3, "columns": 2, "content": 1})") ==
        "images: 3 x 2 tokens, but the same content had 2 x 3 before; allowed: equal sizes");
  CHECK(trace.error(R"({"first_token": 0, "rows": 1048577, "columns": 1, "content": 1})")
            .starts_with("images.rows: '1048577' is out of range"));
  CHECK(trace.error(R"({"first_token": 0, "rows": 1, "columns": 1, "url": "cat.png"})") ==
        "images.url: 'cat.png' is not a data: URL; allowed: data:image/png;base64,... or "
        "image/jpeg");
  CHECK(trace.error(R"({"first_token": 0, "rows": 1, "columns": 1, "url": "data:x;base64,%"})")
            .starts_with("images.url: "));
  CHECK(
      trace.error(R"({"first_token": 0, "size": 4})").starts_with("images: 'size' is not a field"));
  CHECK(trace.error("7").starts_with("character "));
}

TEST_CASE("an image of a file has the pixels of the file, resized", "[core][images]") {
  ImageProcessor processor;
  processor.tower = tower();
  const std::string bytes = picture_bytes("full-colour.jpg");
  PromptImage image;
  image.grid = grid_of_tokens(tower(), 3, 5);
  image.file = std::make_shared<const ImageFile>(ImageFile{"x", bytes});
  PromptImage resized;
  resized.grid = image.grid;
  resized.pixels = std::make_shared<const ImagePixels>(
      resize_image(read_image(bytes, "x"), image.grid.height, image.grid.width));
  CHECK(processor.patches(image) == processor.patches(resized));
  image.file = std::make_shared<const ImageFile>(ImageFile{"t:3: images.url", "no picture"});
  CHECK(error_of([&] {
          processor.patches(image);
        }).starts_with("t:3: images.url: is neither PNG nor JPEG"));
}

// ---- A folder ----

constexpr const char* kDrawn =
    "num_requests: 100, arrivals: {rate: 1}, prompt_tokens: {value: 9}, output_tokens: {value: 5}";

Workload with_folder(const ScratchFolder& scratch, const std::string& more = "") {
  return make_workload(
      read_config("{" + std::string(kDrawn) +
                      ", images: {kind: folder, folder: pictures, pixels_per_token: 8, min_pixels: "
                      "64, max_pixels: 4096" +
                      more + "}}",
                  scratch.path()),
      7);
}

TEST_CASE("images are drawn from the pictures of a folder", "[core][workload][images]") {
  const ScratchFolder scratch;
  scratch.write("pictures/b.PNG", picture_bytes("grey.png"));
  scratch.write("pictures/same.png", picture_bytes("grey.png"));
  scratch.write("pictures/c.jpeg", picture_bytes("tall.jpg"));
  scratch.write("pictures/readme.txt", "not a picture");
  const Workload workload = with_folder(scratch);
  REQUIRE(workload.images.size() == 100);
  REQUIRE(workload.pictures.size() == 2);  // two files have equal bytes
  VisionTower tower;
  tower.depth = 1;
  tower.patch_size = 8;
  tower.merge_size = 1;
  std::map<std::uint64_t, int> counts;
  for (const EncoderItem& item : workload.images) {
    ++counts[item.content];
    const Workload::Picture& picture = workload.pictures.at(item.content);
    const ImagePixels pixels = read_image(picture.file->bytes, picture.file->name);
    const ImageGrid grid = image_grid(tower, pixels.height, pixels.width, 64, 4096);
    CHECK(grid == grid_of_tokens(tower, picture.rows, picture.columns));
    CHECK(item.num_tokens == grid.num_tokens);
  }
  CHECK(counts.size() == 2);
  for (const auto& [content, count] : counts) CHECK(count > 15);
}

TEST_CASE("a folder without pictures is refused", "[core][workload][images]") {
  const ScratchFolder scratch;
  const std::string place = "w.yaml:1: workload.images.folder: '" + scratch.path() + "/pictures' ";
  CHECK(error_of([&] { with_folder(scratch); }) ==
        place +
            "cannot be read (No such file or directory); allowed: a folder of PNG and JPEG "
            "files");
  fs::create_directory(scratch.path() + "/pictures");
  CHECK(error_of([&] { with_folder(scratch); }) ==
        place + "has no picture; allowed: a folder of PNG and JPEG files");
  CHECK(error_of([&] {
          with_folder(scratch, ", num_distinct: 3");
        }).starts_with("w.yaml:1: workload.images.num_distinct: not used"));
  const std::string broken =
      scratch.write("pictures/a.png", picture_bytes("grey.png").substr(0, 40));
  CHECK(error_of([&] { with_folder(scratch); }).starts_with(broken + ": is a broken PNG file"));
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
