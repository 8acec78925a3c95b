// SPDX-License-Identifier: Apache-2.0
// Norms, activations and other loops over the elements of a row, for one instruction set (see
// kernels_impl.h).
#pragma once

#include "cpu/lanes.h"

namespace metronome::METRONOME_KERNELS {

// Calls step(i, count) for the vectors of an array; count < kWidth in the last partial vector.
template <class Step>
METRONOME_INLINE void for_vectors(std::int64_t n, const Step& step) {
  std::int64_t i = 0;
  for (; i + kWidth <= n; i += kWidth) step(i, std::int64_t{kWidth});
  if (i < n) step(i, n - i);
}

METRONOME_INLINE Floats load_upto(const float* from, std::int64_t count) {
  return count == kWidth ? load(from) : load_some(from, count);
}

METRONOME_INLINE void store_upto(float* to, const Floats& value, std::int64_t count) {
  if (count == kWidth) {
    store(to, value);
  } else {
    store_some(to, value, count);
  }
}

static void rms_norm(const float* x, const float* weight, std::int64_t n, float eps, float* out) {
  Floats sums[kParts] = {};
  for (std::int64_t i = 0; i < n; i += kLanes) {
    METRONOME_UNROLL
    for (int part = 0; part < kParts; ++part) {
      const std::int64_t begin = i + part * kWidth;
      if (begin >= n) break;
      const Floats value = load_upto(x + begin, smaller<std::int64_t>(n - begin, kWidth));
      sums[part] += value * value;
    }
  }
  const float mean = sum_of_lanes(sums) / static_cast<float>(n);
  const float scale = 1.0f / __builtin_sqrtf(mean + eps);
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats value = load_upto(x + i, count) * scale * load_upto(weight + i, count);
    store_upto(out + i, value, count);
  });
}

static void layer_norm(const float* x, const float* weight, const float* bias, std::int64_t n,
                       float eps, float* out) {
  const auto sum_over = [=](auto term) {
    Floats sums[kParts] = {};
    for (std::int64_t i = 0; i < n; i += kLanes) {
      METRONOME_UNROLL
      for (int part = 0; part < kParts; ++part) {
        const std::int64_t begin = i + part * kWidth;
        if (begin >= n) break;
        const std::int64_t count = smaller<std::int64_t>(n - begin, kWidth);
        float terms[kWidth] = {};
        store(terms, term(load_upto(x + begin, count)));
        sums[part] += load_upto(terms, count);
      }
    }
    return sum_of_lanes(sums);
  };
  const float mean = sum_over([](const Floats& value) { return value; }) / static_cast<float>(n);
  const float variance =
      sum_over([=](const Floats& value) { return (value - mean) * (value - mean); }) /
      static_cast<float>(n);
  const float scale = 1.0f / __builtin_sqrtf(variance + eps);
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats value = (load_upto(x + i, count) - mean) * scale * load_upto(weight + i, count);
    store_upto(out + i, bias == nullptr ? value : value + load_upto(bias + i, count), count);
  });
}

// out = activation(gate) * up.
template <class Activate>
METRONOME_INLINE void multiply_activated(const float* gate, const float* up, std::int64_t n,
                                         float* out, const Activate& activate) {
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats activated = activate(load_upto(gate + i, count));
    store_upto(out + i, up == nullptr ? activated : activated * load_upto(up + i, count), count);
  });
}

static void silu_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  multiply_activated(gate, up, n, out, [](const Floats& x) { return x / (exp(-x) + 1.0f); });
}

static void gelu_tanh_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  multiply_activated(gate, up, n, out, [](const Floats& x) {
    // x / 2 * (1 + tanh(y)) = x / (1 + e^(-2y)), without cancellation; 2y = 2 sqrt(2 / pi) * (x +
    // 0.044715 x^3).
    const Floats doubled = (x * x * x * 0.044715f + x) * 1.5957691216f;
    return x / (exp(-doubled) + 1.0f);
  });
}

static void gelu_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  multiply_activated(gate, up, n, out, [](const Floats& x) {
    // x times the normal distribution function, by formula 7.1.26 of Abramowitz and Stegun for the
    // error function at z = |x| / sqrt(2).
    const Floats z = larger(x, -x) * 0.70710678f;
    const Floats t = 1.0f / (z * 0.3275911f + 1.0f);
    Floats q = t * 1.061405429f - 1.453152027f;
    q = q * t + 1.421413741f;
    q = q * t - 0.284496736f;
    q = q * t + 0.254829592f;
    const Floats tail = q * t * exp(-z * z) * 0.5f;
    return x * (x < 0.0f ? tail : 1.0f - tail);
  });
}

static void clamped_swiglu(const float* gate, const float* up, std::int64_t n, float* out) {
  constexpr float kLimit = 7;
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats x = load_upto(gate + i, count);
    const Floats y = load_upto(up + i, count);
    const Floats least = broadcast(-kLimit);
    const Floats capped = -larger(-x, least);
    const Floats clamped = -larger(-larger(y, least), least);
    store_upto(out + i, capped / (exp(-capped * 1.702f) + 1.0f) * (clamped + 1.0f), count);
  });
}

static void squared_relu_multiply(const float* gate, const float* up, std::int64_t n, float* out) {
  multiply_activated(gate, up, n, out, [](const Floats& x) {
    const Floats positive = x < 0.0f ? Floats{} : x;  // NaN stays NaN
    return positive * positive;
  });
}

static void xielu(float* x, const Xielu& coefficients, std::int64_t n) {
  const float positive = coefficients.positive;
  const float negative = coefficients.negative;
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats value = load_upto(x + i, count);
    const Floats above = value * value * positive;
    const Floats below = (exp(value) - 1.0f - value) * negative;
    store_upto(x + i, (value > 0.0f ? above : below) + value * Xielu::kLinear, count);
  });
}

static void softmax(float* x, std::int64_t n) {
  float maximum = x[0];
  for (std::int64_t i = 1; i < n; ++i) maximum = x[i] > maximum ? x[i] : maximum;
  float sum = 0;
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    store_upto(x + i, exp(load_upto(x + i, count) - maximum), count);
  });
  for (std::int64_t i = 0; i < n; ++i) sum += x[i];
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    store_upto(x + i, load_upto(x + i, count) / sum, count);
  });
}

METRONOME_INLINE Floats softcapped(const Floats& x, float cap) {
  // tanh(y) = 1 - 2 / (e^(2y) + 1): its error is that of a rounding to 1, whatever y is.
  const Floats doubled = x / cap * 2.0f;
  return (1.0f - 2.0f / (exp(doubled) + 1.0f)) * cap;
}

static void softcap(float* x, float cap, std::int64_t n) {
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    store_upto(x + i, softcapped(load_upto(x + i, count), cap), count);
  });
}

static void add(float* x, const float* y, std::int64_t n) {
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    store_upto(x + i, load_upto(x + i, count) + load_upto(y + i, count), count);
  });
}

static void rotate(float* x, const float* cos, const float* sin, std::int64_t n) {
  float* const upper = x + n / 2;
  for_vectors(n / 2, [=](std::int64_t i, std::int64_t count) {
    const Floats a = load_upto(x + i, count);
    const Floats b = load_upto(upper + i, count);
    const Floats c = load_upto(cos + i, count);
    const Floats s = load_upto(sin + i, count);
    store_upto(x + i, a * c - b * s, count);
    store_upto(upper + i, b * c + a * s, count);
  });
}

static void rotate_neighbours(float* x, const float* cos, const float* sin, std::int64_t n) {
  for (std::int64_t i = 0; i < n / 2; ++i) {
    const float a = x[2 * i];
    const float b = x[2 * i + 1];
    x[2 * i] = a * cos[i] - b * sin[i];
    x[2 * i + 1] = b * cos[i] + a * sin[i];
  }
}

static void clip(float* x, float bound, std::int64_t n) {
  for_vectors(n, [=](std::int64_t i, std::int64_t count) {
    const Floats value = load_upto(x + i, count);
    const Floats capped = value > bound ? broadcast(bound) : value;
    store_upto(x + i, capped < -bound ? broadcast(-bound) : capped, count);
  });
}

}  // namespace metronome::METRONOME_KERNELS
