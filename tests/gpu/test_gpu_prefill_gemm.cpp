// SPDX-License-Identifier: Apache-2.0
// The linear layers of prompts: to the bit where nothing rounds, against sums in double precision,
// and the bits of a row, which are its own whatever the tile, the grid and its company.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "gpu/kernels/launch.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr GemmEpilogue kEpilogues[] = {GemmEpilogue::Store, GemmEpilogue::Add, GemmEpilogue::Silu,
                                       GemmEpilogue::Gelu};

bool has_kernel() {
  int major = 0;
  check_cuda(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0),
             "cudaDeviceGetAttribute");
  if (major != 9) WARN("no compute capability 9.0 here: the kernel is skipped");
  return major == 9;
}

// The choices of a launch.
struct Shape {
  PrefillGemmTile tile;
  std::int32_t num_ctas = 1;
};

Shape random_shape(Rng& rng, const PrefillGemmTile& tile) {
  return {tile, draw(rng, tile.cluster, 6)};
}

struct Problem {
  std::int32_t m = 0;  // tokens
  std::int32_t n = 0;
  std::int32_t k = 0;
  GemmEpilogue epilogue = GemmEpilogue::Store;
  Bf16s w;  // [n][k], or [2 * n][k] with gates
  Bf16s x;  // [m][k]
  Bf16s y;  // [m][n] before
};

Problem problem_of(std::int32_t m, std::int32_t n, std::int32_t k, GemmEpilogue epilogue) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.epilogue = epilogue;
  return problem;
}

std::int64_t num_weight_rows(const Problem& problem) {
  return std::int64_t{has_gates(problem.epilogue) ? 2 : 1} * problem.n;
}

Problem random_problem(Rng& rng, std::int32_t m, std::int32_t n, std::int32_t k,
                       GemmEpilogue epilogue) {
  Problem problem = problem_of(m, n, k, epilogue);
  // So that gates are of the order of 1, where their functions bend.
  problem.w = random_bf16(rng, num_weight_rows(problem) * k, 2 / std::sqrt(k));
  problem.x = random_bf16(rng, std::int64_t{m} * k, 2.0);
  problem.y = random_bf16(rng, std::int64_t{m} * n, 4.0);
  return problem;
}

Bf16s nans(std::int64_t count) { return Bf16s(static_cast<std::size_t>(count), bf16_nan()); }

// [m][n]. NaN stands in front of and behind y, which must stay, behind x and w, which must not
// matter, and in y where nothing is added to it.
Bf16s run(const Problem& problem, const Shape& shape) {
  const auto followed_by_nans = [](Bf16s values, std::int64_t count) {
    values.resize(values.size() + static_cast<std::size_t>(count), bf16_nan());
    return on_device(values);
  };
  const std::int64_t guard = 256 * std::int64_t{problem.n};
  const std::int64_t size = std::int64_t{problem.m} * problem.n;
  const DeviceArray<bf16> w = followed_by_nans(problem.w, 256 * problem.k);
  const DeviceArray<bf16> x = followed_by_nans(problem.x, 256 * problem.k);
  Bf16s before = nans(guard);
  const Bf16s added = problem.epilogue == GemmEpilogue::Add ? problem.y : nans(size);
  before.insert(before.end(), added.begin(), added.end());
  const DeviceArray<bf16> y = followed_by_nans(before, guard);
  launch_prefill_gemm({.w = w.data(),
                       .x = x.data(),
                       .epilogue = problem.epilogue,
                       .y = y.data() + guard,
                       .num_tokens = problem.m,
                       .n = problem.n,
                       .k = problem.k,
                       .tile = shape.tile,
                       .num_ctas = shape.num_ctas},
                      nullptr);
  const Bf16s after = y.download();
  const auto part = [&](std::int64_t begin, std::int64_t count) {
    return Bf16s(after.begin() + begin, after.begin() + begin + count);
  };
  CHECK(first_difference(part(0, guard), nans(guard)) == -1);
  CHECK(first_difference(part(guard + size, guard), nans(guard)) == -1);
  return part(guard, size);
}

// Token t picks out one input, so its outputs are what the weights have there, to the bit: no
// element, no row and no half gets by in the wrong place.
std::int32_t picked_input(const Problem& problem, std::int32_t token) {
  return token * 5 % problem.k;
}

Problem picking_problem(Rng& rng, std::int32_t m, std::int32_t n, std::int32_t k,
                        GemmEpilogue epilogue) {
  Problem problem = problem_of(m, n, k, epilogue);
  for (std::int64_t i = 0; i < num_weight_rows(problem) * k; ++i) {
    problem.w.push_back(to_bf16(draw(rng, 1, 60)));
  }
  problem.x.assign(static_cast<std::size_t>(m * k), to_bf16(0));
  for (std::int32_t token = 0; token < m; ++token) {
    problem.x[static_cast<std::size_t>(token * k + picked_input(problem, token))] = to_bf16(1);
  }
  for (std::int32_t i = 0; i < m * n; ++i) problem.y.push_back(to_bf16(draw(rng, -60, 60)));
  return problem;
}

// Sums up to 120 need no rounding.
Bf16s picked(const Problem& problem) {
  Bf16s expected;
  for (std::int32_t token = 0; token < problem.m; ++token) {
    for (std::int32_t output = 0; output < problem.n; ++output) {
      const auto at = static_cast<std::size_t>(output * problem.k + picked_input(problem, token));
      const double before =
          problem.epilogue == GemmEpilogue::Add ? to_double(problem.y[expected.size()]) : 0.0;
      expected.push_back(to_bf16(before + to_double(problem.w[at])));
    }
  }
  return expected;
}

// A sum over k in order by one float accumulator. An addition is off by half a unit in the last
// place of what it comes to; tensor cores add several products at once, and drop what is below the
// last place of the largest.
Range expected_sum(const double* x, const double* w, std::int32_t k) {
  double sum = 0;
  double magnitudes = 0;  // of what has been added up, and of what is added to it, at each k
  for (std::int32_t i = 0; i < k; ++i) {
    sum += x[i] * w[i];
    magnitudes += std::abs(sum) + std::abs(x[i] * w[i]);
  }
  return widened(exactly(sum), magnitudes * 0x1p-23);
}

std::vector<double> doubles(const Bf16s& values) {
  std::vector<double> result;
  for (const bf16 value : values) result.push_back(to_double(value));
  return result;
}

void check_against_doubles(const Problem& problem, const Bf16s& result) {
  const std::vector<double> x = doubles(problem.x);
  const std::vector<double> w = doubles(problem.w);
  RangeCheck check;
  for (std::int64_t token = 0; token < problem.m; ++token) {
    for (std::int64_t output = 0; output < problem.n; ++output) {
      const auto sum = [&](std::int64_t row) {
        return expected_sum(x.data() + token * problem.k, w.data() + row * problem.k, problem.k);
      };
      const auto at = static_cast<std::size_t>(token * problem.n + output);
      Range expected = sum(output);
      if (has_gates(problem.epilogue)) {
        expected = expected_gated(expected, sum(problem.n + output),
                                  problem.epilogue == GemmEpilogue::Gelu);
      } else if (problem.epilogue == GemmEpilogue::Add) {
        expected = expected + exactly(to_double(problem.y[at]));
        expected = rounded_to_bf16(widened(expected, magnitude(expected) * 0x1p-24));
      } else {
        expected = rounded_to_bf16(expected);
      }
      check.add(result[at], expected);
    }
  }
  CHECK(check.first_outside() == -1);
  CHECK(check.exact_share() > (problem.k > 1200 ? 0.7 : 0.8));
}

std::vector<std::int32_t> shuffled(Rng& rng, std::int32_t count) {
  std::vector<std::int32_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), 0);
  for (std::size_t left = order.size(); left > 1; --left) {
    const auto i = static_cast<std::size_t>(draw(rng, 0, static_cast<std::int32_t>(left) - 1));
    std::swap(order[left - 1], order[i]);
  }
  return order;
}

// The problem with some of its tokens at other places: places[i] of token tokens[i]. All other
// tokens are NaN, and must not matter.
Problem among_nans(const Problem& all, const std::vector<std::int32_t>& tokens,
                   const std::vector<std::int32_t>& places, std::int32_t m) {
  Problem some = all;
  some.m = m;
  some.x = nans(std::int64_t{m} * all.k);
  some.y = nans(std::int64_t{m} * all.n);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    set_row(some.x, places[i], row_of(all.x, tokens[i], all.k));
    set_row(some.y, places[i], row_of(all.y, tokens[i], all.n));
  }
  return some;
}

}  // namespace

// Numbers of tokens around a tile's; an odd number of tiles, one below the other, leaves a CTA of
// the last cluster without any.
TEST_CASE("a product that picks out weights has their bits", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  Rng rng(1, "gpu_prefill_gemm");
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(2)) {
    for (const std::int32_t m : {1, tile.rows - 1, tile.rows, tile.rows + 1, 300}) {
      const GemmEpilogue epilogue = chance(rng, 0.5) ? GemmEpilogue::Store : GemmEpilogue::Add;
      const std::int32_t n = 8 * draw(rng, 1, tile.columns / 3);
      const Problem problem = picking_problem(rng, m, n, 8 * draw(rng, 1, 22), epilogue);
      const Shape shape = random_shape(rng, tile);
      CAPTURE(tile.rows, tile.columns, tile.cluster, shape.num_ctas, m, n, problem.k,
              static_cast<int>(epilogue));
      CHECK(first_difference(run(problem, shape), picked(problem)) == -1);
    }
  }
}

TEST_CASE("products of prompts are as defined", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  const auto seed = GENERATE(as<std::uint64_t>{}, 2, 3);
  Rng rng(seed, "gpu_prefill_gemm");
  for (const GemmEpilogue epilogue : kEpilogues) {
    for (const PrefillGemmTile& tile : prefill_gemm_tiles(2)) {
      const std::int32_t outputs = has_gates(epilogue) ? tile.columns / 2 : tile.columns;
      const std::int32_t n = 8 * draw(rng, 1, std::max(outputs / 3, 6));
      // Up to two rounds through nine stages of 128 tokens, which is what fits of the smallest
      // tile.
      const std::int32_t k = chance(rng, 0.5) ? 8 * draw(rng, 8, 30) : 8 * draw(rng, 31, 150);
      const std::int32_t m = chance(rng, 0.5) ? draw(rng, 1, 130) : draw(rng, 1, 300);
      const Problem problem = random_problem(rng, m, n, k, epilogue);
      const Shape shape = random_shape(rng, tile);
      CAPTURE(seed, static_cast<int>(epilogue), tile.rows, tile.columns, tile.cluster,
              shape.num_ctas, m, n, k);
      check_against_doubles(problem, run(problem, shape));
    }
  }
}

TEST_CASE("a row of a prompt has the same bits in every tile, grid, place and company",
          "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  Rng rng(4, "gpu_prefill_gemm");
  for (const GemmEpilogue epilogue : kEpilogues) {
    const std::int32_t n = 8 * draw(rng, 20, 36);
    const Problem all =
        random_problem(rng, 300, n, epilogue == GemmEpilogue::Add ? 680 : 200, epilogue);
    const Bf16s expected = run(all, {{256, 1}, 1});
    for (const PrefillGemmTile& tile : prefill_gemm_tiles(2)) {
      constexpr std::int32_t kCounts[] = {1, 2, 127, 128, 129, 257, 300};
      const std::int32_t m = kCounts[draw(rng, 0, 6)];
      std::vector<std::int32_t> tokens = shuffled(rng, all.m);
      tokens.resize(static_cast<std::size_t>(draw(rng, 1, m)));
      const std::vector<std::int32_t> places = shuffled(rng, m);
      const Shape shape = random_shape(rng, tile);
      CAPTURE(static_cast<int>(epilogue), n, all.k, tile.rows, tile.columns, tile.cluster,
              shape.num_ctas, m, tokens, places);
      const Bf16s result = run(among_nans(all, tokens, places, m), shape);
      std::size_t num_different = 0;
      for (std::size_t i = 0; i < tokens.size(); ++i) {
        const Bf16s row = row_of(result, places[i], n);
        if (first_difference(row, row_of(expected, tokens[i], n)) != -1) ++num_different;
      }
      CHECK(num_different == 0);
    }
  }
}

// Tiles go by bands of 2,048 tokens. A tile that was computed twice would be added twice.
TEST_CASE("each output of many tokens is computed once", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  Rng rng(5, "gpu_prefill_gemm");
  for (const std::int32_t m : {2048, 2 * 2048 + 130}) {
    const Problem problem = picking_problem(rng, m, 200, 64, GemmEpilogue::Add);
    const Bf16s expected = picked(problem);
    for (const Shape& shape :
         {Shape{{64, 1}, 1}, Shape{{80, 1}, 7}, Shape{{64, 2}, 3}, Shape{{96, 2}, 8},
          Shape{{192, 2}, 1000}, Shape{{64, 1, 64}, 3}, Shape{{80, 2, 64}, 8}}) {
      CAPTURE(m, shape.tile.columns, shape.tile.cluster, shape.num_ctas);
      CHECK(first_difference(run(problem, shape), expected) == -1);
    }
  }
}

TEST_CASE("what is added to rounds once", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  // 2^-8 + 2^-17 is more than half of what is between 1 and the next bf16, 1 + 2^-7; rounded by
  // itself it is half, and goes to the even one, which is 1. The other way round below -1.
  Problem problem = problem_of(130, 24, 64, GemmEpilogue::Add);
  problem.w.assign(24 * 64, to_bf16(0));
  for (std::size_t output = 0; output < 24; ++output) {
    const double sign = output % 2 == 0 ? 1 : -1;
    problem.w[output * 64 + 3] = to_bf16(sign * 0x1p-8);
    problem.w[output * 64 + 40] = to_bf16(sign * 0x1p-17);
  }
  problem.x.assign(130 * 64, to_bf16(1));
  Bf16s expected;
  for (std::size_t i = 0; i < 130 * 24; ++i) {
    const double sign = i % 2 == 0 ? 1 : -1;
    problem.y.push_back(to_bf16(sign));
    expected.push_back(to_bf16(sign * (1 + 0x1p-7)));
  }
  for (const PrefillGemmTile& tile : prefill_gemm_tiles(2)) {
    CAPTURE(tile.rows, tile.columns, tile.cluster);
    CHECK(first_difference(run(problem, {tile, 2}), expected) == -1);
  }
}

TEST_CASE("gates of prompts round as two kernels do", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  struct Case {
    GemmEpilogue epilogue;
    double gate, gate_rest;  // whose sum bf16 rounds to the first
    double up, up_rest;
    double expected;
  };
  // silu(1) = 0.7310586, silu(0.5) = 0.3112297, gelu(1) = 0.8411920. The first of each kind would
  // be 188 and 216 if either the gate or the up were not rounded, the second 61.75 and 116.5 if
  // the activation were.
  const Case cases[] = {{GemmEpilogue::Silu, 1, 0x1p-9, 256, 1, 187},
                        {GemmEpilogue::Silu, 0.5, 0x1p-10, 199, 0, 62},
                        {GemmEpilogue::Gelu, 1, 0x1p-9, 256, 1, 215},
                        {GemmEpilogue::Gelu, 1, 0x1p-9, 139, 0, 117}};
  for (const Case& c : cases) {
    Problem problem = problem_of(130, 136, 64, c.epilogue);
    problem.w.assign(2 * 136 * 64, to_bf16(0));
    for (std::size_t output = 0; output < 136; ++output) {
      bf16* const gate = problem.w.data() + output * 64;
      bf16* const up = gate + 136 * 64;
      gate[output % 32] = to_bf16(c.gate);
      gate[63] = to_bf16(c.gate_rest);
      up[5] = to_bf16(c.up);
      up[32] = to_bf16(c.up_rest);
    }
    problem.x.assign(130 * 64, to_bf16(1));
    const Bf16s expected(130 * 136, to_bf16(c.expected));
    for (const PrefillGemmTile& tile : prefill_gemm_tiles(2)) {
      CAPTURE(static_cast<int>(c.epilogue), c.expected, tile.rows, tile.columns, tile.cluster);
      CHECK(first_difference(run(problem, {tile, 3}), expected) == -1);
    }
  }
}

TEST_CASE("products of as many inputs as models have", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  Rng rng(6, "gpu_prefill_gemm");
  struct Size {
    std::int32_t m, n, k;
    GemmEpilogue epilogue;
    Shape shape;
  };
  for (const Size& size : {Size{129, 72, 3072, GemmEpilogue::Add, {{64, 2}, 2}},
                           Size{70, 264, 2560, GemmEpilogue::Store, {{256, 2}, 4}},
                           Size{40, 96, 1152, GemmEpilogue::Gelu, {{192, 1}, 1}},
                           Size{20, 40, 9728, GemmEpilogue::Add, {{80, 1}, 3}},
                           Size{3, 72, 4096, GemmEpilogue::Store, {{32, 2, 64}, 4}},
                           Size{70, 136, 3072, GemmEpilogue::Silu, {{128, 2, 64}, 4}}}) {
    const Problem problem = random_problem(rng, size.m, size.n, size.k, size.epilogue);
    CAPTURE(size.m, size.n, size.k);
    check_against_doubles(problem, run(problem, size.shape));
  }
}

// The next product loads through the copy engine the values that one has stored through it, and at
// last another kernel loads them by itself: in stream order, launched early, and in a graph.
TEST_CASE("products of prompts see what the ones in front of them stored", "[gpu_prefill_gemm]") {
  if (!has_kernel()) return;
  constexpr std::int32_t kSize = 192;  // inputs and outputs; of 300 tokens
  Rng rng(7, "gpu_prefill_gemm");
  const DeviceArray<bf16> w = on_device(random_bf16(rng, kSize * kSize, 0.5 / std::sqrt(kSize)));
  const Bf16s start = random_bf16(rng, 300 * kSize, 1.0);
  const DeviceArray<bf16> weight = on_device(Bf16s(kSize, to_bf16(1)));
  enum class Way { Plain, Early, Graph };
  const auto result_of = [&](Way way) {
    const DeviceArray<bf16> x = on_device(start);
    const DeviceArray<bf16> y(start.size());
    const DeviceArray<bf16> out(start.size());
    const Stream stream = make_stream();
    const auto enqueue = [&] {
      const EarlyLaunches early(way != Way::Plain);
      // y = x w, x += y w, y = x w and so on.
      for (int i = 0; i < 12; ++i) {
        const bool is_even = i % 2 == 0;
        launch_prefill_gemm({.w = w.data(),
                             .x = is_even ? x.data() : y.data(),
                             .epilogue = is_even ? GemmEpilogue::Store : GemmEpilogue::Add,
                             .y = is_even ? y.data() : x.data(),
                             .num_tokens = 300,
                             .n = kSize,
                             .k = kSize,
                             .tile = {kPrefillGemmColumns[static_cast<std::size_t>(i) % 9],
                                      i % 3 == 0 ? 1 : 2, i % 5 == 0 ? 64 : 128},
                             .num_ctas = 6},
                            stream.get());
      }
      launch_norm({.residual = x.data(),
                   .weight = weight.data(),
                   .out = out.data(),
                   .num_rows = 300,
                   .hidden_dim = kSize,
                   .eps = 1e-6f},
                  stream.get());
    };
    if (way == Way::Graph) {
      check_cuda(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal),
                 "cudaStreamBeginCapture");
      enqueue();
      cudaGraph_t captured = nullptr;
      check_cuda(cudaStreamEndCapture(stream.get(), &captured), "cudaStreamEndCapture");
      const CudaHandle<cudaGraph_t, cudaGraphDestroy> graph(captured);
      cudaGraphExec_t executable = nullptr;
      check_cuda(cudaGraphInstantiate(&executable, graph.get(), 0), "cudaGraphInstantiate");
      const GraphExec exec(executable);
      check_cuda(cudaGraphLaunch(exec.get(), stream.get()), "cudaGraphLaunch");
      check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    } else {
      enqueue();
      check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
    }
    return out.download();
  };
  const Bf16s plain = result_of(Way::Plain);
  CHECK(std::none_of(plain.begin(), plain.end(),
                     [](bf16 value) { return std::isnan(to_double(value)); }));
  CHECK(first_difference(result_of(Way::Early), plain) == -1);
  CHECK(first_difference(result_of(Way::Graph), plain) == -1);
}

TEST_CASE("a product of no tokens is nothing", "[gpu_prefill_gemm]") {
  launch_prefill_gemm({.n = 64, .k = 64, .tile = {64, 1}, .num_ctas = 1}, nullptr);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace TEST_FILE
