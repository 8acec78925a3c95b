// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/router_product.h"

#include <algorithm>

#include "core/base/error.h"
#include "core/engine/kernel_rules.h"

namespace metronome {
namespace {

struct Measured {
  double tokens;
  double float32_us;
  double tf32_us;
};

constexpr double kMeasuredN = 256;
constexpr double kMeasuredK = 6144;
// 2 tokens took longer than 4, 71.8 and 19.6 us: a matter of PyTorch's choice for that shape alone.
// In TF32 nothing beyond 1,024 tokens is published; the last slope continues. In float32 the last
// row has the rate of the one before.
constexpr Measured kMeasured[] = {
    {1, 7.52, 10.9},   {8, 16.7, 12.0},     {16, 22.3, 12.2},     {32, 63.2, 19.9},
    {64, 63.3, 20.1},  {128, 69.3, 20.2},   {256, 77.8, 22.6},    {512, 96.8, 25.8},
    {1024, 111, 32.8}, {2048, 174.4, 46.8}, {8192, 438.7, 130.8}, {65536, 3509.6, 914.8},
};

constexpr double kLeastUs = 5.4;
constexpr double kCastUs = 1.9;  // a small kernel
constexpr double kCastBytes = 2 + 4;
constexpr double kUsPerSecond = 1e6;

}  // namespace

std::string_view to_string(RouterDtype dtype) {
  return kRouterDtypeNames[static_cast<std::size_t>(dtype)];
}

RouterDtype default_router_dtype(const ModelConfig& model, std::string_view engine) {
  const bool is_float32 =
      model.architecture == "MiniMaxM2ForCausalLM" && find_kernel_rules(engine).has_float32_routers;
  return is_float32 ? RouterDtype::Float32 : RouterDtype::Bfloat16;
}

Curve router_product(RouterDtype dtype, double n, double k, double bandwidth) {
  METRONOME_CHECK(dtype != RouterDtype::Bfloat16, "tables have products in bfloat16");
  const double scale = n * k / (kMeasuredN * kMeasuredK);
  Curve curve;
  for (const Measured& measured : kMeasured) {
    const double us = dtype == RouterDtype::Tf32 ? measured.tf32_us : measured.float32_us;
    const double product_us = std::max(scale * us, kLeastUs);
    const double cast_us = kCastUs + kUsPerSecond * kCastBytes * k * measured.tokens / bandwidth;
    curve.x.push_back(measured.tokens);
    curve.us.push_back(product_us + cast_us);
  }
  return curve;
}

}  // namespace metronome
