// SPDX-License-Identifier: Apache-2.0
#include "models/weights/vision_weights.h"

#include <fmt/core.h>
#include <utility>

#include "core/base/error.h"

namespace metronome {
namespace {

// Collects tensors; linear layers and norms have biases.
class VisionSpecs {
 public:
  void add_linear(const std::string& name, std::int64_t rows, std::int64_t cols) {
    specs_.push_back({kVisionPrefix + name + ".weight", rows, cols, WeightRole::Linear});
    specs_.push_back({kVisionPrefix + name + ".bias", 1, rows, WeightRole::Bias});
  }
  void add_norm(const std::string& name, std::int64_t cols) {
    specs_.push_back({kVisionPrefix + name + ".weight", 1, cols, WeightRole::Norm});
    specs_.push_back({kVisionPrefix + name + ".bias", 1, cols, WeightRole::Bias});
  }
  void add_table(const std::string& name, std::int64_t rows, std::int64_t cols) {
    specs_.push_back({kVisionPrefix + name + ".weight", rows, cols, WeightRole::Embedding});
  }
  // `norm_dim`: of the last layer's patches one by one, or of patches that were joined.
  void add_merger(const VisionTower& tower, const std::string& name, std::int64_t norm_dim) {
    const std::int64_t joined = tower.merge_size * tower.merge_size * tower.hidden_dim;
    add_norm(name + ".norm", norm_dim);
    add_linear(name + ".linear_fc1", joined, joined);
    add_linear(name + ".linear_fc2", tower.out_dim, joined);
  }

  std::vector<WeightSpec> take() { return std::move(specs_); }

 private:
  std::vector<WeightSpec> specs_;
};

}  // namespace

std::vector<WeightSpec> vision_weight_specs(const VisionTower& tower) {
  VisionSpecs specs;
  if (tower.is_empty()) return specs.take();
  const std::int64_t hidden = tower.hidden_dim;
  specs.add_linear("patch_embed.proj", hidden, tower.patch_inputs());
  specs.add_table("pos_embed", tower.num_positions, hidden);
  for (std::int64_t i = 0; i < tower.depth; ++i) {
    const std::string block = fmt::format("blocks.{}.", i);
    specs.add_norm(block + "norm1", hidden);
    specs.add_linear(block + "attn.qkv", 3 * hidden, hidden);
    specs.add_linear(block + "attn.proj", hidden, hidden);
    specs.add_norm(block + "norm2", hidden);
    specs.add_linear(block + "mlp.linear_fc1", tower.ffn_dim, hidden);
    specs.add_linear(block + "mlp.linear_fc2", hidden, tower.ffn_dim);
  }
  specs.add_merger(tower, "merger", hidden);
  for (std::size_t i = 0; i < tower.deepstack_layers.size(); ++i) {
    specs.add_merger(tower, fmt::format("deepstack_merger_list.{}", i),
                     tower.merge_size * tower.merge_size * hidden);
  }
  return specs.take();
}

WeightSpec vision_weight_spec(const VisionTower& tower, const std::string& name) {
  for (WeightSpec& spec : vision_weight_specs(tower)) {
    if (spec.name == kVisionPrefix + name) return std::move(spec);
  }
  METRONOME_CHECK(false, "no tensor " + name + " in this vision tower");
}

std::vector<std::int64_t> stored_vision_shape(const VisionTower& tower, const WeightSpec& spec) {
  if (spec.name != std::string(kVisionPrefix) + "patch_embed.proj.weight") return {};
  return {tower.hidden_dim, tower.in_channels, tower.temporal_patch_size, tower.patch_size,
          tower.patch_size};
}

}  // namespace metronome
