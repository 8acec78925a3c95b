// SPDX-License-Identifier: Apache-2.0
// The linear layers of decodes against sums in double precision, and the bits of a row, which are
// its own.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr float kEps = 1e-5f;
constexpr GemmEpilogue kEpilogues[] = {GemmEpilogue::Store, GemmEpilogue::Add,
                                       GemmEpilogue::StoreFloat, GemmEpilogue::Silu,
                                       GemmEpilogue::Gelu};

struct Problem {
  std::int32_t n = 0;
  std::int32_t k = 0;
  std::int32_t m = 0;
  GemmEpilogue epilogue = GemmEpilogue::Store;
  bool has_norm = false;
  bool has_update = false;
  bool unit_offset = false;
  Bf16s w, x, update, norm_weight, post_weight;
  Bf16s y;                         // [m][n] before
  std::vector<std::int32_t> rows;  // empty: none are given
};

struct Result {
  std::vector<double> y;  // [m][n]
  Bf16s updated;          // [m][k]; NaN where there is no update
};

Problem random_problem(Rng& rng, std::int32_t n, std::int32_t k, std::int32_t m,
                       GemmEpilogue epilogue) {
  Problem problem;
  problem.n = n;
  problem.k = k;
  problem.m = m;
  problem.epilogue = epilogue;
  // So that gates are of the order of 1, where their functions bend.
  problem.w = random_bf16(rng, std::int64_t{has_gates(epilogue) ? 2 : 1} * n * k, 2 / std::sqrt(k));
  problem.x = random_bf16(rng, std::int64_t{m} * k, 2.0);
  problem.update = random_bf16(rng, std::int64_t{m} * k, 3.0);
  problem.y = random_bf16(rng, std::int64_t{m} * n, 4.0);
  return problem;
}

// Weights of norms are around 1, or around 0 with unit_offset.
void draw_norms(Rng& rng, Problem& problem) {
  for (Bf16s* weight : {&problem.norm_weight, &problem.post_weight}) {
    *weight = random_bf16(rng, problem.k, 0.9);
    if (problem.unit_offset) continue;
    for (bf16& w : *weight) w = to_bf16(1 + to_double(w));
  }
}

DecodeGemmArgs shape_args(const Problem& problem, std::int32_t num_ctas) {
  DecodeGemmArgs args;
  args.eps = kEps;
  args.unit_offset = problem.unit_offset;
  args.epilogue = problem.epilogue;
  args.num_tokens = problem.m;
  args.n = problem.n;
  args.k = problem.k;
  args.num_ctas = num_ctas;
  return args;
}

// Memory behind the last row of y and of what is updated stays as it is.
Result run(const Problem& problem, std::int32_t num_ctas = 3) {
  const auto on_device_if = [](bool is_there, const Bf16s& values) {
    return is_there ? on_device(values) : DeviceArray<bf16>();
  };
  const DeviceArray<bf16> w = on_device(problem.w);
  const DeviceArray<bf16> x = on_device(problem.x);
  const DeviceArray<bf16> update = on_device_if(problem.has_update, problem.update);
  const DeviceArray<bf16> norm_weight = on_device_if(problem.has_norm, problem.norm_weight);
  const DeviceArray<bf16> post_weight = on_device_if(problem.has_update, problem.post_weight);
  const DeviceArray<std::int32_t> rows = on_device(problem.rows);
  const auto size = static_cast<std::size_t>(problem.m) * static_cast<std::size_t>(problem.n);
  Bf16s y = problem.y;
  y.resize(size + 8, bf16_nan());
  const DeviceArray<bf16> halves = on_device(y);
  const DeviceArray<float> floats = on_device(std::vector<float>(size + 8, 7.0f));
  const DeviceArray<bf16> updated =
      on_device(Bf16s(static_cast<std::size_t>((problem.m + 1) * problem.k), bf16_nan()));

  DecodeGemmArgs args = shape_args(problem, num_ctas);
  const bool is_float = problem.epilogue == GemmEpilogue::StoreFloat;
  args.w = w.data();
  args.x = x.data();
  args.rows = problem.rows.empty() ? nullptr : rows.data();
  args.norm_weight = norm_weight.data();
  args.update = update.data();
  args.post_weight = post_weight.data();
  args.updated = problem.has_update ? updated.data() : nullptr;
  args.y = is_float ? static_cast<void*>(floats.data()) : halves.data();
  launch_decode_gemm(args, nullptr);

  Result result;
  for (const bf16 value : halves.download()) result.y.push_back(to_double(value));
  const std::vector<double> behind(result.y.begin() + static_cast<long>(size), result.y.end());
  CHECK(std::all_of(behind.begin(), behind.end(), [](double value) { return std::isnan(value); }));
  if (is_float) {
    const std::vector<float> values = floats.download();
    CHECK(std::count(values.begin() + static_cast<long>(size), values.end(), 7.0f) == 8);
    result.y.assign(values.begin(), values.end());
  }
  result.y.resize(size);
  result.updated = updated.download();
  CHECK(first_difference(row_of(result.updated, problem.m, problem.k),
                         Bf16s(static_cast<std::size_t>(problem.k), bf16_nan())) == -1);
  result.updated.resize(static_cast<std::size_t>(problem.m * problem.k));
  CHECK(first_difference(x.download(), problem.x) == -1);
  CHECK(first_difference(update.download(), problem.has_update ? problem.update : Bf16s()) == -1);
  return result;
}

std::int64_t source_row(const Problem& problem, std::int64_t token) {
  return problem.rows.empty() ? token : problem.rows[static_cast<std::size_t>(token)];
}

// A token's input of the product, given the kernel's own output for the residual stream.
std::vector<Range> expected_input(const Problem& problem, const Result& result,
                                  std::int64_t token) {
  const Bf16s row = problem.has_update ? row_of(result.updated, token, problem.k)
                                       : row_of(problem.x, source_row(problem, token), problem.k);
  if (problem.has_norm) {
    return reference_norm(row, problem.norm_weight, kEps, problem.unit_offset);
  }
  std::vector<Range> input;
  for (const bf16 value : row) input.push_back(exactly(to_double(value)));
  return input;
}

void check_updated(const Problem& problem, const Result& result) {
  if (!problem.has_update) {
    CHECK(first_difference(result.updated, Bf16s(result.updated.size(), bf16_nan())) == -1);
    return;
  }
  RangeCheck check;
  for (std::int64_t token = 0; token < problem.m; ++token) {
    const std::int64_t row = source_row(problem, token);
    const Bf16s before = row_of(problem.x, row, problem.k);
    const Bf16s actual = row_of(result.updated, token, problem.k);
    const std::vector<Range> terms = reference_norm(row_of(problem.update, row, problem.k),
                                                    problem.post_weight, kEps, problem.unit_offset);
    for (std::size_t i = 0; i < actual.size(); ++i) {
      check.add(actual[i], rounded_to_bf16(exactly(to_double(before[i])) + terms[i]));
    }
  }
  CHECK(check.first_outside() == -1);
  CHECK(check.exact_share() > 0.98);
}

// Row `row` of w times the inputs, in any order of float additions; tensor cores may drop bits.
Range expected_sum(const Problem& problem, const std::vector<Range>& input, std::int64_t row) {
  Range sum;
  double magnitudes = 0;
  for (std::int32_t i = 0; i < problem.k; ++i) {
    const double w = to_double(problem.w[static_cast<std::size_t>(row * problem.k + i)]);
    const Range term = input[static_cast<std::size_t>(i)] * w;
    sum = sum + term;
    magnitudes += magnitude(term);
  }
  return widened(sum, magnitudes * 0x1p-23 * (32 + problem.k / 8.0));
}

// The first output that is wrong, or -1.
std::int64_t first_wrong(const Problem& problem, const Result& result) {
  for (std::int64_t token = 0; token < problem.m; ++token) {
    const std::vector<Range> input = expected_input(problem, result, token);
    for (std::int64_t output = 0; output < problem.n; ++output) {
      const std::int64_t at = token * problem.n + output;
      Range expected = expected_sum(problem, input, output);
      switch (problem.epilogue) {
        case GemmEpilogue::StoreFloat: break;
        case GemmEpilogue::Store: expected = rounded_to_bf16(expected); break;
        case GemmEpilogue::Add: {
          const double before = to_double(problem.y[static_cast<std::size_t>(at)]);
          const Range sum = exactly(before) + expected;
          expected = rounded_to_bf16(widened(sum, magnitude(sum) * 0x1p-24));
          break;
        }
        case GemmEpilogue::Silu:
        case GemmEpilogue::Gelu:
          expected = expected_gated(expected, expected_sum(problem, input, problem.n + output),
                                    problem.epilogue == GemmEpilogue::Gelu);
      }
      const double value = result.y[static_cast<std::size_t>(at)];
      if (!(expected.low <= value && value <= expected.high)) return at;
    }
  }
  return -1;
}

void set_prologue(Rng& rng, Problem& problem, int kind) {
  problem.has_norm = kind > 0;
  problem.has_update = kind > 2;
  problem.unit_offset = kind % 2 == 0;
  draw_norms(rng, problem);
}

// The problem of some of the tokens, in that order; others are NaN, and must not matter.
Problem among_nans(const Problem& all, const std::vector<std::int32_t>& tokens, std::int32_t m) {
  Problem some = all;
  some.m = m;
  for (Bf16s* values : {&some.x, &some.update}) {
    values->assign(static_cast<std::size_t>(m * all.k), bf16_nan());
  }
  some.y.assign(static_cast<std::size_t>(m * all.n), bf16_nan());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const auto place = static_cast<std::int64_t>(i);
    set_row(some.x, place, row_of(all.x, tokens[i], all.k));
    set_row(some.update, place, row_of(all.update, tokens[i], all.k));
    set_row(some.y, place, row_of(all.y, tokens[i], all.n));
  }
  return some;
}

}  // namespace

TEST_CASE("a product of known numbers", "[gpu_decode_gemm]") {
  // Of row i of w only element 5 i is not zero; of x all are 1, 2, 3, ..., 64: nothing rounds.
  Problem problem;
  problem.n = 11;
  problem.k = 64;
  problem.m = 2;
  problem.w.assign(11 * 64, to_bf16(0));
  for (std::size_t i = 0; i < 11; ++i) problem.w[i * 64 + 5 * i] = to_bf16(i % 2 == 0 ? 1 : -0.5);
  for (int i = 0; i < 128; ++i) problem.x.push_back(to_bf16(i + 1));
  problem.y.assign(22, to_bf16(100));
  for (const GemmEpilogue epilogue : {GemmEpilogue::StoreFloat, GemmEpilogue::Add}) {
    problem.epilogue = epilogue;
    const double before = epilogue == GemmEpilogue::Add ? 100 : 0;
    const Result result = run(problem);
    for (int i = 0; i < 11; ++i) {
      const double factor = i % 2 == 0 ? 1 : -0.5;
      CHECK(result.y[static_cast<std::size_t>(i)] == before + factor * (5 * i + 1));
      CHECK(result.y[static_cast<std::size_t>(11 + i)] == before + factor * (5 * i + 65));
    }
  }
}

TEST_CASE("gates round as three kernels do", "[gpu_decode_gemm]") {
  // Gate and up are sums that bf16 rounds: 1 + 2^-9 to 1, 257 to 256. silu(1) = 0.731059.
  Problem problem;
  problem.n = 1;
  problem.k = 8;
  problem.m = 1;
  problem.epilogue = GemmEpilogue::Silu;
  problem.w.assign(16, to_bf16(0));
  problem.w[0] = to_bf16(1);
  problem.w[1] = to_bf16(0x1p-9);
  problem.w[8] = to_bf16(256);
  problem.w[9] = to_bf16(1);
  problem.x.assign(8, to_bf16(1));
  problem.y.assign(1, to_bf16(0));
  CHECK(run(problem).y[0] == to_double(to_bf16(0.7310585786 * 256)));
}

TEST_CASE("products of every kind are as defined", "[gpu_decode_gemm]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "gpu_decode_gemm");
  for (const GemmEpilogue epilogue : kEpilogues) {
    for (int prologue = 0; prologue < 5; ++prologue) {
      for (const std::int32_t k : {8, 40, 72, 256, 264, 520, 1152}) {
        const std::int32_t n = draw(rng, 1, k > 500 ? 40 : 120);
        Problem problem = random_problem(rng, n, k, draw(rng, 1, 16), epilogue);
        set_prologue(rng, problem, prologue);
        const std::int32_t num_ctas = draw(rng, 1, 7);
        CAPTURE(seed, static_cast<int>(epilogue), prologue, k, n, problem.m, num_ctas);
        const Result result = run(problem, num_ctas);
        check_updated(problem, result);
        CHECK(first_wrong(problem, result) == -1);
      }
    }
  }
}

TEST_CASE("products with as many inputs as models have", "[gpu_decode_gemm]") {
  Rng rng(3, "gpu_decode_gemm");
  struct Shape {
    std::int32_t n, k, m;
  };
  for (const Shape& shape : {Shape{40, 3072, 16}, Shape{24, 8192, 8}, Shape{9, 9728, 5},
                             Shape{17, 6912, 1}, Shape{50, 2560, 12}, Shape{33, 4096, 2}}) {
    const GemmEpilogue epilogue = kEpilogues[draw(rng, 0, 4)];
    Problem problem = random_problem(rng, shape.n, shape.k, shape.m, epilogue);
    set_prologue(rng, problem, shape.k > 4096 ? 0 : 2);
    CAPTURE(shape.n, shape.k, shape.m, static_cast<int>(epilogue));
    if (!decode_gemm_takes(shape_args(problem, 3))) continue;
    CHECK(first_wrong(problem, run(problem)) == -1);
  }
}

TEST_CASE("a row has the same bits in every place, company and grid", "[gpu_decode_gemm]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 4, 5);
  Rng rng(seed, "gpu_decode_gemm");
  for (const std::int32_t k : {72, 1152, 3072}) {
    const std::int32_t n = draw(rng, 20, 60);
    for (const GemmEpilogue epilogue :
         {GemmEpilogue::StoreFloat, GemmEpilogue::Add, GemmEpilogue::Silu}) {
      Problem all = random_problem(rng, n, k, 16, epilogue);
      set_prologue(rng, all, draw(rng, 0, 4));
      const Result expected = run(all);
      for (const std::int32_t m : {1, 2, 5, 8, 9, 13, 16}) {
        std::vector<std::int32_t> tokens(16);
        std::iota(tokens.begin(), tokens.end(), 0);
        for (std::size_t i = 15; i > 0; --i) {
          std::swap(tokens[i], tokens[static_cast<std::size_t>(draw(rng, 0, static_cast<int>(i)))]);
        }
        tokens.resize(static_cast<std::size_t>(draw(rng, 1, m)));
        const std::int32_t num_ctas = draw(rng, 1, 2 * n);
        CAPTURE(seed, k, n, static_cast<int>(epilogue), all.has_norm, all.has_update, m, num_ctas,
                tokens);
        const Result result = run(among_nans(all, tokens, m), num_ctas);
        for (std::size_t i = 0; i < tokens.size(); ++i) {
          const auto place = static_cast<std::int64_t>(i);
          CHECK(row_of(result.y, place, n) == row_of(expected.y, tokens[i], n));
          CHECK(first_difference(row_of(result.updated, place, k),
                                 row_of(expected.updated, tokens[i], k)) == -1);
        }
      }
    }
  }
}

TEST_CASE("rows picked out are those of their tokens", "[gpu_decode_gemm]") {
  Rng rng(6, "gpu_decode_gemm");
  for (const bool has_update : {false, true}) {
    Problem problem = random_problem(rng, 21, 264, 9, GemmEpilogue::StoreFloat);
    set_prologue(rng, problem, has_update ? 4 : 2);
    const Result all = run(problem);
    problem.rows = {8, 0, 3, 3};
    problem.m = 4;
    problem.y.resize(static_cast<std::size_t>(4 * problem.n));
    const Result some = run(problem);
    for (std::int64_t i = 0; i < 4; ++i) {
      const std::int64_t row = source_row(problem, i);
      CHECK(row_of(some.y, i, problem.n) == row_of(all.y, row, problem.n));
      CHECK(first_difference(row_of(some.updated, i, problem.k),
                             row_of(all.updated, row, problem.k)) == -1);
    }
  }
}

TEST_CASE("what does not fit is said, and refused", "[gpu_decode_gemm]") {
  Problem problem;
  problem.n = 8;
  const auto takes = [&](std::int32_t m, std::int32_t k) {
    problem.m = m;
    problem.k = k;
    return decode_gemm_takes(shape_args(problem, 1));
  };
  // Every device has 99 KB for a block: one token of any model, and eight of small ones.
  for (const std::int32_t k : {8, 1152, 3072, 8192, 16384}) CHECK(takes(1, k));
  CHECK(takes(8, 1152));
  CHECK_FALSE(takes(17, 64));
  CHECK_FALSE(takes(1, 12));
  CHECK_FALSE(takes(16, 16384));
  CHECK_FALSE(takes(1, 1 << 24));
  CHECK_THROWS_AS(launch_decode_gemm(shape_args(problem, 1), nullptr), CudaError);
  CHECK(takes(0, 64));
  launch_decode_gemm(shape_args(problem, 1), nullptr);
  check_cuda(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

}  // namespace TEST_FILE
