// SPDX-License-Identifier: Apache-2.0
// The kernels of the CPU executor: plain loops over 16 lanes, compiled for several instruction
// sets. The set is chosen at start-up.
//
// Every result is defined to the bit. The order of each sum depends only on the operands' own
// indices, never on batch, chunk, cache layout or thread. A product, a score and a weighted sum of
// values round once for each term: fma(x, y, sum). Other multiplications and additions round
// separately, and exp is a polynomial of this project. The same inputs give the same bits on every
// instruction set.
#pragma once

#include <cstdint>

#include "models/weights/tensor_type.h"

namespace metronome {

constexpr std::int64_t kLanes = 16;
// Weights are stored in panels of 64 outputs. Element (k, j) of a panel is at [k * 64 + j] in
// float32, in bfloat16 at [k * 64 + 2 * (j % 32) + j / 32]. So bfloat16 outputs 32 apart share a
// word, whose halves become floats by a shift and a mask.
constexpr std::int64_t kPanelOutputs = 64;
constexpr std::int64_t kHalfPanel = kPanelOutputs / 2;
// A product is the sum of its blocks of 256 inputs, in order. Each block is summed in order from 0.
constexpr std::int64_t kProductBlock = 256;
// Softmax runs over segments of 256 positions, aligned to multiples of 256.
constexpr std::int64_t kAttentionSegment = 256;
// Query rows that are computed together, and the buffer size for one row's scores of a segment.
constexpr std::int64_t kAttentionRows = 6;
constexpr std::int64_t kAttentionScores = kAttentionSegment + 2 * kLanes;

// Attention of some query rows of one sequence to one KV head. Row r is a query at positions[r].
// Its output is the softmax-weighted sum of the values it attends to.
//
// Keys and values are in tiles of 16 slots (see KvStore). Tile t has the sequence's positions
// [tile_positions[t], tile_positions[t + 1]), at most 16, in its first slots. The other slots have
// arbitrary content, including NaN, which never affects a result.
struct AttentionTask {
  const float* const* queries = nullptr;    // [num_rows] -> [head_dim], already scaled
  float* const* outputs = nullptr;          // [num_rows] -> [head_dim], distinct from all inputs
  const std::int32_t* positions = nullptr;  // [num_rows], ascending
  std::int32_t num_rows = 0;
  std::int32_t head_dim = 0;
  std::int32_t window = 0;                       // see attends(); kNoWindow = none
  float softcap = 0;                             // scores become softcap * tanh(score / softcap)
  const float* const* key_tiles = nullptr;       // [num_tiles] -> [head_dim, 16]
  const float* const* value_tiles = nullptr;     // [num_tiles] -> [16, head_dim]
  const std::int32_t* tile_positions = nullptr;  // [num_tiles + 1]
  std::int32_t num_tiles = 0;
  // [num_rows]: a score of each row that takes part in its softmax and has no value; null = none.
  const float* sinks = nullptr;
};

// The gated delta rule (arXiv 2412.06464) of consecutive tokens of one sequence and one value head,
// token by token. The state S is [key_dim, value_dim]; of a token with query q, key k, value v:
//   S *= decay;  S += k (v - S^T k)^T * beta;  output = S^T q
// Each sum runs over the rows of S in order.
struct DeltaTask {
  // Token t's rows begin at t * stride.
  const float* queries = nullptr;  // [num_tokens, key_dim], scaled
  const float* keys = nullptr;     // [num_tokens, key_dim]
  const float* values = nullptr;   // [num_tokens, value_dim]
  std::int64_t stride = 0;
  const float* decays = nullptr;  // [num_tokens], token t's at t * gate_stride
  const float* betas = nullptr;   // [num_tokens], laid out as decays
  std::int64_t gate_stride = 0;
  float* outputs = nullptr;  // [num_tokens, value_dim], token t's at t * output_stride
  std::int64_t output_stride = 0;
  float* state = nullptr;  // [key_dim, value_dim], updated
  std::int64_t num_tokens = 0;
  std::int64_t key_dim = 0;
  std::int64_t value_dim = 0;
};

// xIELU (arXiv 2411.13010): positive x^2 + kLinear x above 0, negative (e^x - 1 - x) + kLinear x
// below.
struct Xielu {
  static constexpr float kLinear = 0.5f;
  float positive = 0;
  float negative = 0;
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "baseline"

  // out[m][j] = sum over k of x[m][k] * panel[k][j], for j < num_outputs <= 64, m < num_rows. x is
  // [num_rows, num_inputs], panel [num_inputs, 64], out [num_rows, num_outputs].
  void (*multiply_f32)(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                       const float* panel, std::int64_t num_inputs, std::int64_t num_outputs,
                       float* out, std::int64_t out_stride);
  void (*multiply_bf16)(const float* x, std::int64_t x_stride, std::int64_t num_rows,
                        const std::uint16_t* panel, std::int64_t num_inputs,
                        std::int64_t num_outputs, float* out, std::int64_t out_stride);

  // Multiplies by quantised weights: a panel of quantised_panel.h. A weight is what dequantise() of
  // quantised_blocks.h computes, so the bits are those of multiply_f32 on these floats. Requires
  // finite scales.
  void (*multiply_quantised)(TensorType type, const float* x, std::int64_t x_stride,
                             std::int64_t num_rows, const std::uint32_t* panel,
                             std::int64_t num_inputs, std::int64_t num_outputs, float* out,
                             std::int64_t out_stride);

  // out = x / sqrt(mean(x^2) + eps) * weight, [n] each; out may be x.
  void (*rms_norm)(const float* x, const float* weight, std::int64_t n, float eps, float* out);
  // out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias, [n] each; bias may be null, out
  // may be x.
  void (*layer_norm)(const float* x, const float* weight, const float* bias, std::int64_t n,
                     float eps, float* out);
  // out = silu(gate) * up, gelu(gate) * up with the tanh approximation, and the same with the error
  // function (to 2e-7), [n] each. A null `up` counts as ones; out may be gate.
  void (*silu_multiply)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*gelu_tanh_multiply)(const float* gate, const float* up, std::int64_t n, float* out);
  void (*gelu_multiply)(const float* gate, const float* up, std::int64_t n, float* out);
  // out = gate * sigmoid(1.702 gate) * (up + 1), [n] each; the gate is at most 7, `up` within 7 of
  // 0. out may be gate.
  void (*clamped_swiglu)(const float* gate, const float* up, std::int64_t n, float* out);
  // out = max(gate, 0)^2 * up, [n] each. A null `up` counts as ones; out may be gate.
  void (*squared_relu_multiply)(const float* gate, const float* up, std::int64_t n, float* out);
  // x becomes xIELU of it, [n].
  void (*xielu)(float* x, const Xielu& coefficients, std::int64_t n);
  // out = sigmoid(gate) * x, [n] each; out may be gate or x.
  void (*sigmoid_multiply)(const float* gate, const float* x, std::int64_t n, float* out);
  // out = silu(sum over j < width of taps[j] * inputs[j]), [n] each: a convolution of n channels.
  // inputs is [width] -> [n], taps [width, n].
  void (*convolve)(const float* const* inputs, const float* taps, std::int64_t width,
                   std::int64_t n, float* out);
  void (*delta_rule)(const DeltaTask& task);
  // x becomes e^x divided by their sum, [n].
  void (*softmax)(float* x, std::int64_t n);
  // x becomes cap * tanh(x / cap), [n].
  void (*softcap)(float* x, float cap, std::int64_t n);
  // x += y, [n] each.
  void (*add)(float* x, const float* y, std::int64_t n);
  // Rotates pairs (x[i], x[i + n/2]) by angles given as cos[i], sin[i]. x is [n], the others are
  // [n/2].
  void (*rotate)(float* x, const float* cos, const float* sin, std::int64_t n);
  // Rotates pairs (x[2i], x[2i + 1]) by such angles.
  void (*rotate_neighbours)(float* x, const float* cos, const float* sin, std::int64_t n);
  // Elements of x beyond `bound` of 0 become it, [n].
  void (*clip)(float* x, float bound, std::int64_t n);

  // `scratch` is [attention_scratch_floats(task)].
  void (*attend)(const AttentionTask& task, float* scratch);
};

// The number of scratch floats that attend() needs.
std::int64_t attention_scratch_floats(const AttentionTask& task);

// The fastest instruction set of this machine.
const Kernels& kernels();
// Every instruction set of this machine, the fastest first; for tests.
const Kernels* const* all_kernels(int& count);

}  // namespace metronome
