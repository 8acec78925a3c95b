// SPDX-License-Identifier: Apache-2.0
#include "core/model/shape_bounds.h"

#include <fmt/core.h>

#include "core/base/error.h"

namespace metronome {
namespace {

// Far above any real model, and small enough that no count of model_counts.cpp overflows 64 bits.
constexpr std::int64_t kMaxWidth = 1 << 20;

struct NamedRange {
  std::string_view key;
  IntegerRange range;
};

constexpr NamedRange kRanges[] = {
    {"n_layers", {1, 4096}},
    {"hidden_dim", {1, kMaxWidth}},
    {"n_heads", {1, 4096}},
    {"n_kv_heads", {1, 4096}},
    {"head_dim", {1, 4096}},
    {"ffn_dim", {1, kMaxWidth}},
    {"n_experts", {0, 4096}},
    {"n_experts_per_token", {0, 4096}},
    {"expert_ffn_dim", {0, kMaxWidth}},
    {"n_dense_layers", {0, 4096}},
    {"vocab_size", {1, 1 << 24}},
    {"max_position_embeddings", {1, 1 << 30}},
    {"sliding_window", {0, 1 << 30}},
    {"global_layer_interval", {0, 4096}},
    {"bytes_per_weight", {1, 4}},
    {"int4_group_size", {0, kMaxWidth}},
    {"bytes_per_kv_element", {1, 4}},
    {"rope_scaling.original_max_positions", {1, 1 << 30}},
    {"linear_attention.n_key_heads", {1, 4096}},
    {"linear_attention.n_value_heads", {1, 4096}},
    {"linear_attention.key_head_dim", {1, 4096}},
    {"linear_attention.value_head_dim", {1, 4096}},
    {"linear_attention.conv_width", {2, 64}},
    {"latent_attention.kv_rank", {0, 1 << 16}},
    {"latent_attention.q_rank", {0, 1 << 16}},
    {"latent_attention.nope_dim", {0, 1 << 16}},
    {"latent_attention.rope_dim", {0, 1 << 16}},
    {"latent_attention.value_dim", {0, 1 << 16}},
    {"vision.depth", {1, 1024}},
    {"vision.hidden_dim", {1, 1 << 16}},
    {"vision.n_heads", {1, 1024}},
    {"vision.ffn_dim", {1, 1 << 16}},
    {"vision.in_channels", {3, 3}},
    {"vision.patch_size", {1, 256}},
    {"vision.temporal_patch_size", {1, 16}},
    {"vision.merge_size", {1, 16}},
    {"vision.out_dim", {1, kMaxWidth}},
    {"vision.num_positions", {1, 1 << 20}},
};

}  // namespace

std::optional<IntegerRange> shape_range(std::string_view key) {
  for (const NamedRange& named : kRanges) {
    if (named.key == key) return named.range;
  }
  return std::nullopt;
}

IntegerBound within_range(const char* key, std::int64_t value) {
  const std::optional<IntegerRange> range = shape_range(key);
  METRONOME_CHECK(range.has_value(), "the number has a range of its own");
  return {key, value, range->min, range->max};
}

std::string bounds_error(std::span<const IntegerBound> bounds, std::string_view prefix) {
  for (const IntegerBound& bound : bounds) {
    if (bound.value >= bound.min && bound.value <= bound.max) continue;
    return fmt::format("{}{}: is {}; allowed: {} to {}", prefix, bound.key, bound.value, bound.min,
                       bound.max);
  }
  return {};
}

std::string ascending_error(std::string_view key, const std::vector<std::int64_t>& numbers,
                            std::int64_t end) {
  std::int64_t last = -1;
  for (const std::int64_t number : numbers) {
    if (number <= last || number >= end) {
      return fmt::format("{}: contains {}; allowed: 0 to {}, ascending", key, number, end - 1);
    }
    last = number;
  }
  return {};
}

}  // namespace metronome
