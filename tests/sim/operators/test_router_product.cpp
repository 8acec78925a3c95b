// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "sim/operators/router_product.h"
#include "tests/catch.h"
#include "tests/sim/operators/operator_lab.h"

namespace metronome::testing::TEST_FILE {

TEST_CASE("float32 routers take the published times, scaled with their shape", "[operators]") {
  constexpr double kBandwidth = 8e12;
  const auto cast_us = [](double tokens, double k) { return 1.9 + tokens * k * 6 / 8e6; };
  const Curve measured = router_product(RouterDtype::Float32, 256, 6144, kBandwidth);
  CHECK(at(measured, 64) == Approx(63.3 + cast_us(64, 6144)));
  CHECK(at(measured, 1024) == Approx(111 + cast_us(1024, 6144)));
  const Curve minimax = router_product(RouterDtype::Float32, 256, 3072, kBandwidth);
  CHECK(at(minimax, 16) == Approx(22.3 / 2 + cast_us(16, 3072)));
  CHECK(at(minimax, 32) == Approx(63.2 / 2 + cast_us(32, 3072)));
  const Curve tf32 = router_product(RouterDtype::Tf32, 256, 3072, kBandwidth);
  CHECK(at(tf32, 32) == Approx(19.9 / 2 + cast_us(32, 3072)));
  // Small ones take no less than the smallest measured products.
  CHECK(at(router_product(RouterDtype::Float32, 8, 4096, kBandwidth), 1) ==
        Approx(5.4 + cast_us(1, 4096)));
  // 2 m n k operations: no faster than the 80 TFLOP/s of a B200's float32 units.
  const double tokens = 65536;
  CHECK(2 * tokens * 256 * 3072 / (at(minimax, tokens) * 1e-6) < 80e12);
  for (const Curve& curve : {minimax, tf32}) {
    for (std::size_t i = 1; i < curve.us.size(); ++i) CHECK(curve.us[i] > curve.us[i - 1]);
  }
}

TEST_CASE("experts include the router as the engine computes it", "[operators]") {
  const OperatorTables tables = tables_of(OperatorFolder("[4096, 14336, 2, 8]"));
  ModelConfig mixtral = find_model("mixtral-8x7b", {});
  CHECK(default_router_dtype(mixtral, "vllm") == RouterDtype::Bfloat16);
  const OperatorTimes times = compose_operators(tables, mixtral, 1, RouterDtype::Float32);
  const Curve router = router_product(RouterDtype::Float32, 8, 4096, tables.meta.memory_bandwidth);
  CHECK(at(times.experts, 64) ==
        Approx(OperatorTimesLab::experts_us(1, 64) + at(router, 64) + 1.9).epsilon(1e-4));
  CHECK(times.remarks ==
        std::vector<std::string>{"router in float32: not measured; scaled from the same product of "
                                 "other shapes on a GB200 and a GB300"});
  mixtral.architecture = "MiniMaxM2ForCausalLM";
  CHECK(default_router_dtype(mixtral, "vllm") == RouterDtype::Float32);
  CHECK(default_router_dtype(mixtral, "trtllm") == RouterDtype::Bfloat16);
}

}  // namespace metronome::testing::TEST_FILE
