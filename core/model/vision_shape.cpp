// SPDX-License-Identifier: Apache-2.0
#include "core/model/vision_shape.h"

#include <fmt/core.h>

#include "core/model/shape_bounds.h"

namespace metronome {

std::string vision_error(const VisionTower& tower, std::int64_t n_layers, std::int64_t vocab_size) {
  if (tower.is_empty()) return {};
  const IntegerBound bounds[] = {
      within_range("vision.depth", tower.depth),
      within_range("vision.hidden_dim", tower.hidden_dim),
      within_range("vision.n_heads", tower.n_heads),
      within_range("vision.ffn_dim", tower.ffn_dim),
      within_range("vision.in_channels", tower.in_channels),
      within_range("vision.patch_size", tower.patch_size),
      within_range("vision.temporal_patch_size", tower.temporal_patch_size),
      within_range("vision.merge_size", tower.merge_size),
      within_range("vision.out_dim", tower.out_dim),
      within_range("vision.num_positions", tower.num_positions),
      {"vision.image_token", tower.image_token, -1, vocab_size - 1},
  };
  std::string error = bounds_error(bounds);
  if (!error.empty()) return error;
  if (tower.hidden_dim % (4 * tower.n_heads) != 0) {
    return fmt::format("vision.hidden_dim: is {}; allowed: a multiple of 4 times n_heads, {}",
                       tower.hidden_dim, 4 * tower.n_heads);
  }
  error = ascending_error("vision.deepstack_layers", tower.deepstack_layers, tower.depth);
  if (!error.empty()) return error;
  if (static_cast<std::int64_t>(tower.deepstack_layers.size()) > n_layers) {
    return fmt::format(
        "vision.deepstack_layers: has more layers than the language model; allowed: at most {}",
        n_layers);
  }
  return {};
}

}  // namespace metronome
