// SPDX-License-Identifier: Apache-2.0
// Images in drawn prompts.
#include <algorithm>
#include <set>
#include <string>

#include "core/engine/kv/prefix_hash.h"
#include "tests/catch.h"
#include "tests/core/workload/workload_helpers.h"

namespace metronome::testing::TEST_FILE {
namespace {

constexpr const char* kText =
    "num_requests: 200, arrivals: {rate: 1}, prompt_tokens: {value: 90}, output_tokens: {value: "
    "5}";

Workload with_images(const std::string& images, const std::string& more = "") {
  return make("{" + std::string(kText) + more + ", images: {" + images + "}}");
}

std::string error_with(const std::string& images) {
  return error_of([&] { with_images(images); });
}

std::string error_as_drawn(const std::string& images) {
  try {
    with_images(images);
  } catch (const UnplacedConfigError& error) {
    return error.key() + ": " + error.message();
  }
  return {};
}

// The sum of a prompt's segments is its length, and its images are segments of it.
void check_prompts(const Workload& workload) {
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const auto id = static_cast<RequestId>(i);
    std::int32_t position = 0;
    std::size_t num_found = 0;
    const auto items = workload.encoder_items(id);
    for (const PromptSegment& segment : workload.prompt_segments(id)) {
      const auto item = std::find_if(items.begin(), items.end(), [&](const EncoderItem& one) {
        return one.begin == position && one.content == segment.content;
      });
      if (item != items.end()) {
        CHECK(item->num_tokens == segment.num_tokens);
        CHECK(item->num_embeddings == segment.num_tokens);
        ++num_found;
      }
      position += segment.num_tokens;
    }
    CHECK(num_found == items.size());
    CHECK(position == workload.requests[i].num_prompt_tokens);
  }
}

TEST_CASE("images stand before, behind or among the text, with a mark on each side",
          "[core][workload][images]") {
  const auto begins = [](const std::string& place) {
    const Workload workload =
        with_images("kind: tokens, count: {value: 2}, tokens: {value: 10}, place: " + place);
    check_prompts(workload);
    CHECK(workload.requests[3].num_prompt_tokens == 90 + 2 * 12);
    const auto items = workload.encoder_items(RequestId{3});
    return std::vector<std::int32_t>{items[0].begin, items[1].begin};
  };
  CHECK(begins("start") == std::vector<std::int32_t>{1, 13});
  CHECK(begins("end") == std::vector<std::int32_t>{91, 103});
  CHECK(begins("spread") == std::vector<std::int32_t>{31, 73});
}

TEST_CASE("a share of the requests has images, behind the prefix", "[core][workload][images]") {
  const Workload workload = with_images(
      "kind: tokens, share: 0.25, count: {distribution: uniform, min: 1, max: 3}, tokens: {value: "
      "7}",
      ", prefix: {kind: groups, num_groups: 1, prefix_tokens: 40}");
  check_prompts(workload);
  int num_with = 0;
  for (std::size_t i = 0; i < workload.requests.size(); ++i) {
    const auto items = workload.encoder_items(static_cast<RequestId>(i));
    CHECK(items.size() <= 3);
    if (items.empty()) continue;
    ++num_with;
    CHECK(items[0].begin == 41);
  }
  CHECK(num_with > 30);
  CHECK(num_with < 70);
  // The text is that of the workload without images.
  const Workload text = make("{" + std::string(kText) + "}");
  CHECK(workload.requests[9].arrival == text.requests[9].arrival);
}

TEST_CASE("pixels become tokens by the model's grid", "[core][workload][images]") {
  const Workload workload =
      with_images("kind: pixels, width: {value: 1920}, height: {value: 1080}");
  CHECK(workload.images[0].num_tokens == (1920 / 32) * (1088 / 32));
  const Workload reduced =
      with_images("kind: pixels, width: {value: 4000}, height: {value: 4000}, max_pixels: 1048576");
  CHECK(reduced.images[0].num_tokens == 1024);
}

TEST_CASE("requests draw from so many images", "[core][workload][images]") {
  const std::string sizes =
      "kind: tokens, tokens: {distribution: uniform, min: 3, max: 300}, place: spread";
  const auto contents = [](const Workload& workload) {
    std::set<std::pair<std::uint64_t, std::int32_t>> all;
    for (const EncoderItem& item : workload.images) all.emplace(item.content, item.num_tokens);
    return all;
  };
  CHECK(contents(with_images(sizes)).size() == 200);
  CHECK(contents(with_images(sizes + ", num_distinct: 4")).size() == 4);
}

TEST_CASE("images that cannot be are refused", "[core][workload][images]") {
  CHECK(error_with("kind: tokens").starts_with("w.yaml:1: workload.images.tokens: missing"));
  CHECK(error_with("kind: pixels, width: {value: 10}")
            .starts_with("w.yaml:1: workload.images.height: missing"));
  CHECK(error_with("kind: tokens, tokens: {value: 5}, width: {value: 9}")
            .starts_with("w.yaml:1: workload.images.width: not used"));
  CHECK(error_with("kind: tokens, tokens: {value: 5}, max_pixels: 9")
            .starts_with("w.yaml:1: workload.images.max_pixels: 9 has no room for one image"));
  CHECK(error_as_drawn("kind: tokens, tokens: {value: 17000}") ==
        "workload.images.max_pixels: an image of 17000 tokens is drawn, and max_pixels has room "
        "for 16384; allowed: smaller images, or more pixels");
  CHECK(error_as_drawn("kind: pixels, width: {value: 9000}, height: {value: 10}") ==
        "workload.images: an image of 9000 x 10 pixels; one side may be at most 200 times the "
        "other");
  CHECK(error_of([] {
          make(
              "{arrivals: {rate: 1}, sessions: {kind: chat, num_sessions: 1, turns: {value: 1}, "
              "think_time_ms: {value: 1}}, prompt_tokens: {value: 3}, output_tokens: {value: 3}, "
              "images: {kind: tokens, tokens: {value: 5}}}");
        }).starts_with("w.yaml:1: workload.images.kind: images in sessions"));
}

TEST_CASE("a block's hash has the images in it, and their places", "[core][engine][images]") {
  // Prompts of 12 equal ids.
  const auto chain_of = [](std::vector<EncoderItem> images) {
    Workload workload;
    workload.requests.push_back({.num_prompt_tokens = 12, .max_output_tokens = 1});
    workload.token_ids.assign(12, TokenId{7});
    workload.token_begin = {0, 12};
    workload.image_begin = {0, static_cast<std::uint32_t>(images.size())};
    workload.images = std::move(images);
    RequestTable requests;
    const Request& request = requests.add(workload.requests[0]);
    HashChain chain;
    const PrefixHasher hasher(&workload);
    hasher.extend(request, 4, 1, chain);  // in two parts, as a chain grows
    hasher.extend(request, 4, 3, chain);
    return chain;
  };
  const auto image = [](std::uint64_t content, std::int32_t begin, std::int32_t length) {
    return EncoderItem{
        .content = content, .begin = begin, .num_tokens = length, .num_embeddings = length};
  };
  const HashChain a = chain_of({image(1, 2, 8)});
  CHECK(a == chain_of({image(1, 2, 8)}));
  const HashChain other = chain_of({image(2, 2, 8)});
  const HashChain moved = chain_of({image(1, 3, 8)});
  const HashChain text = chain_of({});
  for (std::size_t i = 0; i < a.size(); ++i) {
    CHECK(a[i] != other[i]);
    CHECK(a[i] != moved[i]);
    CHECK(a[i] != text[i]);
  }
  // Images behind a block do not count.
  CHECK(chain_of({image(1, 0, 3), image(2, 8, 2)})[1] == chain_of({image(1, 0, 3)})[1]);
}

}  // namespace
}  // namespace metronome::testing::TEST_FILE
