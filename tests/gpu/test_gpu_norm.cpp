// SPDX-License-Identifier: Apache-2.0
// RMSNorm on the GPU against its definition in double precision.
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr float kEps = 1e-5f;

struct Problem {
  std::int64_t hidden_dim = 0;
  std::int64_t num_rows = 0;
  bool has_update = false;
  bool has_post_weight = false;
  bool has_weight = true;
  bool unit_offset = false;
  Bf16s residual;
  Bf16s update;
  Bf16s post_weight;
  Bf16s weight;
  std::vector<std::int32_t> rows;  // empty: none are given
};

struct Result {
  Bf16s residual;
  Bf16s out;
};

// Weights as models have them: around 1, or around 0 with unit_offset.
Bf16s random_weight(Rng& rng, std::int64_t hidden_dim, bool unit_offset) {
  Bf16s weight = random_bf16(rng, hidden_dim, 0.9);
  if (!unit_offset) {
    for (bf16& w : weight) w = to_bf16(1 + to_double(w));
  }
  return weight;
}

Problem random_problem(Rng& rng, std::int64_t hidden_dim, std::int64_t num_rows) {
  Problem problem;
  problem.hidden_dim = hidden_dim;
  problem.num_rows = num_rows;
  problem.residual = random_bf16(rng, num_rows * hidden_dim, 4.0);
  problem.update = random_bf16(rng, num_rows * hidden_dim, 2.0);
  return problem;
}

void draw_weights(Rng& rng, Problem& problem) {
  problem.post_weight = random_weight(rng, problem.hidden_dim, problem.unit_offset);
  problem.weight = random_weight(rng, problem.hidden_dim, problem.unit_offset);
}

// `out` has a row more than is written; it and what is not written at all is NaN.
Result run(const Problem& problem) {
  const std::int64_t num_out =
      problem.rows.empty() ? problem.num_rows : static_cast<std::int64_t>(problem.rows.size());
  const DeviceArray<bf16> residual = on_device(problem.residual);
  const DeviceArray<bf16> update = on_device(problem.update);
  const DeviceArray<bf16> post_weight = on_device(problem.post_weight);
  const DeviceArray<bf16> weight = on_device(problem.weight);
  const DeviceArray<std::int32_t> rows = on_device(problem.rows);
  const DeviceArray<bf16> out =
      on_device(Bf16s(static_cast<std::size_t>((num_out + 1) * problem.hidden_dim), bf16_nan()));
  NormArgs args;
  args.update = problem.has_update ? update.data() : nullptr;
  args.post_weight = problem.has_post_weight ? post_weight.data() : nullptr;
  args.residual = residual.data();
  args.weight = problem.has_weight ? weight.data() : nullptr;
  args.rows = problem.rows.empty() ? nullptr : rows.data();
  args.out = out.data();
  args.num_rows = static_cast<std::int32_t>(num_out);
  args.hidden_dim = static_cast<std::int32_t>(problem.hidden_dim);
  args.eps = kEps;
  args.unit_offset = problem.unit_offset;
  launch_norm(args, nullptr);
  return {residual.download(), out.download()};
}

std::vector<Range> expected_residual(const Problem& problem, std::int64_t row) {
  const Bf16s before = row_of(problem.residual, row, problem.hidden_dim);
  std::vector<Range> sums;
  std::vector<Range> terms;
  const Bf16s update = row_of(problem.update, row, problem.hidden_dim);
  if (problem.has_post_weight) {
    terms = reference_norm(update, problem.post_weight, kEps, problem.unit_offset);
  } else {
    for (const bf16 x : update) terms.push_back(exactly(to_double(x)));
  }
  // A sum in double is exact, so its way to bf16 is that of a sum in float.
  for (std::size_t i = 0; i < before.size(); ++i) {
    sums.push_back(rounded_to_bf16(exactly(to_double(before[i])) + terms[i]));
  }
  return sums;
}

// The residual first; then the norm, of the residual that the kernel itself has written.
void check_result(const Problem& problem, const Result& result) {
  RangeCheck residual_check;
  if (problem.has_update) {
    for (std::int64_t row = 0; row < problem.num_rows; ++row) {
      const std::vector<Range> expected = expected_residual(problem, row);
      const Bf16s actual = row_of(result.residual, row, problem.hidden_dim);
      for (std::size_t i = 0; i < actual.size(); ++i) residual_check.add(actual[i], expected[i]);
    }
    CHECK(residual_check.first_outside() == -1);
    CHECK(residual_check.exact_share() > 0.98);
  } else {
    CHECK(first_difference(result.residual, problem.residual) == -1);
  }

  const auto num_out = static_cast<std::int64_t>(result.out.size()) / problem.hidden_dim - 1;
  const Bf16s untouched(static_cast<std::size_t>(problem.hidden_dim), bf16_nan());
  RangeCheck check;
  for (std::int64_t i = 0; i <= num_out; ++i) {
    const Bf16s actual = row_of(result.out, i, problem.hidden_dim);
    if (i == num_out || !problem.has_weight) {
      CHECK(first_difference(actual, untouched) == -1);
      continue;
    }
    const std::int64_t row = problem.rows.empty() ? i : problem.rows[static_cast<std::size_t>(i)];
    const std::vector<Range> expected =
        reference_norm(row_of(result.residual, row, problem.hidden_dim), problem.weight, kEps,
                       problem.unit_offset);
    for (std::size_t j = 0; j < actual.size(); ++j) check.add(actual[j], expected[j]);
  }
  if (problem.has_weight) {
    CHECK(check.first_outside() == -1);
    CHECK(check.exact_share() > 0.98);
  }
}

// One row with all its elements the same.
bf16 norm_of_constant(double x, double update, double weight, float eps, bool unit_offset) {
  const DeviceArray<bf16> residual = on_device(Bf16s(64, to_bf16(x)));
  const DeviceArray<bf16> updates = on_device(Bf16s(64, to_bf16(update)));
  const DeviceArray<bf16> weights = on_device(Bf16s(64, to_bf16(weight)));
  const DeviceArray<bf16> out(64);
  NormArgs args;
  args.update = update != 0 ? updates.data() : nullptr;
  args.residual = residual.data();
  args.weight = weights.data();
  args.out = out.data();
  args.num_rows = 1;
  args.hidden_dim = 64;
  args.eps = eps;
  args.unit_offset = unit_offset;
  launch_norm(args, nullptr);
  const Bf16s values = out.download();
  CHECK(first_difference(values, Bf16s(64, values[0])) == -1);
  return values[0];
}

}  // namespace

TEST_CASE("the norm of known rows", "[gpu_norm]") {
  // Powers of two: nothing rounds.
  CHECK(to_double(norm_of_constant(4, 0, 0.75, 0.0f, false)) == 0.75);
  CHECK(to_double(norm_of_constant(-4, 0, 0.75, 0.0f, false)) == -0.75);
  CHECK(to_double(norm_of_constant(4, 0, 0.75, 0.0f, true)) == 1.75);
  CHECK(to_double(norm_of_constant(1, 0, 2, 3.0f, false)) == 1.0);
  CHECK(to_double(norm_of_constant(3, -2, 2, 3.0f, false)) == 1.0);
  CHECK(to_double(norm_of_constant(0, 0, 2, 1.0f, false)) == 0.0);
  // y = 1 / sqrt(3) lies between 147/256 and 148/256, nearer to the second. 148 * 1.078125 / 256
  // rounds up to 160/256, y * 1.078125 down to 159/256: only one of the two kinds rounds y.
  CHECK(to_double(norm_of_constant(1, 0, 1.078125, 2.0f, false)) == 160.0 / 256);
  CHECK(to_double(norm_of_constant(1, 0, 0.078125, 2.0f, true)) == 159.0 / 256);
}

TEST_CASE("norms of every shape and kind are as defined", "[gpu_norm]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "gpu_norm");
  for (const std::int64_t hidden_dim :
       {8, 64, 72, 256, 264, 1152, 3072, 4096, 5120, 8192, 8200, 16384}) {
    for (int kind = 0; kind < 12; ++kind) {
      Problem problem = random_problem(rng, hidden_dim, hidden_dim > 2000 ? 2 : 4);
      problem.unit_offset = kind >= 6;
      problem.has_update = kind % 6 >= 1 && kind % 6 <= 4;
      problem.has_post_weight = kind % 6 == 2 || kind % 6 == 3;
      problem.has_weight = kind % 6 != 3 && kind % 6 != 4;
      if (kind % 6 == 5) problem.rows = {1, 1, 0};
      draw_weights(rng, problem);
      INFO("seed " << seed << " hidden_dim " << hidden_dim << " kind " << kind);
      check_result(problem, run(problem));
    }
  }
}

TEST_CASE("a row's norm has the same bits alone and among forty", "[gpu_norm]") {
  Rng rng(3, "gpu_norm");
  for (const std::int64_t hidden_dim : {72, 1152, 5120}) {
    for (const bool has_post_weight : {false, true}) {
      Problem alone = random_problem(rng, hidden_dim, 1);
      alone.has_update = true;
      alone.has_post_weight = has_post_weight;
      draw_weights(rng, alone);
      const Result expected = run(alone);
      const std::int64_t place = draw(rng, 0, 39);
      Problem crowd = random_problem(rng, hidden_dim, 40);
      crowd.has_update = true;
      crowd.has_post_weight = has_post_weight;
      crowd.weight = alone.weight;
      crowd.post_weight = alone.post_weight;
      // A neighbour's NaNs stay with it.
      for (bf16& x : crowd.residual) x = chance(rng, 0.3) ? bf16_nan() : x;
      set_row(crowd.residual, place, alone.residual);
      set_row(crowd.update, place, alone.update);
      const Result result = run(crowd);
      INFO("hidden_dim " << hidden_dim << " post " << has_post_weight << " place " << place);
      CHECK(first_difference(row_of(result.residual, place, hidden_dim), expected.residual) == -1);
      CHECK(first_difference(row_of(result.out, place, hidden_dim),
                             row_of(expected.out, 0, hidden_dim)) == -1);
    }
  }
}

TEST_CASE("rows picked out have the bits they have in their places", "[gpu_norm]") {
  Rng rng(4, "gpu_norm");
  const std::int64_t hidden_dim = 1152;
  Problem problem = random_problem(rng, hidden_dim, 9);
  draw_weights(rng, problem);
  const Result all = run(problem);
  problem.rows = {8, 0, 3, 3};
  const Result some = run(problem);
  for (std::size_t i = 0; i < problem.rows.size(); ++i) {
    CHECK(first_difference(row_of(some.out, static_cast<std::int64_t>(i), hidden_dim),
                           row_of(all.out, problem.rows[i], hidden_dim)) == -1);
  }
}

TEST_CASE("no rows are no work", "[gpu_norm]") {
  Rng rng(5, "gpu_norm");
  Problem problem = random_problem(rng, 64, 0);
  draw_weights(rng, problem);
  const Result result = run(problem);
  CHECK(first_difference(result.out, Bf16s(64, bf16_nan())) == -1);
}

TEST_CASE("a NaN or an infinity in a row is not lost", "[gpu_norm]") {
  Rng rng(6, "gpu_norm");
  Problem problem = random_problem(rng, 1152, 1);
  draw_weights(rng, problem);
  problem.residual[1100] = bf16_nan();
  for (const bf16 x : row_of(run(problem).out, 0, 1152)) REQUIRE(std::isnan(to_double(x)));
}

}  // namespace TEST_FILE
