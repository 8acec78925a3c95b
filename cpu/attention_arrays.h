// SPDX-License-Identifier: Apache-2.0
// The arrays that an AttentionTask points to.
#pragma once

#include <cstdint>
#include <vector>

#include "cpu/kernels.h"

namespace metronome {

// Filled for one task after the other, so that they are allocated once.
struct AttentionArrays {
  std::vector<const float*> queries;         // [num_rows] -> [head_dim]
  std::vector<float*> outputs;               // [num_rows] -> [head_dim]
  std::vector<std::int32_t> positions;       // [num_rows]
  std::vector<float> sinks;                  // [num_rows]; empty = none
  std::vector<const float*> key_tiles;       // [num_tiles] -> [head_dim, 16]
  std::vector<const float*> value_tiles;     // [num_tiles] -> [16, head_dim]
  std::vector<std::int32_t> tile_positions;  // [num_tiles + 1]
  std::vector<float> scratch;                // [attention_scratch_floats()]

  void clear() {
    queries.clear();
    outputs.clear();
    positions.clear();
    sinks.clear();
    key_tiles.clear();
    value_tiles.clear();
    tile_positions.clear();
  }

  // Computes the task. `window` and `softcap` as in AttentionTask.
  void attend(const Kernels& kernels, std::int64_t head_dim, std::int32_t window, float softcap) {
    const AttentionTask task = {
        .queries = queries.data(),
        .outputs = outputs.data(),
        .positions = positions.data(),
        .num_rows = static_cast<std::int32_t>(positions.size()),
        .head_dim = static_cast<std::int32_t>(head_dim),
        .window = window,
        .softcap = softcap,
        .key_tiles = key_tiles.data(),
        .value_tiles = value_tiles.data(),
        .tile_positions = tile_positions.data(),
        .num_tiles = static_cast<std::int32_t>(key_tiles.size()),
        .sinks = sinks.empty() ? nullptr : sinks.data(),
    };
    scratch.resize(static_cast<std::size_t>(attention_scratch_floats(task)));
    kernels.attend(task, scratch.data());
  }
};

}  // namespace metronome
