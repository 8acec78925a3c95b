// SPDX-License-Identifier: Apache-2.0
// The CPU kernels but for attention: to the bit against their definitions written plainly, on every
// instruction set, and within bounds against double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "models/weights/float16.h"
#include "tests/catch.h"
#include "tests/cpu/kernel_reference.h"

#define METRONOME_KERNELS kernels_of_test
#include "cpu/lanes.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr float kSentinel = -12345.0f;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

float exp_of(float x) { return kernels_of_test::exp(kernels_of_test::broadcast(x))[0]; }

// A distance in units of the last place of `expected`, as a float has them.
double ulps(double actual, double expected) {
  int exponent = 0;
  std::frexp(expected, &exponent);
  return std::abs(actual - expected) / std::ldexp(1.0, std::max(exponent, -125) - 24);
}

// Weights [num_outputs][num_inputs], as a panel of either kind has them.
struct Panel {
  std::int64_t num_inputs;
  std::int64_t num_outputs;
  Floats1d weights;
  Floats1d full;
  std::vector<std::uint16_t> half;

  Panel(Rng& rng, std::int64_t inputs, std::int64_t outputs)
      : num_inputs(inputs), num_outputs(outputs), weights(random_floats(rng, inputs * outputs)) {
    // NaNs stand behind the last output: no output may depend on them.
    full.assign(static_cast<std::size_t>(inputs * 64), kNan);
    half.assign(full.size(), bf16_of_float(kNan));
    for (std::int64_t j = 0; j < outputs; ++j) {
      for (std::int64_t k = 0; k < inputs; ++k) {
        float& weight = weights[static_cast<std::size_t>(j * inputs + k)];
        weight = float_of_bf16(bf16_of_float(weight));
        full[static_cast<std::size_t>(k * 64 + j)] = weight;
        half[static_cast<std::size_t>(k * 64 + 2 * (j % 32) + j / 32)] = bf16_of_float(weight);
      }
    }
  }

  // Rows have gaps and a row follows the last, all of which must stay as they are.
  Floats1d multiplied(const Kernels& set, bool is_half, const Floats1d& x,
                      std::int64_t num_rows) const {
    Floats1d out(static_cast<std::size_t>((num_rows + 1) * (num_outputs + 3)), kSentinel);
    if (is_half) {
      set.multiply_bf16(x.data(), num_inputs, num_rows, half.data(), num_inputs, num_outputs,
                        out.data(), num_outputs + 3);
    } else {
      set.multiply_f32(x.data(), num_inputs, num_rows, full.data(), num_inputs, num_outputs,
                       out.data(), num_outputs + 3);
    }
    return out;
  }

  Floats1d expected(const Floats1d& x, std::int64_t num_rows) const {
    Floats1d out(static_cast<std::size_t>((num_rows + 1) * (num_outputs + 3)), kSentinel);
    for (std::int64_t m = 0; m < num_rows; ++m) {
      for (std::int64_t j = 0; j < num_outputs; ++j) {
        out[static_cast<std::size_t>(m * (num_outputs + 3) + j)] = reference_product(
            x.data() + m * num_inputs, weights.data() + j * num_inputs, num_inputs);
      }
    }
    return out;
  }
};

}  // namespace

TEST_CASE("the machine's kernel sets end with the baseline", "[cpu_kernels]") {
  const std::vector<const Kernels*> sets = kernel_sets();
  REQUIRE_FALSE(sets.empty());
  CHECK(&kernels() == sets.front());
  CHECK(std::string(sets.back()->name) == "baseline");
}

TEST_CASE("the emulated multiply-add rounds once", "[cpu_kernels]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2, 3);
  Rng rng(seed, "multiply-add");
  const auto check = [seed](float a, float b, float c) {
    using kernels_of_test::broadcast;
    const float actual =
        kernels_of_test::multiply_add_in_double(broadcast(a), broadcast(b), broadcast(c))[0];
    const float expected = std::fma(a, b, c);
    INFO("seed " << seed << ": " << a << " * " << b << " + " << c << " is " << expected << ", got "
                 << actual);
    const bool is_same = std::isnan(expected) ? std::isnan(actual)
                                              : std::memcmp(&actual, &expected, sizeof(float)) == 0;
    REQUIRE(is_same);
  };
  // Of any magnitude, subnormal and infinite ones and NaN included.
  const auto any = [&rng] { return std::bit_cast<float>(static_cast<std::uint32_t>(rng())); };
  for (int i = 0; i < 100'000; ++i) {
    const float a = any();
    const float b = any();
    check(a, b, any());
    // Sums that cancel, and sums close to the middle between two floats.
    check(a, b, -(a * b));
    const float one =
        std::bit_cast<float>(0x3f800000u | static_cast<std::uint32_t>(rng() & 0x7fffffu));
    const float few = static_cast<float>(static_cast<int>(rng() % 64) - 32);
    const float small = std::ldexp(few, static_cast<int>(rng() % 64) - 60);
    check(small, one, one);
    check(one, one, small);
    check(std::ldexp(one, -100), std::ldexp(few, -30), std::ldexp(one, -126));
  }
}

TEST_CASE("a product has the bits of its definition for any number of rows", "[cpu_kernels]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "product");
  for (const std::int64_t num_inputs : {1, 7, 255, 256, 257, 576, 1031}) {
    for (const std::int64_t num_outputs : {1, 15, 16, 31, 32, 33, 48, 63, 64}) {
      const Panel panel(rng, num_inputs, num_outputs);
      const std::int64_t most_rows = num_inputs == 257 ? 27 : 7;
      const Floats1d x = random_floats(rng, most_rows * num_inputs);
      for (std::int64_t num_rows = 1; num_rows <= most_rows; ++num_rows) {
        const Floats1d expected = panel.expected(x, num_rows);
        for (const Kernels* set : kernel_sets()) {
          for (const bool is_half : {false, true}) {
            const Floats1d actual = panel.multiplied(*set, is_half, x, num_rows);
            const std::int64_t difference = first_difference(actual, expected);
            INFO(set->name << " seed " << seed << " half " << is_half << " inputs " << num_inputs
                           << " outputs " << num_outputs << " rows " << num_rows);
            REQUIRE(difference == -1);
          }
        }
      }
    }
  }
}

TEST_CASE("a product is within its rounding errors of the true one", "[cpu_kernels]") {
  Rng rng(3, "product");
  const std::int64_t num_inputs = 4096;
  const Panel panel(rng, num_inputs, 64);
  const Floats1d x = random_floats(rng, num_inputs);
  const Floats1d actual = panel.multiplied(kernels(), true, x, 1);
  for (std::int64_t j = 0; j < 64; ++j) {
    double sum = 0;
    double magnitude = 0;
    for (std::int64_t k = 0; k < num_inputs; ++k) {
      const double term = static_cast<double>(x[static_cast<std::size_t>(k)]) *
                          panel.weights[static_cast<std::size_t>(j * num_inputs + k)];
      sum += term;
      magnitude += std::abs(term);
    }
    // A term takes part in at most 256 + 16 additions and one multiplication.
    const double bound = (256 + 16 + 1) * 0x1p-24 * magnitude;
    CHECK(std::abs(static_cast<double>(actual[static_cast<std::size_t>(j)]) - sum) < bound);
  }
}

TEST_CASE("rms_norm has the bits of its definition", "[cpu_kernels]") {
  Rng rng(4, "norm");
  for (const std::int64_t n : {1, 3, 15, 16, 17, 40, 64, 127, 576, 1152}) {
    const Floats1d x = random_floats(rng, n, 3.0);
    const Floats1d weight = random_floats(rng, n);
    const float eps = 1e-5f;
    float lanes[16] = {};
    double squares = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      lanes[i % 16] += x[i] * x[i];
      squares += static_cast<double>(x[i]) * x[i];
    }
    const float scale = 1.0f / std::sqrt(reference_tree(lanes) / static_cast<float>(n) + eps);
    const double true_scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + 1e-5);
    Floats1d expected = x;
    for (std::size_t i = 0; i < x.size(); ++i) {
      expected[i] = x[i] * scale * weight[i];
      CHECK(expected[i] == Approx(x[i] * true_scale * weight[i]).epsilon(1e-6));
    }
    for (const Kernels* set : kernel_sets()) {
      INFO(set->name << " n " << n);
      Floats1d out(x.size());
      set->rms_norm(x.data(), weight.data(), n, eps, out.data());
      CHECK(first_difference(out, expected) == -1);
      Floats1d in_place = x;
      set->rms_norm(in_place.data(), weight.data(), n, eps, in_place.data());
      CHECK(first_difference(in_place, expected) == -1);
    }
  }
}

TEST_CASE("exp is within two units in the last place", "[cpu_kernels]") {
  double worst = 0;
  for (int i = -873000; i <= 887200; ++i) {
    const float x = static_cast<float>(i) * 1e-4f;
    worst = std::max(worst, ulps(exp_of(x), std::exp(static_cast<double>(x))));
  }
  INFO("worst " << worst);
  CHECK(worst < 2.0);
  CHECK(worst > 0.4);  // the yardstick itself: no float gets below a half everywhere
}

TEST_CASE("exp at its ends", "[cpu_kernels]") {
  CHECK(exp_of(0.0f) == 1.0f);
  CHECK(exp_of(-0.0f) == 1.0f);
  CHECK(exp_of(1e-30f) == 1.0f);
  CHECK(exp_of(-87.31f) == 0.0f);
  CHECK(exp_of(-87.3f) > 0.0f);
  CHECK(exp_of(-104.0f) == 0.0f);
  CHECK(exp_of(-1e30f) == 0.0f);
  CHECK(exp_of(-kInfinity) == 0.0f);
  CHECK_FALSE(std::signbit(exp_of(-kInfinity)));
  CHECK(exp_of(88.72283f) < kInfinity);
  CHECK(exp_of(88.72283f) == Approx(std::exp(88.72283)).epsilon(1e-5));
  CHECK(exp_of(88.7229f) == kInfinity);
  CHECK(exp_of(1e30f) == kInfinity);
  CHECK(exp_of(kInfinity) == kInfinity);
  CHECK(std::isnan(exp_of(kNan)));
  CHECK(std::isnan(exp_of(-kNan)));
  // A NaN whose low bits would reach the exponent.
  CHECK(std::isnan(exp_of(std::bit_cast<float>(0x7fc00001u))));
}

TEST_CASE("silu and gelu are accurate and the same on every set", "[cpu_kernels]") {
  Rng rng(5, "activations");
  Floats1d gate = random_floats(rng, 1000, 12.0);
  for (const float extreme : {0.0f, -0.0f, 1e-20f, -1e-20f, 30.0f, -30.0f, 87.0f, -87.0f, 100.0f,
                              -100.0f, 1e18f, -1e18f, kInfinity, kNan}) {
    gate.push_back(extreme);
  }
  const auto n = static_cast<std::int64_t>(gate.size());
  const Floats1d up = random_floats(rng, n);
  const Kernels& last = *kernel_sets().back();
  Floats1d silu(gate.size());
  Floats1d gelu(gate.size());
  last.silu_multiply(gate.data(), up.data(), n, silu.data());
  last.gelu_tanh_multiply(gate.data(), up.data(), n, gelu.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = gate[i];
    INFO("x " << x << " up " << up[i]);
    if (std::isnan(x)) {
      CHECK(std::isnan(silu[i]));
      CHECK(std::isnan(gelu[i]));
      continue;
    }
    const double y = std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x);
    const double true_silu = x / (1 + std::exp(-x)) * up[i];
    const double true_gelu = (x > 1e6 ? x : x / 2 * (1 + std::tanh(y))) * up[i];
    if (std::isinf(x)) {
      CHECK(silu[i] == true_silu);
      CHECK(gelu[i] == true_gelu);
    } else {
      CHECK(std::abs(silu[i] - true_silu) <= 5e-7 * std::abs(true_silu) + 1e-30);
      CHECK(std::abs(gelu[i] - true_gelu) <= 5e-7 * std::abs(true_gelu) + 2e-7);
    }
  }
  for (const Kernels* set : kernel_sets()) {
    INFO(set->name);
    Floats1d all = gate;
    set->silu_multiply(all.data(), up.data(), n, all.data());
    CHECK(first_difference(all, silu) == -1);
    set->gelu_tanh_multiply(gate.data(), up.data(), n, all.data());
    CHECK(first_difference(all, gelu) == -1);
    // The bits do not depend on where in an array an element lies.
    Floats1d alone(gate.size());
    for (std::size_t i = 0; i < gate.size(); ++i) {
      set->silu_multiply(&gate[i], &up[i], 1, &alone[i]);
    }
    CHECK(first_difference(alone, silu) == -1);
    for (std::size_t i = 0; i < gate.size(); ++i) {
      set->gelu_tanh_multiply(&gate[i], &up[i], 1, &alone[i]);
    }
    CHECK(first_difference(alone, gelu) == -1);
  }
}

TEST_CASE("clamped SwiGLU is accurate and the same on every set", "[cpu_kernels]") {
  Rng rng(9, "clamped");
  Floats1d gate = random_floats(rng, 500, 12.0);
  for (const float extreme : {0.0f, 7.0f, 7.5f, -60.0f, 1e18f, kInfinity}) gate.push_back(extreme);
  const auto n = static_cast<std::int64_t>(gate.size());
  const Floats1d up = random_floats(rng, n, 12.0);
  Floats1d first(gate.size());
  kernel_sets().back()->clamped_swiglu(gate.data(), up.data(), n, first.data());
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double x = std::min(double{gate[i]}, 7.0);
    const double y = std::clamp(double{up[i]}, -7.0, 7.0);
    const double expected = x / (1 + std::exp(-1.702 * x)) * (y + 1);
    CHECK(std::abs(first[i] - expected) <= 2e-6 * std::abs(expected) + 1e-30);
  }
  for (const Kernels* set : kernel_sets()) {
    Floats1d all = gate;
    set->clamped_swiglu(all.data(), up.data(), n, all.data());
    CHECK(first_difference(all, first) == -1);
  }
}

TEST_CASE("squares of ReLU, xIELU and bounds are those of their formulas", "[cpu_kernels]") {
  Rng rng(7, "other activations");
  Floats1d x = random_floats(rng, 300, 6.0);
  for (const float extreme : {0.0f, -0.0f, 1e-20f, -1e-20f, -87.0f, -100.0f, 1e15f, -1e15f, kNan}) {
    x.push_back(extreme);
  }
  const auto n = static_cast<std::int64_t>(x.size());
  const Floats1d up = random_floats(rng, n);
  const Xielu xielu = {.positive = 0.8f, .negative = 1.3f};
  Floats1d first_xielu;
  for (const Kernels* set : kernel_sets()) {
    INFO(set->name);
    Floats1d squared(x.size());
    set->squared_relu_multiply(x.data(), up.data(), n, squared.data());
    Floats1d bent = x;
    set->xielu(bent.data(), xielu, n);
    Floats1d clipped = x;
    set->clip(clipped.data(), 2.5f, n);
    for (std::size_t i = 0; i < x.size(); ++i) {
      INFO("x " << x[i]);
      if (std::isnan(x[i])) {
        CHECK((std::isnan(squared[i]) && std::isnan(bent[i]) && std::isnan(clipped[i])));
        continue;
      }
      CHECK(squared[i] == std::max(x[i], 0.0f) * std::max(x[i], 0.0f) * up[i]);
      CHECK(clipped[i] == std::clamp(x[i], -2.5f, 2.5f));
      const double y = x[i];
      const double curve = y > 0 ? 0.8 * y * y : 1.3 * (std::expm1(y) - y);
      CHECK(std::abs(bent[i] - (curve + y / 2)) <= 5e-7 * std::abs(curve) + 5e-7);
    }
    if (first_xielu.empty()) first_xielu = bent;
    CHECK(first_difference(bent, first_xielu) == -1);
  }
}

TEST_CASE("add and rotate round as floats do, and stay within their arrays", "[cpu_kernels]") {
  Rng rng(6, "rotate");
  for (const std::int64_t n : {2, 6, 16, 30, 32, 64, 80, 128, 256}) {
    const auto half = static_cast<std::size_t>(n / 2);
    const Floats1d cos = random_floats(rng, n / 2);
    const Floats1d sin = random_floats(rng, n / 2);
    const Floats1d y = random_floats(rng, n);
    const Floats1d x = random_floats(rng, n + 1);
    Floats1d added = x;
    Floats1d rotated = x;
    Floats1d neighbours = x;
    for (std::size_t i = 0; i < 2 * half; ++i) added[i] = x[i] + y[i];
    for (std::size_t i = 0; i < half; ++i) {
      rotated[i] = x[i] * cos[i] - x[i + half] * sin[i];
      rotated[i + half] = x[i + half] * cos[i] + x[i] * sin[i];
      neighbours[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
      neighbours[2 * i + 1] = x[2 * i + 1] * cos[i] + x[2 * i] * sin[i];
    }
    for (const Kernels* set : kernel_sets()) {
      INFO(set->name << " n " << n);
      Floats1d actual = x;
      set->add(actual.data(), y.data(), n);
      CHECK(first_difference(actual, added) == -1);
      actual = x;
      set->rotate(actual.data(), cos.data(), sin.data(), n);
      CHECK(first_difference(actual, rotated) == -1);
      actual = x;
      set->rotate_neighbours(actual.data(), cos.data(), sin.data(), n);
      CHECK(first_difference(actual, neighbours) == -1);
    }
  }
}

}  // namespace TEST_FILE
