// SPDX-License-Identifier: Apache-2.0
#include "cpu/vision_encoder.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>

#include "core/base/error.h"
#include "core/base/math.h"
#include "core/base/types.h"
#include "core/model/attention_mask.h"
#include "models/weights/vision_weights.h"

namespace metronome {
namespace {

// Patches that go through an MLP together.
constexpr std::int64_t kTilePatches = 256;
// Query patches per item of attention work.
constexpr std::int64_t kAttentionPatches = 16;
constexpr double kRopeTheta = 10000;
constexpr float kNormEps = 1e-6f;

class TowerLoader {
 public:
  TowerLoader(const VisionTower& tower, const WeightSource& source, ThreadPool& pool)
      : tower_(tower), source_(source), pool_(pool) {}

  PackedMatrix matrix(const std::string& name) const {
    return PackedMatrix(source_, {vision_weight_spec(tower_, name + ".weight")}, pool_);
  }
  LinearWeights linear(const std::string& name) const {
    return {.matrix = matrix(name), .bias = row(name + ".bias")};
  }
  NormWeights norm(const std::string& name) const {
    return {.scale = row(name + ".weight"), .bias = row(name + ".bias")};
  }

 private:
  std::vector<float> row(const std::string& name) const {
    return read_row(source_, vision_weight_spec(tower_, name));
  }

  const VisionTower& tower_;
  const WeightSource& source_;
  ThreadPool& pool_;
};

// For the rows of a head's patches, and again for their columns.
std::vector<float> tower_frequencies(std::int64_t head_dim) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < head_dim / 4; ++i) {
    const float exponent = static_cast<float>(2 * i) / static_cast<float>(head_dim / 2);
    frequencies.push_back(1.0f / static_cast<float>(pow_of(kRopeTheta, double{exponent})));
  }
  return frequencies;
}

// Two neighbours of the table's side, and their shares. Every operation rounds to float, as
// transformers' vision_utils.py does.
struct Taps {
  std::int64_t index[2];
  float weight[2];
};

Taps taps_of(std::int64_t index, std::int64_t size, std::int64_t side) {
  const float place = static_cast<float>(index) * static_cast<float>(side - 1) /
                      static_cast<float>(std::max<std::int64_t>(size - 1, 1));
  const float floor = std::floor(place);
  const auto first = static_cast<std::int64_t>(floor);
  return {{std::clamp<std::int64_t>(first, 0, side - 1),
           std::clamp<std::int64_t>(first + 1, 0, side - 1)},
          {1.0f - (place - floor), 1.0f - std::fabs(place - floor - 1.0f)}};
}

}  // namespace

PatchPlace patch_place(const VisionTower& tower, const ImageGrid& grid, std::int64_t patch) {
  const std::int64_t merge = tower.merge_size;
  const std::int64_t group = patch / (merge * merge);
  const std::int64_t groups_per_row = grid.n_patch_columns / merge;
  return {group / groups_per_row * merge + patch / merge % merge,
          group % groups_per_row * merge + patch % merge};
}

VisionEncoder::VisionEncoder(const ModelConfig& model, const WeightSource& weights,
                             ThreadPool& pool, const PollFn& poll)
    : tower_(model.vision),
      pool_(pool),
      kernels_(kernels()),
      rope_(tower_frequencies(head_dim()), 1),
      arrays_(static_cast<std::size_t>(pool.num_threads())) {
  METRONOME_CHECK(!tower_.is_empty(), "a model with a vision tower");
  const TowerLoader loader(tower_, weights, pool);
  patch_embedding_ = loader.linear("patch_embed.proj");
  positions_ = loader.matrix("pos_embed");
  for (std::int64_t i = 0; i < tower_.depth; ++i) {
    if (poll) poll();
    const std::string block = fmt::format("blocks.{}.", i);
    blocks_.push_back({.attention_norm = loader.norm(block + "norm1"),
                       .qkv = loader.linear(block + "attn.qkv"),
                       .attention_output = loader.linear(block + "attn.proj"),
                       .mlp_norm = loader.norm(block + "norm2"),
                       .mlp_input = loader.linear(block + "mlp.linear_fc1"),
                       .mlp_output = loader.linear(block + "mlp.linear_fc2")});
  }
  const auto merger = [&](const std::string& name) {
    return Merger{.norm = loader.norm(name + ".norm"),
                  .input = loader.linear(name + ".linear_fc1"),
                  .output = loader.linear(name + ".linear_fc2")};
  };
  merger_ = merger("merger");
  for (std::size_t i = 0; i < tower_.deepstack_layers.size(); ++i) {
    deepstack_mergers_.push_back(merger(fmt::format("deepstack_merger_list.{}", i)));
  }
}

std::int64_t VisionEncoder::weight_bytes() const {
  const auto of_merger = [](const Merger& merger) {
    return merger.input.matrix.num_bytes() + merger.output.matrix.num_bytes();
  };
  std::int64_t bytes =
      patch_embedding_.matrix.num_bytes() + positions_.num_bytes() + of_merger(merger_);
  for (const Block& block : blocks_) {
    bytes += block.qkv.matrix.num_bytes() + block.attention_output.matrix.num_bytes() +
             block.mlp_input.matrix.num_bytes() + block.mlp_output.matrix.num_bytes();
  }
  for (const Merger& merger : deepstack_mergers_) bytes += of_merger(merger);
  return bytes;
}

void VisionEncoder::encode(std::span<const float> patches, const ImageGrid& grid,
                           std::vector<float>& features, const PollFn& poll) {
  const std::int64_t num_patches = grid.num_patches();
  METRONOME_CHECK(num_patches > 0 && grid.n_patch_rows % tower_.merge_size == 0 &&
                      grid.n_patch_columns % tower_.merge_size == 0,
                  "a grid of whole groups of patches");
  METRONOME_CHECK(patches.size() == num_elements(num_patches, tower_.patch_inputs()),
                  "as many patches as the grid has");
  const std::int64_t num_tokens = num_patches / (tower_.merge_size * tower_.merge_size);
  features.resize(num_elements(num_tokens, token_floats()));
  embed(patches, grid);
  set_angles(grid);
  std::size_t num_deepstack = 0;
  for (std::int64_t i = 0; i < tower_.depth; ++i) {
    if (poll) poll();
    run_block(blocks_[static_cast<std::size_t>(i)], num_patches);
    if (num_deepstack < tower_.deepstack_layers.size() &&
        tower_.deepstack_layers[num_deepstack] == i) {
      const Merger& merger = deepstack_mergers_[num_deepstack++];
      merge(merger, num_tokens, static_cast<std::int64_t>(num_deepstack), features);
    }
  }
  merge(merger_, num_tokens, 0, features);
}

void VisionEncoder::embed(std::span<const float> patches, const ImageGrid& grid) {
  multiply(patch_embedding_, patches.data(), grid.num_patches(), residual_);
  pool_.for_rows(grid.num_patches(), [&](std::int64_t patch) { add_positions(patch, grid); });
}

// Adds the learned positions, interpolated from the square table to the image's grid.
void VisionEncoder::add_positions(std::int64_t patch, const ImageGrid& grid) {
  const auto side =
      static_cast<std::int64_t>(std::floor(std::sqrt(static_cast<double>(tower_.num_positions))));
  const PatchPlace place = patch_place(tower_, grid, patch);
  const Taps rows = taps_of(place.row, grid.n_patch_rows, side);
  const Taps columns = taps_of(place.column, grid.n_patch_columns, side);
  const auto width = static_cast<std::size_t>(tower_.hidden_dim);
  std::vector<float> row(width);
  std::vector<float> sum(width);
  for (int r = 0; r < 2; ++r) {
    for (int c = 0; c < 2; ++c) {
      positions_.row(rows.index[r] * side + columns.index[c], row.data());
      const float weight = rows.weight[r] * columns.weight[c];
      for (std::size_t k = 0; k < width; ++k) sum[k] += row[k] * weight;
    }
  }
  kernels_.add(residual(patch), sum.data(), tower_.hidden_dim);
}

// Of a head's pairs, the first half turns by the patch's row, the second by its column.
void VisionEncoder::set_angles(const ImageGrid& grid) {
  const std::int64_t num_frequencies = head_dim() / 4;
  rope_.extend(static_cast<std::int32_t>(std::max(grid.n_patch_rows, grid.n_patch_columns)));
  cos_.resize(num_elements(grid.num_patches(), 2 * num_frequencies));
  sin_.resize(cos_.size());
  pool_.for_rows(grid.num_patches(), [&](std::int64_t patch) {
    const PatchPlace place = patch_place(tower_, grid, patch);
    float* cos = cos_.data() + patch * 2 * num_frequencies;
    float* sin = sin_.data() + patch * 2 * num_frequencies;
    for (const std::int64_t side : {place.row, place.column}) {
      const auto position = static_cast<std::int32_t>(side);
      cos = std::copy_n(rope_.cos(position), num_frequencies, cos);
      sin = std::copy_n(rope_.sin(position), num_frequencies, sin);
    }
  });
}

void VisionEncoder::run_block(const Block& block, std::int64_t num_patches) {
  normalise(block.attention_norm, residual_.data(), num_patches);
  multiply(block.qkv, hidden_.data(), num_patches, qkv_);
  place_heads(num_patches);
  attend(num_patches);
  multiply(block.attention_output, attended_.data(), num_patches, added_);
  kernels_.add(residual_.data(), added_.data(), num_patches * tower_.hidden_dim);
  run_mlp(block, num_patches);
}

// Rotates queries and keys, scales queries, and writes keys and values in tiles of 16 patches.
void VisionEncoder::place_heads(std::int64_t num_patches) {
  const std::int64_t width = tower_.hidden_dim;
  const std::int64_t dim = head_dim();
  const std::int64_t num_tiles = ceil_div(num_patches, kLanes);
  const float scale = 1.0f / std::sqrt(static_cast<float>(dim));
  keys_.resize(num_elements(tower_.n_heads * num_tiles, dim * kLanes));
  values_.resize(keys_.size());
  pool_.for_rows(num_patches, [&](std::int64_t patch) {
    const float* const cos = cos_.data() + patch * dim / 2;
    const float* const sin = sin_.data() + patch * dim / 2;
    float* const query = qkv_.data() + patch * 3 * width;
    float* const key = query + width;
    const float* const value = key + width;
    const std::int64_t slot = patch % kLanes;
    for (std::int64_t head = 0; head < tower_.n_heads; ++head) {
      kernels_.rotate(query + head * dim, cos, sin, dim);
      kernels_.rotate(key + head * dim, cos, sin, dim);
      const std::int64_t tile = (head * num_tiles + patch / kLanes) * dim * kLanes;
      for (std::int64_t k = 0; k < dim; ++k) {
        query[head * dim + k] *= scale;
        keys_[static_cast<std::size_t>(tile + k * kLanes + slot)] = key[head * dim + k];
        values_[static_cast<std::size_t>(tile + slot * dim + k)] = value[head * dim + k];
      }
    }
  });
}

// Every patch attends to all patches of the image.
void VisionEncoder::attend(std::int64_t num_patches) {
  tiles_.clear();
  for (std::int64_t first = 0; first < num_patches; first += kLanes) {
    tiles_.push_back(static_cast<std::int32_t>(first));
  }
  tiles_.push_back(static_cast<std::int32_t>(num_patches));
  attended_.resize(num_elements(num_patches, tower_.hidden_dim));
  const std::int64_t num_groups = ceil_div(num_patches, kAttentionPatches);
  const std::int64_t num_items = num_groups * tower_.n_heads;
  const int num_parts = pool_.num_threads();
  pool_.for_each_part([&](int part) {
    for (std::int64_t item = part; item < num_items; item += num_parts) {
      const std::int64_t begin = item % num_groups * kAttentionPatches;
      attend_rows(item / num_groups, begin, std::min(begin + kAttentionPatches, num_patches),
                  num_patches, arrays_[static_cast<std::size_t>(part)]);
    }
  });
}

void VisionEncoder::attend_rows(std::int64_t head, std::int64_t begin, std::int64_t end,
                                std::int64_t num_patches, AttentionArrays& arrays) {
  const std::int64_t dim = head_dim();
  const std::int64_t width = tower_.hidden_dim;
  const auto num_tiles = static_cast<std::int64_t>(tiles_.size()) - 1;
  arrays.clear();
  for (std::int64_t patch = begin; patch < end; ++patch) {
    arrays.queries.push_back(qkv_.data() + patch * 3 * width + head * dim);
    arrays.outputs.push_back(attended_.data() + patch * width + head * dim);
  }
  // At the last position a causal row attends to everything.
  arrays.positions.assign(arrays.queries.size(), static_cast<std::int32_t>(num_patches - 1));
  for (std::int64_t tile = 0; tile < num_tiles; ++tile) {
    const std::int64_t at = (head * num_tiles + tile) * dim * kLanes;
    arrays.key_tiles.push_back(keys_.data() + at);
    arrays.value_tiles.push_back(values_.data() + at);
  }
  arrays.tile_positions = tiles_;
  arrays.attend(kernels_, dim, kNoWindow, 0);
}

void VisionEncoder::run_mlp(const Block& block, std::int64_t num_patches) {
  normalise(block.mlp_norm, residual_.data(), num_patches);
  for (std::int64_t begin = 0; begin < num_patches; begin += kTilePatches) {
    const std::int64_t num_rows = std::min(kTilePatches, num_patches - begin);
    multiply(block.mlp_input, hidden_.data() + begin * tower_.hidden_dim, num_rows, mlp_);
    pool_.for_range(num_rows, [&](std::int64_t first, std::int64_t last) {
      float* const x = mlp_.data() + first * tower_.ffn_dim;
      kernels_.gelu_tanh_multiply(x, nullptr, (last - first) * tower_.ffn_dim, x);
    });
    multiply(block.mlp_output, mlp_.data(), num_rows, added_);
    kernels_.add(residual(begin), added_.data(), num_rows * tower_.hidden_dim);
  }
}

// The merged patches of each token go to the features of number `index`.
void VisionEncoder::merge(const Merger& merger, std::int64_t num_tokens, std::int64_t index,
                          std::vector<float>& features) {
  const std::int64_t joined = tower_.merge_size * tower_.merge_size * tower_.hidden_dim;
  // The patches of a token are neighbours, so rows are joined by counting them together.
  const auto norm_dim = static_cast<std::int64_t>(merger.norm.scale.size());
  normalise(merger.norm, residual_.data(), num_tokens * joined / norm_dim);
  multiply(merger.input, hidden_.data(), num_tokens, merged_);
  pool_.for_range(num_tokens, [&](std::int64_t begin, std::int64_t end) {
    float* const x = merged_.data() + begin * joined;
    kernels_.gelu_multiply(x, nullptr, (end - begin) * joined, x);
  });
  multiply(merger.output, merged_.data(), num_tokens, added_);
  for (std::int64_t token = 0; token < num_tokens; ++token) {
    std::copy_n(added_.data() + token * tower_.out_dim, tower_.out_dim,
                features.data() + token * token_floats() + index * tower_.out_dim);
  }
}

// Of rows of x that follow each other; see LinearWeights.
void VisionEncoder::multiply(const LinearWeights& weights, const float* x, std::int64_t num_rows,
                             std::vector<float>& out) {
  weights.multiply(x, weights.matrix.num_inputs(), num_rows, out, pool_);
}

// Writes the normalised rows of x to hidden_. A row is as wide as the norm.
void VisionEncoder::normalise(const NormWeights& norm, const float* x, std::int64_t num_rows) {
  const auto width = static_cast<std::int64_t>(norm.scale.size());
  hidden_.resize(num_elements(num_rows, width));
  pool_.for_rows(num_rows, [&](std::int64_t row) {
    kernels_.layer_norm(x + row * width, norm.scale.data(), norm.bias.data(), width, kNormEps,
                        hidden_.data() + row * width);
  });
}

}  // namespace metronome
