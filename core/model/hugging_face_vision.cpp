// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_vision.h"

#include <cstdint>
#include <fmt/core.h>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json.h"

namespace metronome {
namespace {

std::vector<std::int64_t> read_integers(const JsonSection& section, const char* key,
                                        std::vector<std::int64_t> otherwise) {
  const Json* const values = section.find(key);
  if (values == nullptr) return otherwise;
  constexpr std::uint64_t kMax = 1 << 20;
  std::vector<std::int64_t> integers;
  const auto refuse = [&] {
    section.fail(key, "must be a list of integers, got " + JsonSection::excerpt(*values) +
                          "; allowed: integers up to 2^20");
  };
  if (!values->is_array()) refuse();
  for (const Json& value : *values) {
    if (!value.is_number_unsigned() || value.get<std::uint64_t>() > kMax) refuse();
    integers.push_back(value.get<std::int64_t>());
  }
  return integers;
}

std::int32_t read_token(const JsonSection& root, const char* key, std::int64_t otherwise) {
  constexpr std::int64_t kMax = std::numeric_limits<std::int32_t>::max();
  const std::int64_t id = root.integer_or(key, otherwise);
  if (id > kMax) root.fail(key, fmt::format("is {}; allowed: 0 to 2^31 - 1", id));
  return static_cast<std::int32_t>(id);
}

// RoPE of the tower has one base, and the activation is one function.
void refuse_other_towers(const JsonSection& vision, ModelConfig& model) {
  const std::string activation = vision.text_or("hidden_act", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") {
    model.refuse(vision.dotted("hidden_act"), JsonSection::excerpt(Json(activation)) +
                                                  " is not supported; allowed: gelu_pytorch_tanh");
  }
  const std::optional<JsonSection> rope = vision.section("rope_parameters");
  if (!rope) return;
  if (rope->text_or("rope_type", "axial") != "axial" ||
      rope->number_or("rope_theta", 10000) != 10000) {
    model.refuse(vision.dotted("rope_parameters"),
                 "another RoPE is not supported; allowed: rope_type axial, rope_theta 10000");
  }
}

void read_mrope(const JsonSection& text, ModelConfig& model) {
  const char* const key = text.find("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters";
  const std::optional<JsonSection> rope = text.section(key);
  model.mrope_sections = {24, 20, 20};
  if (!rope) return;
  model.mrope_sections = read_integers(*rope, "mrope_section", model.mrope_sections);
  if (!rope->boolean_or("mrope_interleaved", true)) {
    model.refuse(rope->dotted("mrope_interleaved"),
                 "sections one behind the other are not supported; allowed: true");
  }
}

}  // namespace

void read_vision(const JsonSection& root, const JsonSection& text, ModelConfig& model) {
  const JsonSection vision = root.required_section("vision_config");
  VisionTower& tower = model.vision;
  tower.depth = vision.integer_or("depth", 27);
  tower.hidden_dim = vision.integer_or("hidden_size", 1152);
  tower.n_heads = vision.integer_or("num_heads", 16);
  tower.ffn_dim = vision.integer_or("intermediate_size", 4304);
  tower.in_channels = vision.integer_or("in_channels", 3);
  tower.patch_size = vision.integer_or("patch_size", 16);
  tower.temporal_patch_size = vision.integer_or("temporal_patch_size", 2);
  tower.merge_size = vision.integer_or("spatial_merge_size", 2);
  tower.out_dim = vision.integer_or("out_hidden_size", 3584);
  tower.num_positions = vision.integer_or("num_position_embeddings", 2304);
  tower.deepstack_layers = read_integers(vision, "deepstack_visual_indexes", {8, 16, 24});
  tower.image_token = read_token(root, "image_token_id", 151655);
  tower.start_token = read_token(root, "vision_start_token_id", 151652);
  tower.end_token = read_token(root, "vision_end_token_id", 151653);
  if (tower.depth == 0) vision.fail("depth", "is 0; allowed: at least 1");
  if (tower.out_dim != model.hidden_dim) {
    model.refuse(vision.dotted("out_hidden_size"),
                 fmt::format("{} is another width than the language model's; allowed: {}",
                             tower.out_dim, model.hidden_dim));
  }
  refuse_other_towers(vision, model);
  read_mrope(text, model);
}

}  // namespace metronome
