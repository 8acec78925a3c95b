// SPDX-License-Identifier: Apache-2.0
// Models with a vision tower: their config.json, and M-RoPE.
#include <string>
#include <vector>

#include "core/base/files.h"
#include "core/model/model_catalogue.h"
#include "core/model/mrope.h"
#include "gpu/plan/memory_plan.h"
#include "tests/catch.h"
#include "tests/error_of.h"
#include "tests/places.h"

namespace metronome::TEST_FILE {
namespace {

std::string fixture_json() {
  return read_file(testing::source_dir() + "/tests/fixtures/vision_models/one-image/config.json")
      .value();
}

ModelConfig parse(const std::string& json) {
  return parse_hugging_face_config(json, "config.json", "test");
}

// The fixture's file with `from` replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string json = fixture_json();
  const std::size_t at = json.find(from);
  REQUIRE(at != std::string::npos);
  return json.replace(at, from.size(), to);
}

std::string error_with(const std::string& from, const std::string& to) {
  return testing::error_of([&] { parse(with(from, to)); });
}

TEST_CASE("the tower of a config.json", "[model][images]") {
  const ModelConfig model = parse(fixture_json());
  const VisionTower& tower = model.vision;
  CHECK(model.unsupported.empty());
  CHECK(model.has_qk_norm);
  CHECK(model.mrope_sections == std::vector<std::int64_t>{4, 2, 2});
  CHECK(tower.depth == 3);
  CHECK(tower.hidden_dim == 32);
  CHECK(tower.patch_size == 4);
  CHECK(tower.merge_size == 2);
  CHECK(tower.out_dim == model.hidden_dim);
  CHECK(tower.deepstack_layers == std::vector<std::int64_t>{0, 2});
  CHECK(tower.image_token == 152);
  CHECK(tower.features_per_token() == 3);
}

TEST_CASE("a malformed tower is refused in one line", "[model][images]") {
  CHECK(error_with("\"depth\": 3", "\"depth\": 0") ==
        "config.json: vision_config.depth: is 0; allowed: at least 1");
  CHECK(error_with("\"out_hidden_size\": 64", "\"out_hidden_size\": 0") ==
        "config.json: vision_config.out_hidden_size: is 0; allowed: 1 to 1048576");
  // A simulation counts it, as transformers' default of Qwen3-VL.
  CHECK(parse(with("\"out_hidden_size\": 64", "\"out_hidden_size\": 60")).unsupported ==
        "vision_config.out_hidden_size: 60 is another width than the language model's; "
        "allowed: 64");
  CHECK(error_with("\"num_heads\": 2", "\"num_heads\": 3") ==
        "config.json: vision_config.hidden_size: is 32; allowed: a multiple of 4 times "
        "vision_config.num_heads, 12");
  CHECK(error_with("\"image_token_id\": 152", "\"image_token_id\": 160") ==
        "config.json: image_token_id: is 160; allowed: -1 to 159");
  CHECK(error_with("\"deepstack_visual_indexes\": [", "\"deepstack_visual_indexes\": [2, ")
            .starts_with("config.json: vision_config.deepstack_visual_indexes: contains 0; "
                         "allowed: 0 to 2"));
  CHECK(error_with("\"mrope_section\": [", "\"mrope_section\": [1, ")
            .starts_with("config.json: text_config.rope_parameters.mrope_section: add up to 9 in "
                         "4 parts"));
  CHECK(parse(with("gelu_pytorch_tanh", "silu")).unsupported ==
        "vision_config.hidden_act: \"silu\" is not supported; allowed: gelu_pytorch_tanh");
  CHECK(parse(with("\"mrope_interleaved\": true", "\"mrope_interleaved\": false"))
            .unsupported.starts_with("text_config.rope_parameters.mrope_interleaved: "));
}

TEST_CASE("the GPU refuses a model with a vision tower by name", "[model][images]") {
  CHECK(
      unsupported_on_gpu(parse(fixture_json())).starts_with("vision: is not computed on the GPU"));
}

TEST_CASE("text goes on behind an image by its longer side", "[model][images]") {
  // Two tokens, an image of 2 x 3, one token, an image of 3 x 1, and text.
  const ImageSpan images[] = {{2, 2, 3}, {9, 3, 1}};
  const RopePosition expected[] = {{0, 0, 0}, {1, 1, 1}, {2, 2, 2}, {2, 2, 3},   {2, 2, 4},
                                   {2, 3, 2}, {2, 3, 3}, {2, 3, 4}, {5, 5, 5},   {6, 6, 6},
                                   {6, 7, 6}, {6, 8, 6}, {9, 9, 9}, {10, 10, 10}};
  for (std::int32_t token = 0; token < 14; ++token) {
    INFO(token);
    CHECK(rope_position(images, token) == expected[token]);
  }
  CHECK(rope_position({}, 7) == RopePosition{7, 7, 7});
  CHECK(expected[4].is_text() == false);
}

TEST_CASE("pairs turn by time, height and width in turn", "[model][images]") {
  const std::int64_t sections[] = {4, 2, 1};
  CHECK(mrope_axes(sections, 7) == std::vector<std::uint8_t>{0, 1, 2, 0, 1, 0, 0});
}

}  // namespace
}  // namespace metronome::TEST_FILE
