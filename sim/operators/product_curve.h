// SPDX-License-Identifier: Apache-2.0
// Matrix products of a shape that was not measured, from those around it.
//
// A product of m tokens with an n x k weight takes at least
//   max(2 m n k / FLOP/s, (weight bytes + input bytes + 2 m n) / bandwidth),
// at the GPU's peaks. At each number of tokens, the measured times around (n, k) are compared with
// that bound plus 3 us, for what a launch costs. The logarithm of this ratio changes slowly with
// log n and log k, and is interpolated linearly in both. Outside of the measured shapes the ratio
// at the edge holds.
#pragma once

#include <cstddef>
#include <string_view>

#include "sim/cost/curve.h"
#include "sim/operators/operator_tables.h"

namespace metronome {

// Figures of a data type: bytes of an element, its scales included.
struct ProductPeaks {
  double flops = 0;      // FLOP/s
  double bandwidth = 0;  // bytes/s
  double weight_bytes = 2;
  double input_bytes = 2;

  double least_us(double m, double n, double k) const;
};

// Of bfloat16, fp8, fp8_block, nvfp4 and int4_wo, as the tables call them. Weights of int4_wo are
// multiplied in bfloat16.
ProductPeaks peaks_of(std::string_view dtype, const OperatorMeta& meta);

// By tokens, at those of the nearest measured shape. `num_clamped` grows by the measured times that
// lie below the bound, where weights were still in the L2 cache; the bound holds instead. Requires
// a table with products.
Curve product_curve(const ProductTable& table, const ProductPeaks& peaks, double n, double k,
                    std::size_t& num_clamped);

// The times of quantising the m x k input, at the tokens of `like`. Requires a table with widths.
Curve quantize_curve(const QuantizeTable& table, double k, const Curve& like);

}  // namespace metronome
