// SPDX-License-Identifier: Apache-2.0
// The kernels' definitions, one float after the other, and what their tests share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "core/base/rng.h"
#include "cpu/kernels.h"

namespace metronome::testing {

using Floats1d = std::vector<float>;

inline Floats1d random_floats(Rng& rng, std::int64_t count, double scale = 1.0) {
  Floats1d values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>((2 * rng.uniform() - 1) * scale);
  return values;
}

// The first index whose bits differ, or -1.
inline std::int64_t first_difference(const Floats1d& a, const Floats1d& b) {
  if (a.size() != b.size()) return static_cast<std::int64_t>(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) return static_cast<std::int64_t>(i);
  }
  return -1;
}

inline std::vector<const Kernels*> kernel_sets() {
  int count = 0;
  const Kernels* const* sets = all_kernels(count);
  return {sets, sets + count};
}

// One row of a product: block by block, each summed from 0; a term rounds once.
inline float reference_product(const float* x, const float* weights, std::int64_t num_inputs) {
  float total = 0.0f;
  for (std::int64_t begin = 0; begin < num_inputs; begin += kProductBlock) {
    float sum = 0.0f;
    for (std::int64_t k = begin; k < std::min(begin + kProductBlock, num_inputs); ++k) {
      sum = std::fma(x[k], weights[k], sum);
    }
    total = begin == 0 ? sum : total + sum;
  }
  return total;
}

// The tree over 16 lanes that ends every strided sum.
inline float reference_tree(const float* lanes) {
  float sums[16];
  std::copy_n(lanes, 16, sums);
  for (int half = 8; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) sums[i] += sums[i + half];
  }
  return sums[0];
}

}  // namespace metronome::testing
