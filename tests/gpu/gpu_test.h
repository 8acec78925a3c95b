// SPDX-License-Identifier: Apache-2.0
// Helpers of tests of the GPU's kernels: bf16 vectors, their way to the device and back, and the
// results that are allowed when a float's rounding error stands before the rounding to bf16.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/base/rng.h"
#include "gpu/engine/device_memory.h"
#include "gpu/kernels/kernels.h"
#include "models/weights/float16.h"

namespace metronome::testing {

using Bf16s = std::vector<bf16>;

inline std::uint16_t bits_of(bf16 value) { return __bfloat16_as_ushort(value); }
inline bf16 bf16_of_bits(std::uint16_t bits) { return __ushort_as_bfloat16(bits); }

inline double to_double(bf16 value) { return static_cast<double>(float_of_bf16(bits_of(value))); }

// By way of float, so a double next to the middle of two bf16 may go the wrong way.
inline bf16 to_bf16(double value) { return bf16_of_bits(bf16_of_float(static_cast<float>(value))); }

inline bf16 bf16_nan() { return to_bf16(std::numeric_limits<double>::quiet_NaN()); }

inline Bf16s random_bf16(Rng& rng, std::int64_t count, double scale = 1.0) {
  Bf16s values(static_cast<std::size_t>(count));
  for (bf16& value : values) value = to_bf16((2 * rng.uniform() - 1) * scale);
  return values;
}

template <class T>
DeviceArray<T> on_device(const std::vector<T>& values) {
  DeviceArray<T> array(values.size());
  if (!values.empty()) array.upload(values);
  return array;
}

// The values [row * row_length, (row + 1) * row_length).
template <class T>
std::vector<T> row_of(const std::vector<T>& values, std::int64_t row, std::int64_t row_length) {
  return {values.begin() + row * row_length, values.begin() + (row + 1) * row_length};
}

template <class T>
void set_row(std::vector<T>& values, std::int64_t row, const std::vector<T>& content) {
  std::copy(content.begin(), content.end(),
            values.begin() + row * static_cast<std::int64_t>(content.size()));
}

// The first index whose bits differ, or -1.
inline std::int64_t first_difference(const Bf16s& a, const Bf16s& b) {
  if (a.size() != b.size()) return static_cast<std::int64_t>(std::min(a.size(), b.size()));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (bits_of(a[i]) != bits_of(b[i])) return static_cast<std::int64_t>(i);
  }
  return -1;
}

// How many bf16 steps lie between two values; the largest number there is where one is a NaN.
inline std::int32_t steps_apart(bf16 a, bf16 b) {
  const auto rank = [](bf16 value) {
    const std::int32_t magnitude = bits_of(value) & 0x7fff;
    return (bits_of(value) & 0x8000) != 0 ? -magnitude : magnitude;
  };
  if (std::isnan(to_double(a)) || std::isnan(to_double(b))) {
    return std::numeric_limits<std::int32_t>::max();
  }
  return std::abs(rank(a) - rank(b));
}

// The range of a number after the errors of float arithmetic. Rounding keeps the order, so the
// bf16 of such a number lies between the bf16 of the ends: mostly they are one and the same.
struct Range {
  double low = 0;
  double high = 0;
};

inline Range exactly(double value) { return {value, value}; }
inline Range widened(Range r, double absolute_error) {
  return {r.low - absolute_error, r.high + absolute_error};
}
inline double magnitude(Range r) { return std::max(std::abs(r.low), std::abs(r.high)); }
inline Range operator+(Range a, Range b) { return {a.low + b.low, a.high + b.high}; }
inline Range operator*(Range r, double factor) {
  const double a = r.low * factor;
  const double b = r.high * factor;
  return {std::min(a, b), std::max(a, b)};
}
inline Range rounded_to_bf16(Range r) {
  return {to_double(to_bf16(r.low)), to_double(to_bf16(r.high))};
}

// Results next to the ranges they must lie in.
class RangeCheck {
 public:
  void add(bf16 actual, Range expected) {
    const double value = to_double(actual);
    const bool is_inside = expected.low <= value && value <= expected.high;
    if (!is_inside && first_outside_ < 0) first_outside_ = num_values_;
    num_exact_ += expected.low == expected.high ? 1 : 0;
    ++num_values_;
  }

  // The index of the first result outside its range, or -1.
  std::int64_t first_outside() const { return first_outside_; }
  // The share of ranges that left no choice: what a test that proves something has near 1.
  double exact_share() const {
    return static_cast<double>(num_exact_) / static_cast<double>(num_values_);
  }

 private:
  std::int64_t first_outside_ = -1;
  std::int64_t num_values_ = 0;
  std::int64_t num_exact_ = 0;
};

// SiLU, or the tanh form of GELU.
inline double activation(double x, bool is_gelu) {
  const double u = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
  return is_gelu ? x / 2 * (1 + std::tanh(u)) : x / (1 + std::exp(-x));
}

// Of sums that are rounded before the activation and behind it. For gates of the order of 1:
// between two neighbouring bf16 the functions are as good as straight.
inline Range expected_gated(Range gate, Range up, bool is_gelu) {
  gate = rounded_to_bf16(gate);
  up = rounded_to_bf16(up);
  const double ends[] = {
      activation(gate.low, is_gelu) * up.low, activation(gate.low, is_gelu) * up.high,
      activation(gate.high, is_gelu) * up.low, activation(gate.high, is_gelu) * up.high};
  const Range range = {*std::min_element(ends, ends + 4), *std::max_element(ends, ends + 4)};
  const double bend = (gate.high - gate.low) * (gate.high - gate.low) * magnitude(up);
  return rounded_to_bf16(widened(range, magnitude(range) * 64 * 0x1p-24 + bend));
}

// norm() of kernels.h. `row` are exact values.
inline std::vector<Range> reference_norm(const Bf16s& row, const Bf16s& weight, double eps,
                                         bool unit_offset) {
  double squares = 0;
  for (const bf16 x : row) squares += to_double(x) * to_double(x);
  const double scale = 1 / std::sqrt(squares / static_cast<double>(row.size()) + eps);
  std::vector<Range> out;
  for (std::size_t i = 0; i < row.size(); ++i) {
    // A term is in at most about 50 additions, which the root halves; then a root and two products.
    constexpr double kError = 32 * 0x1p-24;
    const double exact_y = to_double(row[i]) * scale;
    const Range y = widened(exactly(exact_y), std::abs(exact_y) * kError);
    const double w = to_double(weight[i]);
    if (unit_offset) {
      const Range scaled = y * (1 + w);
      out.push_back(rounded_to_bf16(widened(scaled, magnitude(scaled) * 2 * 0x1p-24)));
    } else {
      out.push_back(rounded_to_bf16(rounded_to_bf16(y) * w));
    }
  }
  return out;
}

}  // namespace metronome::testing
