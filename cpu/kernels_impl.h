// SPDX-License-Identifier: Apache-2.0
// The kernels of kernels.h for one instruction set. The including file defines METRONOME_KERNELS,
// the namespace of the kernels, and METRONOME_KERNELS_NAME.
#pragma once

#include "cpu/kernels_elements.h"
#include "cpu/kernels_states.h"
#include "cpu/lanes.h"
#include "cpu/products_impl.h"

namespace metronome {

// first_attended() of attention_mask.h, compiled for every machine (see lanes.h).
std::int32_t first_attended_position(std::int32_t position, std::int32_t window);

namespace METRONOME_KERNELS {

// --- Attention ---

// Up to kMaxRows rows of a task at one segment. Row r attends to [begin[r], end[r]) of it.
struct RowGroup {
  const AttentionTask& task;
  std::int32_t first_row;
  std::int32_t num_rows;
  std::int32_t segment_begin;
  std::int32_t first_tile;  // begins at or before begin[0]
  float* scores;            // [kMaxRows, kAttentionScores], then e^(score - maximum)
  float* values;            // [kMaxRows, head_dim]: the segment's weighted sums of values
  std::int32_t begin[kMaxRows];
  std::int32_t end[kMaxRows];
  float correction[kMaxRows];  // factor for the sum over earlier segments
  bool is_first[kMaxRows];     // the row's first segment

  // Scores are indexed by position, with extra space at both ends for tiles that overlap the
  // segment's ends.
  float* score_at(std::int64_t row, std::int64_t position) const {
    return scores + row * kAttentionScores + kLanes + (position - segment_begin);
  }
};

// Computes the scores of every slot of some tiles, including slots that no row attends to. Scores
// of unused slots are overwritten by the next tile's scores or by soften().
struct ScoreTiles {
  const RowGroup& group;
  std::int32_t first_tile;
  std::int32_t num_vectors;  // kParts per tile

  template <int kRows>
  void run() const {
    constexpr int kVectors = vectors_of(kRows);
    const AttentionTask& task = group.task;
    const float* queries[kRows];
    METRONOME_UNROLL
    for (int r = 0; r < kRows; ++r) queries[r] = task.queries[group.first_row + r];
    for (std::int32_t first = 0; first < num_vectors; first += kVectors) {
      const float* keys[kVectors];
      std::int64_t positions[kVectors];
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        // Beyond the end it computes the last vector again, without effect.
        const std::int32_t vector = smaller(first + v, num_vectors - 1);
        const std::int32_t tile = first_tile + vector / kParts;
        const int lane = vector % kParts * kWidth;
        keys[v] = task.key_tiles[tile] + lane;
        positions[v] = task.tile_positions[tile] + lane;
      }
      Floats sums[kRows][kVectors] = {};
      for (std::int64_t d = 0; d < task.head_dim; ++d) {
        Floats lanes[kVectors];
        METRONOME_UNROLL
        for (int v = 0; v < kVectors; ++v) lanes[v] = load(keys[v] + d * kLanes);
        METRONOME_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Floats query = broadcast(queries[r][d]);
          METRONOME_UNROLL
          for (int v = 0; v < kVectors; ++v) sums[r][v] = multiply_add(query, lanes[v], sums[r][v]);
        }
      }
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        METRONOME_UNROLL
        for (int r = 0; r < kRows; ++r) store(group.score_at(r, positions[v]), sums[r][v]);
      }
    }
  }
};

static void score(const RowGroup& group) {
  const std::int32_t* const positions = group.task.tile_positions;
  std::int32_t first = group.first_tile;
  while (positions[first + 1] <= group.begin[0]) ++first;
  std::int32_t last = first;  // the last tile that any row attends to
  while (positions[last + 1] < group.end[group.num_rows - 1]) ++last;
  with_rows(group.num_rows, ScoreTiles{group, first, (last + 1 - first) * kParts});
}

// Replaces a row's scores by e^(score - maximum), or 0 outside what it attends to. Updates the
// row's running maximum and sum.
static void soften(RowGroup& group, int row, float& maximum, float& sum) {
  float* const scores = group.score_at(row, group.segment_begin);
  const std::int64_t begin = group.begin[row] - group.segment_begin;
  const std::int64_t end = group.end[row] - group.segment_begin;
  const std::int64_t first_lane = begin / kLanes * kLanes;
  const std::int64_t last_lane = (end + kLanes - 1) / kLanes * kLanes;
  const float lowest = -__builtin_inff();
  if (group.task.softcap > 0)
    softcap(scores + first_lane, group.task.softcap, last_lane - first_lane);
  for (std::int64_t i = first_lane; i < begin; ++i) scores[i] = lowest;
  for (std::int64_t i = end; i < last_lane; ++i) scores[i] = lowest;

  Floats peaks[kParts];
  METRONOME_UNROLL
  for (int part = 0; part < kParts; ++part) peaks[part] = broadcast(lowest);
  for (std::int64_t i = first_lane; i < last_lane; i += kLanes) {
    METRONOME_UNROLL
    for (int part = 0; part < kParts; ++part) {
      peaks[part] = larger(load(scores + i + part * kWidth), peaks[part]);
    }
  }
  const float peak = largest_lane(peaks);
  const float new_maximum = !group.is_first[row] && maximum > peak ? maximum : peak;

  Floats sums[kParts] = {};
  for (std::int64_t i = first_lane; i < last_lane; i += kLanes) {
    METRONOME_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const Floats power = exp(load(scores + i + part * kWidth) - new_maximum);
      store(scores + i + part * kWidth, power);
      sums[part] += power;
    }
  }
  const float segment_sum = sum_of_lanes(sums);
  if (group.is_first[row]) {
    sum = segment_sum;
  } else {
    group.correction[row] = exp(broadcast(maximum - new_maximum))[0];
    sum = sum * group.correction[row] + segment_sum;
  }
  maximum = new_maximum;
}

// Adds the weighted values of [begin, end) to the sums of rows first_row, .... All these rows
// attend to all of that range, so no row uses a value that it must not see.
struct AddValues {
  const RowGroup& group;
  int first_row;
  std::int32_t begin;
  std::int32_t end;

  template <int kRows, int kVectors, bool kIsTail>
  void add_columns(std::int64_t column, std::int64_t tail) const {
    const AttentionTask& task = group.task;
    const std::int64_t count = kIsTail ? tail : kWidth;
    const float* weights[kRows];
    Floats sums[kRows][kVectors];
    float* const totals = group.values + first_row * task.head_dim + column;
    METRONOME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      weights[r] = group.score_at(first_row + r, begin);
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        sums[r][v] = load_upto(totals + r * task.head_dim + v * kWidth, count);
      }
    }
    std::int32_t tile = group.first_tile;
    while (task.tile_positions[tile + 1] <= begin) ++tile;
    for (std::int32_t position = begin; position < end; ++tile) {
      const float* value =
          task.value_tiles[tile] + column + (position - task.tile_positions[tile]) * task.head_dim;
      const std::int32_t stop = smaller(end, task.tile_positions[tile + 1]);
      for (; position < stop; ++position, value += task.head_dim) {
        Floats lanes[kVectors];
        METRONOME_UNROLL
        for (int v = 0; v < kVectors; ++v) lanes[v] = load_upto(value + v * kWidth, count);
        METRONOME_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Floats weight = broadcast(weights[r][position - begin]);
          METRONOME_UNROLL
          for (int v = 0; v < kVectors; ++v)
            sums[r][v] = multiply_add(weight, lanes[v], sums[r][v]);
        }
      }
    }
    METRONOME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        store_upto(totals + r * task.head_dim + v * kWidth, sums[r][v], count);
      }
    }
  }

  template <int kRows>
  void run() const {
    if (begin >= end) return;
    constexpr int kVectors = vectors_of(kRows);
    const std::int64_t head_dim = group.task.head_dim;
    std::int64_t column = 0;
    for (; column + kVectors * kWidth <= head_dim; column += kVectors * kWidth) {
      add_columns<kRows, kVectors, false>(column, 0);
    }
    for (; column + kWidth <= head_dim; column += kWidth) add_columns<kRows, 1, false>(column, 0);
    if (column < head_dim) add_columns<kRows, 1, true>(column, head_dim - column);
  }
};

// A segment's weighted sums of values, over ascending positions. The first and the last positions
// are attended to by some rows only and handled row by row; those in between are handled for all
// rows.
static void weigh_values(const RowGroup& group) {
  const int last = group.num_rows - 1;
  std::int32_t shared_begin = group.begin[last];
  std::int32_t shared_end = group.end[0];
  if (shared_begin >= shared_end) shared_begin = shared_end = group.end[last];
  for (int row = 0; row <= last; ++row) {
    AddValues{group, row, group.begin[row], smaller(group.end[row], shared_begin)}.run<1>();
  }
  with_rows(group.num_rows, AddValues{group, 0, shared_begin, shared_end});
  for (int row = 0; row <= last; ++row) {
    AddValues{group, row, shared_end, group.end[row]}.run<1>();
  }
}

static void attend_segment(RowGroup& group, float* maxima, float* sums) {
  const AttentionTask& task = group.task;
  const std::int32_t segment_end =
      group.segment_begin + static_cast<std::int32_t>(kAttentionSegment);
  for (int row = 0; row < group.num_rows; ++row) {
    const std::int32_t position = task.positions[group.first_row + row];
    const std::int32_t first = first_attended_position(position, task.window);
    group.is_first[row] = first >= group.segment_begin;
    group.begin[row] = group.is_first[row] ? first : group.segment_begin;
    group.end[row] = smaller(position + 1, segment_end);
  }
  score(group);
  for (int row = 0; row < group.num_rows; ++row) {
    soften(group, row, maxima[group.first_row + row], sums[group.first_row + row]);
  }
  const std::int64_t num_values = std::int64_t{group.num_rows} * task.head_dim;
  for (std::int64_t i = 0; i < num_values; ++i) group.values[i] = 0.0f;
  weigh_values(group);
  for (int row = 0; row < group.num_rows; ++row) {
    float* const out = task.outputs[group.first_row + row];
    const float* const value = group.values + row * task.head_dim;
    const bool is_first = group.is_first[row];
    const float correction = group.correction[row];
    for_vectors(task.head_dim, [=](std::int64_t i, std::int64_t count) {
      const Floats added = load_upto(value + i, count);
      store_upto(out + i, is_first ? added : load_upto(out + i, count) * correction + added, count);
    });
  }
}

// The outer loop is over segments, so a segment's keys and values stay in cache for all rows.
static void attend(const AttentionTask& task, float* scratch) {
  if (task.num_rows == 0) return;
  const auto segment_size = static_cast<std::int32_t>(kAttentionSegment);
  float* const maxima = scratch;
  float* const sums = maxima + task.num_rows;
  float* const scores = sums + task.num_rows;
  float* const values = scores + kAttentionRows * kAttentionScores;
  std::int32_t row_begin = 0;
  std::int32_t row_end = 0;
  std::int32_t first_tile = 0;
  const std::int32_t last_position = task.positions[task.num_rows - 1];
  std::int32_t begin = first_attended_position(task.positions[0], task.window);
  for (begin -= begin % segment_size; begin <= last_position; begin += segment_size) {
    while (task.positions[row_begin] < begin) ++row_begin;
    while (row_end < task.num_rows &&
           first_attended_position(task.positions[row_end], task.window) < begin + segment_size) {
      ++row_end;
    }
    while (task.tile_positions[first_tile + 1] <= begin) ++first_tile;
    for (std::int32_t row = row_begin; row < row_end; row += kMaxRows) {
      RowGroup group = {
          task, row, smaller(row_end - row, kMaxRows), begin, first_tile, scores, values, {}, {},
          {},   {}};
      attend_segment(group, maxima, sums);
    }
  }
  for (std::int32_t row = 0; row < task.num_rows; ++row) {
    float* const out = task.outputs[row];
    float sum = sums[row];
    if (task.sinks != nullptr) sum += exp(broadcast(task.sinks[row] - maxima[row]))[0];
    for_vectors(task.head_dim, [=](std::int64_t i, std::int64_t count) {
      store_upto(out + i, load_upto(out + i, count) / sum, count);
    });
  }
}

constexpr Kernels kKernels = {.name = METRONOME_KERNELS_NAME,
                              .multiply_f32 = multiply_f32,
                              .multiply_bf16 = multiply_bf16,
                              .multiply_quantised = multiply_quantised,
                              .rms_norm = rms_norm,
                              .layer_norm = layer_norm,
                              .silu_multiply = silu_multiply,
                              .gelu_tanh_multiply = gelu_tanh_multiply,
                              .gelu_multiply = gelu_multiply,
                              .clamped_swiglu = clamped_swiglu,
                              .squared_relu_multiply = squared_relu_multiply,
                              .xielu = xielu,
                              .sigmoid_multiply = sigmoid_multiply,
                              .convolve = convolve,
                              .delta_rule = delta_rule,
                              .softmax = softmax,
                              .softcap = softcap,
                              .add = add,
                              .rotate = rotate,
                              .rotate_neighbours = rotate_neighbours,
                              .clip = clip,
                              .attend = attend};

}  // namespace METRONOME_KERNELS
}  // namespace metronome
