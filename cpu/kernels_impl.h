// The kernels of kernels.h for one instruction set. The including file defines METRONOME_KERNELS,
// the namespace of the kernels, and METRONOME_KERNELS_NAME.
#pragma once

#include "cpu/kernels_elements.h"
#include "cpu/lanes.h"

namespace metronome {

// first_attended() of attention_mask.h, compiled for every machine (see lanes.h).
std::int32_t first_attended_position(std::int32_t position, std::int32_t window);

namespace METRONOME_KERNELS {

// Rows are computed together, so that one load of the weights, keys or values serves all of them.
// The number of vectors per row follows from the registers: 32 in AVX-512, 16 before. A single row
// needs many vectors to hide the latency of its additions.
constexpr int kMaxRows = static_cast<int>(kAttentionRows);
constexpr int vectors_of(int num_rows) {
  if (kWidth == 16) return 4;
  return num_rows == 1 ? 8 : num_rows == 2 ? 4 : 2;
}

// Calls work.template run<R>() with R = num_rows in [1, kMaxRows].
template <class Work>
METRONOME_INLINE void with_rows(std::int64_t num_rows, const Work& work) {
  static_assert(kMaxRows == 6);
  switch (num_rows) {
    case 1: return work.template run<1>();
    case 2: return work.template run<2>();
    case 3: return work.template run<3>();
    case 4: return work.template run<4>();
    case 5: return work.template run<5>();
    default: return work.template run<6>();
  }
}

// --- Products ---

// A panel row's outputs are processed in two halves, as bfloat16 is stored that way: one vector
// from each half. `row` is the beginning of the lower half.
template <int kVectors>
METRONOME_INLINE void load_weights(const float* row, Floats (&weights)[kVectors]) {
  METRONOME_UNROLL
  for (int v = 0; v < kVectors / 2; ++v) {
    weights[v] = load(row + v * kWidth);
    weights[v + kVectors / 2] = load(row + kHalfPanel + v * kWidth);
  }
}

template <int kVectors>
METRONOME_INLINE void load_weights(const std::uint16_t* row, Floats (&weights)[kVectors]) {
  METRONOME_UNROLL
  for (int v = 0; v < kVectors / 2; ++v) {
    const Words pairs = load_words(row + 2 * v * kWidth);
    weights[v] = (Floats)(pairs << 16);
    weights[v + kVectors / 2] = (Floats)(pairs & 0xffff0000u);
  }
}

METRONOME_INLINE const float* weights_at(const float* block, std::int64_t output) {
  return block + output;
}
METRONOME_INLINE const std::uint16_t* weights_at(const std::uint16_t* block, std::int64_t output) {
  return block + 2 * output;
}

// Multiplies some rows of x by one block of a panel.
template <class Weight>
struct BlockProduct {
  const float* x;
  std::int64_t x_stride;
  const Weight* block;
  std::int64_t num_inputs;  // of the block
  std::int64_t num_outputs;
  float* out;
  std::int64_t out_stride;
  bool is_first;  // store the sums; later blocks add to them

  template <int kRows>
  void run() const {
    constexpr int kVectors = vectors_of(kRows);
    const std::int64_t num_columns = smaller(num_outputs, kHalfPanel);
    for (std::int64_t j = 0; j < num_columns; j += kVectors / 2 * kWidth) {
      const Weight* row = weights_at(block, j);
      Floats sums[kRows][kVectors] = {};
      for (std::int64_t k = 0; k < num_inputs; ++k, row += kPanelOutputs) {
        Floats weights[kVectors];
        load_weights(row, weights);
        METRONOME_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const Floats input = broadcast(x[r * x_stride + k]);
          METRONOME_UNROLL
          for (int v = 0; v < kVectors; ++v) sums[r][v] += input * weights[v];
        }
      }
      METRONOME_UNROLL
      for (int r = 0; r < kRows; ++r) {
        METRONOME_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const int in_half = v % (kVectors / 2) * kWidth;
          const std::int64_t output = j + in_half + (v < kVectors / 2 ? 0 : kHalfPanel);
          put(out + r * out_stride + output, sums[r][v], num_outputs - output);
        }
      }
    }
  }

  void put(float* to, const Floats& sum, std::int64_t room) const {
    if (room >= kWidth) {
      store(to, is_first ? sum : load(to) + sum);
    } else if (room > 0) {
      store_some(to, is_first ? sum : load_some(to, room) + sum, room);
    }
  }
};

template <class Weight>
static void multiply_block(BlockProduct<Weight> product, std::int64_t num_rows) {
  for (std::int64_t row = 0; row < num_rows; row += kMaxRows) {
    with_rows(smaller(num_rows - row, kAttentionRows), product);
    product.x += kMaxRows * product.x_stride;
    product.out += kMaxRows * product.out_stride;
  }
}

// From this many rows on, it pays to convert a block of bfloat16 to float32 once for all of them.
constexpr std::int64_t kWidenRows = 24;

static void widen_block(const std::uint16_t* block, std::int64_t num_inputs, float* wide) {
  constexpr int kVectors = static_cast<int>(kHalfPanel) / kWidth * 2;
  for (std::int64_t k = 0; k < num_inputs; ++k) {
    Floats weights[kVectors];
    load_weights(block + k * kPanelOutputs, weights);
    METRONOME_UNROLL
    for (int v = 0; v < kVectors; ++v) store(wide + k * kPanelOutputs + v * kWidth, weights[v]);
  }
}

static void multiply_f32(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                         const float* panel, std::int64_t num_inputs, std::int64_t num_outputs,
                         float* out, std::int64_t out_stride) {
  for (std::int64_t k = 0; k < num_inputs; k += kProductBlock) {
    multiply_block<float>(
        {x + k, x_stride, panel + k * kPanelOutputs, smaller(num_inputs - k, kProductBlock),
         num_outputs, out, out_stride, k == 0},
        num_rows);
  }
}

static void multiply_bf16(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                          const std::uint16_t* panel, std::int64_t num_inputs,
                          std::int64_t num_outputs, float* out, std::int64_t out_stride) {
  alignas(64) float wide[kProductBlock * kPanelOutputs];
  for (std::int64_t k = 0; k < num_inputs; k += kProductBlock) {
    const std::int64_t block_inputs = smaller(num_inputs - k, kProductBlock);
    const std::uint16_t* block = panel + k * kPanelOutputs;
    if (num_rows < kWidenRows) {
      multiply_block<std::uint16_t>(
          {x + k, x_stride, block, block_inputs, num_outputs, out, out_stride, k == 0}, num_rows);
    } else {
      widen_block(block, block_inputs, wide);
      multiply_block<float>(
          {x + k, x_stride, wide, block_inputs, num_outputs, out, out_stride, k == 0}, num_rows);
    }
  }
}

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
          for (int v = 0; v < kVectors; ++v) sums[r][v] += query * lanes[v];
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
          for (int v = 0; v < kVectors; ++v) sums[r][v] += weight * lanes[v];
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
    const float sum = sums[row];
    for_vectors(task.head_dim, [=](std::int64_t i, std::int64_t count) {
      store_upto(out + i, load_upto(out + i, count) / sum, count);
    });
  }
}

constexpr Kernels kKernels = {.name = METRONOME_KERNELS_NAME,
                              .multiply_f32 = multiply_f32,
                              .multiply_bf16 = multiply_bf16,
                              .rms_norm = rms_norm,
                              .layer_norm = layer_norm,
                              .silu_multiply = silu_multiply,
                              .gelu_tanh_multiply = gelu_tanh_multiply,
                              .gelu_multiply = gelu_multiply,
                              .softmax = softmax,
                              .softcap = softcap,
                              .add = add,
                              .rotate = rotate,
                              .attend = attend};

}  // namespace METRONOME_KERNELS
}  // namespace metronome
