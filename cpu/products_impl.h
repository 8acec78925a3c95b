// SPDX-License-Identifier: Apache-2.0
// The products of kernels.h for one instruction set; a part of kernels_impl.h.
#pragma once

#include "cpu/lanes.h"
#include "cpu/quantised_lanes.h"

namespace metronome::METRONOME_KERNELS {

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

// --- Products of few rows ---

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

// Writes the sums of the first block of inputs, adds those of later ones. `room` is the number of
// outputs from `to` on.
METRONOME_INLINE void put_sum(float* to, const Floats& sum, std::int64_t room, bool is_first) {
  if (room >= kWidth) {
    store(to, is_first ? sum : load(to) + sum);
  } else if (room > 0) {
    store_some(to, is_first ? sum : load_some(to, room) + sum, room);
  }
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
          for (int v = 0; v < kVectors; ++v) {
            sums[r][v] = multiply_add(input, weights[v], sums[r][v]);
          }
        }
      }
      METRONOME_UNROLL
      for (int r = 0; r < kRows; ++r) {
        METRONOME_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          const int in_half = v % (kVectors / 2) * kWidth;
          const std::int64_t output = j + in_half + (v < kVectors / 2 ? 0 : kHalfPanel);
          put_sum(out + r * out_stride + output, sums[r][v], num_outputs - output, is_first);
        }
      }
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

// --- Products of many rows ---

// From this many rows on, it pays to copy the weights of a tile once for all of them: as float32,
// and without gaps, so that they stay in the L1 cache.
constexpr std::int64_t kWidenRows = kAttentionRows + 1;

// Multiplies some rows of x by a tile: the weights of some inputs for kVectors vectors of outputs.
template <int kVectors>
struct TileProduct {
  const float* x;
  std::int64_t x_stride;
  const float* tile;        // [num_inputs, kVectors * kWidth]
  std::int64_t num_inputs;  // of the block
  std::int64_t num_outputs;
  float* out;
  std::int64_t out_stride;
  bool is_first;  // store the sums; later blocks add to them

  template <int kRows>
  void run() const {
    const float* row = tile;
    Floats sums[kRows][kVectors] = {};
    for (std::int64_t k = 0; k < num_inputs; ++k, row += kVectors * kWidth) {
      Floats weights[kVectors];
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) weights[v] = load(row + v * kWidth);
      METRONOME_UNROLL
      for (int r = 0; r < kRows; ++r) {
        const Floats input = broadcast(x[r * x_stride + k]);
        METRONOME_UNROLL
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = multiply_add(input, weights[v], sums[r][v]);
        }
      }
    }
    METRONOME_UNROLL
    for (int r = 0; r < kRows; ++r) {
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        put_sum(out + r * out_stride + v * kWidth, sums[r][v], num_outputs - v * kWidth, is_first);
      }
    }
  }
};

// All rows of x by one tile. One copy of the code serves every format.
template <int kVectors>
[[gnu::noinline]] static void multiply_tile(TileProduct<kVectors> product, std::int64_t num_rows) {
  for (std::int64_t row = 0; row < num_rows; row += kMaxRows) {
    with_rows(smaller(num_rows - row, kAttentionRows), product);
    product.x += kMaxRows * product.x_stride;
    product.out += kMaxRows * product.out_stride;
  }
}

// Multiplies rows of x by a panel, tile by tile. panel.widen<kVectors>(first_input, num_inputs,
// first_output, tile) copies the weights of a tile.
template <int kVectors, class Panel>
static void multiply_tiles(const Panel& panel, const float* x, std::int64_t x_stride,
                           std::int64_t num_rows, std::int64_t num_inputs, std::int64_t num_outputs,
                           float* out, std::int64_t out_stride) {
  constexpr int kTileOutputs = kVectors * kWidth;
  alignas(64) float tile[kProductBlock * kTileOutputs];
  for (std::int64_t k = 0; k < num_inputs; k += kProductBlock) {
    const std::int64_t block_inputs = smaller(num_inputs - k, kProductBlock);
    for (std::int64_t j = 0; j < num_outputs; j += kTileOutputs) {
      panel.template widen<kVectors>(k, block_inputs, static_cast<int>(j), tile);
      const TileProduct<kVectors> product = {x + k,           x_stride, tile,       block_inputs,
                                             num_outputs - j, out + j,  out_stride, k == 0};
      multiply_tile(product, num_rows);
    }
  }
}

METRONOME_INLINE Floats panel_weights(const float* row, int output) { return load(row + output); }

METRONOME_INLINE Floats panel_weights(const std::uint16_t* row, int output) {
  constexpr int kHalf = static_cast<int>(kHalfPanel);
  const Words pairs = load_words(row + 2 * (output % kHalf));
  return (Floats)(output < kHalf ? pairs << 16 : pairs & 0xffff0000u);
}

// A panel of float32 or bfloat16.
template <class Weight>
struct PlainPanel {
  const Weight* panel;

  template <int kVectors>
  void widen(std::int64_t first_input, std::int64_t num_inputs, int first_output,
             float* tile) const {
    for (std::int64_t k = 0; k < num_inputs; ++k) {
      const Weight* const row = panel + (first_input + k) * kPanelOutputs;
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        store(tile + (k * kVectors + v) * kWidth, panel_weights(row, first_output + v * kWidth));
      }
    }
  }
};

template <class Weight>
static void multiply_plain(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                           const Weight* panel, std::int64_t num_inputs, std::int64_t num_outputs,
                           float* out, std::int64_t out_stride) {
  if (num_rows >= kWidenRows) {
    return multiply_tiles<vectors_of(kMaxRows)>(PlainPanel<Weight>{panel}, x, x_stride, num_rows,
                                                num_inputs, num_outputs, out, out_stride);
  }
  for (std::int64_t k = 0; k < num_inputs; k += kProductBlock) {
    multiply_block<Weight>(
        {x + k, x_stride, panel + k * kPanelOutputs, smaller(num_inputs - k, kProductBlock),
         num_outputs, out, out_stride, k == 0},
        num_rows);
  }
}

static void multiply_f32(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                         const float* panel, std::int64_t num_inputs, std::int64_t num_outputs,
                         float* out, std::int64_t out_stride) {
  multiply_plain(x, x_stride, num_rows, panel, num_inputs, num_outputs, out, out_stride);
}

static void multiply_bf16(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                          const std::uint16_t* panel, std::int64_t num_inputs,
                          std::int64_t num_outputs, float* out, std::int64_t out_stride) {
  multiply_plain(x, x_stride, num_rows, panel, num_inputs, num_outputs, out, out_stride);
}

// --- Products of quantised weights ---

template <int kFormat>
struct QuantisedPanel {
  static constexpr StripFormat format = kStripFormats[kFormat];
  const std::uint32_t* panel;
  std::int64_t num_inputs;

  // The block that begins at an input, in the strip of an output.
  METRONOME_INLINE const std::uint32_t* block_at(const QuantisedPanel& panel, std::int64_t input,
                                                 int output) {
    const std::int64_t num_blocks = panel.num_inputs / format.block_inputs;
    return panel.panel + (output / kStripOutputs * num_blocks + input / format.block_inputs) *
                             format.block_words();
  }

  template <int kVectors>
  void widen(std::int64_t first_input, std::int64_t num_tile_inputs, int first_output,
             float* tile) const {
    constexpr int kStripPart = kVectors < kStripVectors ? kVectors : kStripVectors;
    for (int vector = 0; vector < kVectors; vector += kStripPart) {
      const int output = first_output + vector * kWidth;
      float* const to = tile + vector * kWidth;
      for_weights<kFormat, kStripPart>(
          block_at(*this, first_input, output), num_tile_inputs, output % kStripOutputs,
          [to](int input, const Floats(&weights)[kStripPart]) METRONOME_INLINED {
            METRONOME_UNROLL
            for (int v = 0; v < kStripPart; ++v) {
              store(to + (input * kVectors + v) * kWidth, weights[v]);
            }
          });
    }
  }

  // One row, without a copy of the weights.
  void multiply_row(const float* x, std::int64_t num_outputs, float* out) const {
    for (int j = 0; j < num_outputs; j += kStripOutputs) {
      for (std::int64_t k = 0; k < num_inputs; k += kProductBlock) {
        Floats sums[kStripVectors] = {};
        for_weights<kFormat, kStripVectors>(
            block_at(*this, k, j), smaller(num_inputs - k, kProductBlock), 0,
            [&sums, x, k](int input, const Floats(&weights)[kStripVectors]) METRONOME_INLINED {
              const Floats number = broadcast(x[k + input]);
              METRONOME_UNROLL
              for (int v = 0; v < kStripVectors; ++v) {
                sums[v] = multiply_add(number, weights[v], sums[v]);
              }
            });
        METRONOME_UNROLL
        for (int v = 0; v < kStripVectors; ++v) {
          const int output = j + v * kWidth;
          put_sum(out + output, sums[v], num_outputs - output, k == 0);
        }
      }
    }
  }
};

template <int kFormat>
static void multiply_format(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                            const std::uint32_t* words, std::int64_t num_inputs,
                            std::int64_t num_outputs, float* out, std::int64_t out_stride) {
  const QuantisedPanel<kFormat> panel = {words, num_inputs};
  if (num_rows == 1) return panel.multiply_row(x, num_outputs, out);
  const auto multiply = num_rows == 2
                            ? multiply_tiles<vectors_of(2), QuantisedPanel<kFormat>>
                            : multiply_tiles<vectors_of(kMaxRows), QuantisedPanel<kFormat>>;
  multiply(panel, x, x_stride, num_rows, num_inputs, num_outputs, out, out_stride);
}

static void multiply_quantised(TensorType type, const float* x, std::int64_t x_stride,
                               std::int64_t num_rows, const std::uint32_t* panel,
                               std::int64_t num_inputs, std::int64_t num_outputs, float* out,
                               std::int64_t out_stride) {
  constexpr decltype(&multiply_format<0>) kMultiply[kNumStripFormats] = {
      multiply_format<0>, multiply_format<1>, multiply_format<2>, multiply_format<3>,
      multiply_format<4>, multiply_format<5>, multiply_format<6>, multiply_format<7>};
  for (int i = 0; i < kNumStripFormats; ++i) {
    if (kStripFormats[i].type != type) continue;
    kMultiply[i](x, x_stride, num_rows, panel, num_inputs, num_outputs, out, out_stride);
  }
}

}  // namespace metronome::METRONOME_KERNELS
