// SPDX-License-Identifier: Apache-2.0
// Kernels of layers with a recurrent state, for one instruction set (see kernels_impl.h).
#pragma once

#include "cpu/kernels_elements.h"

namespace metronome::METRONOME_KERNELS {

static void sigmoid_multiply(const float* gate, const float* x, std::int64_t n, float* out) {
  multiply_activated(gate, x, n, out, [](const Floats& g) { return 1.0f / (exp(-g) + 1.0f); });
}

static void convolve(const float* const* inputs, const float* taps, std::int64_t width,
                     std::int64_t n, float* out) {
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    Floats sum = {};
    for (std::int64_t j = 0; j < width; ++j) {
      sum = multiply_add(load_upto(taps + j * n + i, count), load_upto(inputs[j] + i, count), sum);
    }
    store_upto(out + i, sum / (exp(-sum) + 1.0f), count);
  });
}

// Columns [begin, begin + kVectors * kWidth) of the state and of values and outputs; the last
// vector has `count` of them.
template <int kVectors>
METRONOME_INLINE void update_columns(const DeltaTask& task, std::int64_t begin,
                                     std::int64_t count) {
  float* const state = task.state + begin;
  for (std::int64_t t = 0; t < task.num_tokens; ++t) {
    const float* const query = task.queries + t * task.stride;
    const float* const key = task.keys + t * task.stride;
    const float* const value = task.values + t * task.stride + begin;
    const float decay = task.decays[t * task.gate_stride];
    const float beta = task.betas[t * task.gate_stride];
    Floats sums[kVectors] = {};
    for (std::int64_t i = 0; i < task.key_dim; ++i) {
      const Floats key_lane = broadcast(key[i]);
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lanes = v + 1 < kVectors ? kWidth : count;
        const Floats kept = load_upto(state + i * task.value_dim + v * kWidth, lanes) * decay;
        sums[v] = multiply_add(kept, key_lane, sums[v]);
      }
    }
    Floats deltas[kVectors];
    METRONOME_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      const std::int64_t lanes = v + 1 < kVectors ? kWidth : count;
      deltas[v] = (load_upto(value + v * kWidth, lanes) - sums[v]) * beta;
      sums[v] = Floats{};
    }
    for (std::int64_t i = 0; i < task.key_dim; ++i) {
      const Floats key_lane = broadcast(key[i]);
      const Floats query_lane = broadcast(query[i]);
      METRONOME_UNROLL
      for (int v = 0; v < kVectors; ++v) {
        const std::int64_t lanes = v + 1 < kVectors ? kWidth : count;
        float* const place = state + i * task.value_dim + v * kWidth;
        const Floats kept = load_upto(place, lanes) * decay;
        const Floats updated = multiply_add(deltas[v], key_lane, kept);
        store_upto(place, updated, lanes);
        sums[v] = multiply_add(updated, query_lane, sums[v]);
      }
    }
    float* const out = task.outputs + t * task.output_stride + begin;
    METRONOME_UNROLL
    for (int v = 0; v < kVectors; ++v) {
      store_upto(out + v * kWidth, sums[v], v + 1 < kVectors ? kWidth : count);
    }
  }
}

// A column's sums do not depend on the columns beside it, so any number of them may be computed
// together. Several vectors hide the latency of a sum.
static void delta_rule(const DeltaTask& task) {
  constexpr int kVectors = 4;
  constexpr std::int64_t kColumns = kVectors * kWidth;
  std::int64_t begin = 0;
  for (; begin + kColumns <= task.value_dim; begin += kColumns) {
    update_columns<kVectors>(task, begin, kWidth);
  }
  for (; begin < task.value_dim; begin += kWidth) {
    update_columns<1>(task, begin, smaller<std::int64_t>(task.value_dim - begin, kWidth));
  }
}

}  // namespace metronome::METRONOME_KERNELS
