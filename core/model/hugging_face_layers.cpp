// SPDX-License-Identifier: Apache-2.0
#include "core/model/hugging_face_layers.h"

#include <cstdint>
#include <fmt/core.h>
#include <string>
#include <vector>

#include "core/base/json.h"

namespace metronome {
namespace {

// Layers with a window, from the layer list of newer files.
std::vector<std::int64_t> listed_window_layers(const JsonSection& text, std::int64_t n_layers) {
  constexpr const char* kAllowed = "sliding_attention or full_attention";
  const Json& types = *text.layer_list("layer_types", n_layers, kAllowed);
  std::vector<std::int64_t> layers;
  for (std::int64_t i = 0; i < n_layers; ++i) {
    const Json& type = types[static_cast<std::size_t>(i)];
    if (type == "sliding_attention") {
      layers.push_back(i);
    } else if (type != "full_attention") {
      text.fail("layer_types", fmt::format("entry {} is {}; allowed: {} times {}", i,
                                           JsonSection::excerpt(type), n_layers, kAllowed));
    }
  }
  return layers;
}

// Stores which layers have the window: as an interval if one describes them.
void set_window_layers(const std::vector<std::int64_t>& layers, ModelConfig& model) {
  if (layers.empty()) model.sliding_window = 0;
  std::int64_t first_full = 0;
  while (first_full < static_cast<std::int64_t>(layers.size()) &&
         layers[static_cast<std::size_t>(first_full)] == first_full) {
    ++first_full;
  }
  model.global_layer_interval = first_full < model.n_layers ? first_full + 1 : 0;
  if (model.sliding_window == 0) model.global_layer_interval = 0;
  std::vector<std::int64_t> by_interval;
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if (model.is_window_layer(i)) by_interval.push_back(i);
  }
  if (by_interval == layers) return;
  model.global_layer_interval = 0;
  model.window_layers = layers;
}

// The layers with a window where the file has no list, if it asks for windows.
std::vector<std::int64_t> requested_window_layers(const JsonSection& text,
                                                  const ModelFamily& family,
                                                  const ModelConfig& model) {
  std::vector<std::int64_t> layers;
  const std::int64_t first = family.has_experts ? 0 : text.integer_or("max_window_layers", 28);
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    // SmolLM 3 has windows in the layers that it does not rotate.
    const bool has_window = family.unrotated_interval > 0 ? !model.is_rotated_layer(i) : i >= first;
    if (has_window) layers.push_back(i);
  }
  return layers;
}

// A window whose layers only a list can say.
void refuse_window(const JsonSection& text, ModelConfig& model) {
  if (!text.boolean_or("use_sliding_window", false)) return;
  model.refuse(text.dotted("use_sliding_window"),
               "true without layer_types is not supported; allowed: false");
}

// Only null turns the window off.
std::int64_t window_of(const JsonSection& text, const ModelFamily& family) {
  return text.integer_or("sliding_window", text.has("sliding_window") ? 0 : family.window_default);
}

void read_window(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  bool has_list = text.find("layer_types") != nullptr;
  switch (family.windows) {
    case WindowRule::None: return;
    case WindowRule::Always: model.sliding_window = window_of(text, family); return;
    case WindowRule::Alternate:
    case WindowRule::Listed:
      model.sliding_window = family.windows == WindowRule::Listed
                                 ? window_of(text, family)
                                 : text.integer_or("sliding_window", family.window_default);
      if (model.sliding_window == 0) return;
      // Beside a list, the pattern may be a word.
      if (has_list) return set_window_layers(listed_window_layers(text, model.n_layers), model);
      model.global_layer_interval =
          text.integer_or("sliding_window_pattern",
                          text.integer_or("_sliding_window_pattern", family.window_interval));
      return;
    case WindowRule::ByList:
      if (!has_list) return refuse_window(text, model);
      model.sliding_window = window_of(text, family);
      if (model.sliding_window == 0) return;
      return set_window_layers(listed_window_layers(text, model.n_layers), model);
    case WindowRule::OnRequest:
      // Qwen's mixtures have windows in all layers or in none. SmolLM 3's list needs no switch.
      if (family.has_experts) has_list = false;
      if (!text.boolean_or("use_sliding_window", false) &&
          (family.unrotated_interval == 0 || !has_list)) {
        return;
      }
      model.sliding_window = window_of(text, family);
      if (model.sliding_window == 0) return;
      return set_window_layers(has_list ? listed_window_layers(text, model.n_layers)
                                        : requested_window_layers(text, family, model),
                               model);
  }
}

// Layers without RoPE: a list of 0 and 1, or every n-th.
void read_unrotated_layers(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  if (family.unrotated_interval == 0) return;
  const std::int64_t interval =
      text.integer_or("no_rope_layer_interval", family.unrotated_interval);
  if (interval == 0) text.fail("no_rope_layer_interval", "is 0; allowed: at least 1");
  const Json* const flags = text.layer_list("no_rope_layers", model.n_layers, "0 or 1");
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    const bool is_unrotated = flags == nullptr ? (i + 1) % interval == 0
                                               : (*flags)[static_cast<std::size_t>(i)] == Json(0);
    if (is_unrotated) model.unrotated_layers.push_back(i);
  }
}

// The layers without a window have no RoPE.
void unrotate_global_layers(const ModelFamily& family, std::int64_t window, ModelConfig& model) {
  if (!family.rotates_windows_only || window == 0) return;
  for (std::int64_t i = 0; i < model.n_layers; ++i) {
    if (!model.is_window_layer(i)) model.unrotated_layers.push_back(i);
  }
}

}  // namespace

void read_layer_kinds(const JsonSection& text, const ModelFamily& family, ModelConfig& model) {
  read_unrotated_layers(text, family, model);
  read_window(text, family, model);
  // A list may leave no layer with the window that the file has.
  unrotate_global_layers(family, window_of(text, family), model);
}

}  // namespace metronome
