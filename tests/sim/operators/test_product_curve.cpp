// SPDX-License-Identifier: Apache-2.0
// Products of shapes that were not measured, by hand.
#include <cmath>

#include "sim/operators/product_curve.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

// A GPU whose bound is easy to compute: 1 TFLOP/s, and bytes that cost nothing.
constexpr ProductPeaks kPeaks{1e12, 1e30, 2, 2};

TEST_CASE("a product takes at least its arithmetic or its bytes", "[operators]") {
  CHECK(kPeaks.least_us(10, 100, 1000) == Approx(2));
  // 2 x 100 x 1000 + 2 x 10 x 1000 + 2 x 10 x 100 bytes.
  CHECK(ProductPeaks{1e30, 1e12, 2, 2}.least_us(10, 100, 1000) == Approx(0.222));
  OperatorMeta meta;
  meta.bfloat16_flops = 1e12;
  meta.fp8_flops = 2e12;
  meta.fp4_flops = 4e12;
  meta.memory_bandwidth = 1e30;
  CHECK(peaks_of("fp8_block", meta).least_us(10, 100, 1000) == Approx(1));
  CHECK(peaks_of("nvfp4", meta).least_us(10, 100, 1000) == Approx(0.5));
  CHECK(peaks_of("int4_wo", meta).least_us(10, 100, 1000) == Approx(2));
  CHECK(peaks_of("int4_wo", meta).weight_bytes == 0.5);
}

TEST_CASE("between shapes the ratio to the bound is interpolated", "[operators]") {
  ProductTable table;
  const double bound = kPeaks.least_us(10, 100, 1000) + 3;  // 5 us
  table.by_shape[{100, 1000}] = {{10}, {2 * bound}};
  table.by_shape[{400, 1000}] = {{10}, {8 * (kPeaks.least_us(10, 400, 1000) + 3)}};
  std::size_t num_clamped = 0;
  // n = 200 is half way in the logarithm, so the ratio is sqrt(2 x 8).
  const Curve between = product_curve(table, kPeaks, 200, 1000, num_clamped);
  CHECK(between.x == std::vector<double>{10});
  CHECK(between.us[0] == Approx(4 * (4 + 3)).epsilon(1e-12));
  // Outside the ratio at the edge holds; and a size that only one edge has.
  CHECK(product_curve(table, kPeaks, 50, 2000, num_clamped).us[0] ==
        Approx(2 * (2 + 3)).epsilon(1e-12));
  CHECK(num_clamped == 0);
}

TEST_CASE("corners that were not measured have no weight", "[operators]") {
  ProductTable table;
  table.by_shape[{100, 1000}] = {{10}, {10}};   // ratio 2
  table.by_shape[{400, 4000}] = {{10}, {175}};  // ratio 5
  std::size_t num_clamped = 0;
  // (200, 1000): (400, 1000) lacks, so (100, 1000) counts alone: 2 x (4 + 3).
  CHECK(product_curve(table, kPeaks, 200, 1000, num_clamped).us[0] == Approx(14));
  // (400, 1000) itself lacks: the nearest shape counts, here (100, 1000): 2 x (8 + 3).
  CHECK(product_curve(table, kPeaks, 400, 1000, num_clamped).us[0] == Approx(22));
}

TEST_CASE("times beyond the peaks count as the peaks", "[operators]") {
  ProductTable table;
  table.by_shape[{100, 1000}] = {{10, 20}, {1, 20}};
  std::size_t num_clamped = 0;
  const Curve curve = product_curve(table, kPeaks, 100, 1000, num_clamped);
  CHECK(num_clamped == 1);
  CHECK(curve.us[0] == Approx(2).epsilon(1e-12));
  CHECK(curve.us[1] == Approx(20).epsilon(1e-12));
}

TEST_CASE("quantisation is linear in both sizes", "[operators]") {
  QuantizeTable table;
  table.by_width[1000] = {{10, 20}, {2, 4}};
  table.by_width[3000] = {{10, 20}, {4, 8}};
  const Curve curve = quantize_curve(table, 2000, {{10, 15, 40}, {}});
  CHECK(curve.us == std::vector<double>{3, 4.5, 6});
  CHECK(quantize_curve(table, 9000, {{10}, {}}).us == std::vector<double>{4});
}

}  // namespace
}  // namespace metronome::TEST_FILE
