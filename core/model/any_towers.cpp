// SPDX-License-Identifier: Apache-2.0
#include "core/model/any_towers.h"

#include <algorithm>

#include "core/model/any_keys.h"

namespace metronome {
namespace {

// Layers of full attention with MLPs, a table of positions, patches, and what leads to the language
// model's width.
std::int64_t encoder_params(const JsonSection& root, const JsonSection& section,
                            std::int64_t hidden_dim) {
  constexpr const char* kTowerHidden[] = {"embed_dim", "hidden_size", "width", "d_model",
                                          "vt_hidden_size"};
  constexpr const char* kTowerLayers[] = {"num_hidden_layers",    "depth",
                                          "num_layers",           "encoder_layers",
                                          "vt_num_hidden_layers", "n_layers"};
  constexpr const char* kTowerWidth[] = {"intermediate_size", "encoder_ffn_dim",
                                         "vt_intermediate_size"};
  constexpr const char* kTowerChannels[] = {"num_channels", "in_channels"};
  AnyKeys keys(section);
  const std::int64_t hidden = std::min<std::int64_t>(keys.number(kTowerHidden), 1 << 16);
  const std::int64_t layers = std::min<std::int64_t>(keys.number(kTowerLayers), 1024);
  if (hidden == 0 || layers == 0) return 0;
  const Json* const given = section.find("mlp_ratio");
  const double ratio = given != nullptr && given->is_number() ? given->get<double>() : 4;
  const auto usual = static_cast<std::int64_t>((ratio > 0 && ratio < 64 ? ratio : 4) *
                                               static_cast<double>(hidden));
  const std::int64_t width = keys.number(kTowerWidth, usual);
  const std::int64_t patch = std::min<std::int64_t>(keys.number("patch_size", 14), 256);
  const std::int64_t frames = std::min<std::int64_t>(keys.number("temporal_patch_size", 1), 16);
  const std::int64_t inputs =
      std::min<std::int64_t>(keys.number(kTowerChannels, 3), 16) * patch * patch * frames;
  const bool is_gated = section.text_or("hidden_act", "") == "silu";
  const std::int64_t of_layer = 4 * hidden * hidden + (is_gated ? 3 : 2) * hidden * width;
  const std::int64_t side =
      std::min<std::int64_t>(keys.number("image_size"), 1 << 14) / std::max<std::int64_t>(patch, 1);
  const std::int64_t positions = keys.number("num_position_embeddings", side * side);
  std::int64_t params = layers * of_layer + (inputs + positions) * hidden;
  if (keys.is_true("vision_use_head")) params += of_layer;
  // A projector: of joined patches, or of two layers, or of one.
  AnyKeys of_root(root);
  const std::int64_t merge = std::min<std::int64_t>(keys.number("spatial_merge_size"), 16);
  const std::int64_t root_merge = std::min<std::int64_t>(of_root.number("spatial_merge_size"), 16);
  if (merge > 0) {
    const std::int64_t joined = merge * merge * hidden;
    return params + joined * joined + joined * keys.number("out_hidden_size", hidden_dim);
  }
  if (root_merge > 0) params += root_merge * root_merge * hidden * hidden;
  const bool has_two = root.find("projector_hidden_act") != nullptr;
  return params + hidden * hidden_dim + (has_two ? hidden_dim * hidden_dim : 0);
}

}  // namespace

std::int64_t tower_params(const JsonSection& root, std::int64_t hidden_dim) {
  std::int64_t params = 0;
  for (const char* name : {"vision_config", "audio_config", "vision_tower_config",
                           "audio_encoder_config", "speech_config", "vit_config"}) {
    if (const auto section = root.section(name))
      params += encoder_params(root, *section, hidden_dim);
  }
  const auto thinker = root.section("thinker_config");
  return thinker ? params + tower_params(*thinker, hidden_dim) : params;
}

}  // namespace metronome
