// SPDX-License-Identifier: Apache-2.0
// Sampling on the GPU against Sampler: the same tokens.
#include <array>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "core/engine/sampling.h"
#include "core/engine/sampling_math.h"
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

using Logits = std::vector<float>;

constexpr std::int32_t kUntouched = -77;

struct Problem {
  std::int32_t vocab_size = 0;
  std::vector<Logits> logits = {};  // of each row
  std::vector<SampleRow> rows = {};

  void add(Logits row_of_logits, SampleRow row) {
    row.out = static_cast<std::int32_t>(rows.size());
    logits.push_back(std::move(row_of_logits));
    rows.push_back(row);
  }
};

// The tokens of outputs [0, num_outputs). The scratch is dirty before, and as long as one for
// `scratch_rows` rows, followed by what must not change.
std::vector<std::int32_t> sample(const Problem& problem, std::size_t num_outputs,
                                 std::int32_t scratch_rows = 0) {
  const auto num_rows = static_cast<std::int32_t>(problem.rows.size());
  Logits all;
  for (const Logits& logits : problem.logits) all.insert(all.end(), logits.begin(), logits.end());
  const DeviceArray<float> logits = on_device(all);
  const DeviceArray<SampleRow> rows = on_device(problem.rows);
  constexpr std::size_t kMargin = 256;
  const auto num_bytes = static_cast<std::size_t>(
      sample_scratch_bytes(std::max(num_rows, scratch_rows), problem.vocab_size));
  const DeviceArray<std::uint8_t> scratch =
      on_device(std::vector<std::uint8_t>(num_bytes + kMargin, 0xa5));
  const DeviceArray<std::int32_t> tokens =
      on_device(std::vector<std::int32_t>(num_outputs, kUntouched));
  SampleArgs args;
  args.logits = logits.data();
  args.rows = rows.data();
  args.num_rows = num_rows;
  args.vocab_size = problem.vocab_size;
  args.scratch = scratch.data();
  args.tokens = tokens.data();
  const Stream stream = make_stream();
  launch_sample(args, stream.get());
  check_cuda(cudaStreamSynchronize(stream.get()), "cudaStreamSynchronize");
  const std::vector<std::uint8_t> bytes = scratch.download();
  REQUIRE(std::count(bytes.end() - kMargin, bytes.end(), 0xa5) == kMargin);
  return tokens.download();
}

std::vector<std::int32_t> sample(const Problem& problem) {
  return sample(problem, problem.rows.size());
}

std::int32_t host_token(const Logits& logits, const SampleRow& row) {
  SamplingParams params;
  params.temperature = row.temperature;
  params.top_k = row.top_k;
  params.top_p = row.top_p;
  params.min_p = row.min_p;
  params.seed = row.seed;
  try {
    return value(Sampler().sample(logits, params, row.position).token);
  } catch (const std::runtime_error&) {
    return kSampleFailed;
  }
}

// Whether a border lies so near that rounding decides, by the bounds in sampling.cu: the share that
// top_p asks for next to a prefix of the tokens, or the draw next to either end of `token`.
bool is_near_tie(const Logits& logits, const SampleRow& row, std::int32_t token) {
  const float largest = *std::max_element(logits.begin(), logits.end());
  std::vector<std::uint64_t> keys;
  for (std::size_t i = 0; i < logits.size(); ++i) keys.push_back(key_of(logits[i], i));
  std::sort(keys.begin(), keys.end(), std::greater<>());
  if (row.top_k > 0 && static_cast<std::size_t>(row.top_k) < keys.size()) {
    keys.resize(static_cast<std::size_t>(row.top_k));
  }
  std::vector<long double> weights(logits.size(), 0.0L);
  long double total = 0;
  for (const std::uint64_t key : keys) {
    const double weight =
        exp_of_negative((static_cast<double>(logits[index_of(key)]) - largest) / row.temperature);
    weights[index_of(key)] = weight >= row.min_p ? weight : 0;
    total += weights[index_of(key)];
  }
  const long double bound = static_cast<long double>(logits.size()) * (0x1p-44L + total * 0x1p-51L);
  if (row.top_p < 1) {
    long double reached = 0;
    const long double needed = row.top_p * total;
    for (const std::uint64_t key : keys) {
      if (reached >= needed) weights[index_of(key)] = 0;
      reached += weights[index_of(key)];
      if (std::abs(reached - needed) <= bound) return true;
    }
  }
  total = std::accumulate(weights.begin(), weights.end(), 0.0L);
  const long double target = sampling_uniform(row.seed, row.position) * total;
  const auto end = std::accumulate(weights.begin(), weights.begin() + token + 1, 0.0L);
  const auto begin = end - weights[static_cast<std::size_t>(token)];
  return std::abs(begin - target) <= bound || std::abs(end - target) <= bound;
}

// Requires Sampler's token in every row. Returns how many rows differ, as near ties may.
std::int32_t require_sampled(const Problem& problem) {
  const std::vector<std::int32_t> tokens = sample(problem);
  std::int32_t num_ties = 0;
  for (std::size_t i = 0; i < problem.rows.size(); ++i) {
    const SampleRow& row = problem.rows[i];
    const std::int32_t expected = host_token(problem.logits[i], row);
    if (tokens[i] == expected) continue;
    CAPTURE(i, problem.vocab_size, row.temperature, row.top_k, row.top_p, row.min_p, row.seed,
            row.position, expected, tokens[i]);
    REQUIRE((tokens[i] >= 0 && tokens[i] < problem.vocab_size && expected >= 0));
    REQUIRE(is_near_tie(problem.logits[i], row, tokens[i]));
    ++num_ties;
  }
  return num_ties;
}

// Sums of uniform numbers; rounded to 1 / num_levels of the spread, so that many are equal.
Logits random_logits(Rng& rng, std::int32_t vocab_size, double spread,
                     std::int32_t num_levels = 0) {
  Logits logits(static_cast<std::size_t>(vocab_size));
  for (float& logit : logits) {
    double x = rng.uniform() + rng.uniform() + rng.uniform() - 1.5;
    if (num_levels > 0) x = std::round(x * num_levels) / num_levels;
    logit = static_cast<float>(x * spread);
  }
  return logits;
}

SampleRow drawn(double temperature, std::uint64_t seed, std::int64_t position) {
  SampleRow row;
  row.temperature = temperature;
  row.seed = seed;
  row.position = position;
  return row;
}

SampleRow random_row(Rng& rng, std::int32_t vocab_size) {
  constexpr std::array<double, 7> kTemperatures = {1e-30, 0.125, 0.5, 0.75, 1, 1.5, 20};
  const std::int32_t position = draw(rng, 0, 1 << 30);
  const std::uint64_t seed = rng();
  SampleRow row = drawn(kTemperatures[rng() % kTemperatures.size()], seed, position);
  if (chance(rng, 0.1)) row.temperature = 0;
  if (chance(rng, 0.5)) row.top_k = draw(rng, 1, vocab_size + 1);
  if (chance(rng, 0.3)) row.top_k = draw(rng, 1, std::min(vocab_size, 64));
  if (chance(rng, 0.6))
    row.top_p = chance(rng, 0.3) ? 1 - rng.uniform() * 0x1p-8 : 1 - rng.uniform();
  if (chance(rng, 0.4)) row.min_p = rng.uniform() * rng.uniform() * rng.uniform();
  return row;
}

}  // namespace

TEST_CASE("greedy rows take the largest logit, of equals the lowest id", "[gpu][sampling]") {
  Problem problem{4};
  problem.add({0.5f, 2, -1, 1}, {});
  problem.add({1, 3, 3, 3}, {});
  problem.add({-2, -0.0f, 0.0f, -1}, {});
  problem.add({-2, 0.0f, -0.0f, -1}, {});
  problem.add({-3e38f, -3.1e38f, -3e38f, -3.2e38f}, {});
  problem.add({-1, -1, -1, std::numeric_limits<float>::max()}, {});
  problem.add({0, 1e-45f, 3e-45f, -1e-45f}, {});
  CHECK(sample(problem) == std::vector<std::int32_t>{1, 1, 1, 1, 0, 3, 2});
}

TEST_CASE("greedy rows of any vocabulary", "[gpu][sampling]") {
  for (const std::int32_t vocab_size :
       {1, 2, 3, 31, 32, 1'000, 1'023, 2'047, 2'048, 2'052, 4'100, 50'257, 151'936}) {
    Rng rng(static_cast<std::uint64_t>(vocab_size), "greedy");
    Problem problem{vocab_size};
    problem.add(random_logits(rng, vocab_size, 10), {});
    problem.add(random_logits(rng, vocab_size, 10, 3), {});
    problem.add(Logits(static_cast<std::size_t>(vocab_size), -5.5f), {});
    for (const std::int32_t at : {0, vocab_size / 2, vocab_size - 1}) {
      problem.add(Logits(static_cast<std::size_t>(vocab_size), -1.0f), {});
      problem.logits.back()[static_cast<std::size_t>(at)] = -0.5f;
    }
    // One row alone is cut into the most parts.
    const Problem alone{vocab_size, {problem.logits.front()}, {problem.rows.front()}};
    CAPTURE(vocab_size);
    CHECK(require_sampled(problem) == 0);
    CHECK(require_sampled(alone) == 0);
  }
}

TEST_CASE("drawn rows of any vocabulary", "[gpu][sampling]") {
  for (const std::int32_t vocab_size : {1, 2, 31, 1'000, 1'023, 5'000, 50'257, 151'936}) {
    Rng rng(static_cast<std::uint64_t>(vocab_size), "drawn");
    Problem problem{vocab_size};
    for (const double temperature : {0.7, 1.0}) {
      SampleRow row = drawn(temperature, rng(), vocab_size);
      problem.add(random_logits(rng, vocab_size, 8), row);
      row.top_k = 20;
      problem.add(random_logits(rng, vocab_size, 8), row);
      row.top_p = 0.9;
      problem.add(random_logits(rng, vocab_size, 8), row);
      row.top_k = 0;
      problem.add(random_logits(rng, vocab_size, 8), row);
      row.min_p = 0.01;
      problem.add(random_logits(rng, vocab_size, 8), row);
    }
    CHECK(require_sampled(problem) == 0);
  }
}

TEST_CASE("top_k and top_p of every size", "[gpu][sampling]") {
  constexpr std::int32_t kVocab = 90;
  Rng rng(1, "every size");
  // Without equals; with many; all the same, which no bin tells apart.
  for (const std::int32_t num_levels : {0, 4, -1}) {
    Problem problem{kVocab};
    for (std::int32_t i = 1; i <= kVocab + 1; i += num_levels == 0 ? 1 : 7) {
      const Logits logits =
          num_levels < 0 ? Logits(kVocab, 2.5f) : random_logits(rng, kVocab, 4, num_levels);
      SampleRow row = drawn(1, rng(), i);
      row.top_k = i;
      problem.add(logits, row);
      row.top_k = 0;
      row.top_p = std::min(1.0, i / 90.0);
      problem.add(logits, row);
      row.top_k = kVocab / 2;
      problem.add(logits, row);
    }
    CAPTURE(num_levels);
    CHECK(require_sampled(problem) == 0);
  }
}

TEST_CASE("top_p keeps the shortest prefix, and at least one token", "[gpu][sampling]") {
  // Of 50 equals 0.9 is 45, not more. Every other row has the smallest top_p there is.
  Problem problem{50};
  for (std::int64_t position = 0; position < 120; ++position) {
    SampleRow row = drawn(1, 3, position);
    row.top_p = position % 2 == 0 ? 0.9 : std::numeric_limits<double>::denorm_min();
    problem.add(Logits(50, -1.0f), row);
  }
  const std::vector<std::int32_t> tokens = sample(problem);
  std::int32_t largest = 0;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (i % 2 == 0) largest = std::max(largest, tokens[i]);
    if (i % 2 == 1) CHECK(tokens[i] == 0);
  }
  CHECK(largest == 44);
}

TEST_CASE("cuts through more tokens than a block can list", "[gpu][sampling]") {
  constexpr std::int32_t kVocab = 12'000;
  Rng rng(2, "flat");
  Problem problem{kVocab};
  for (const double spread : {0.0, 1e-4, 0.5, 3.0}) {
    const Logits logits = random_logits(rng, kVocab, spread, spread == 0.5 ? 6 : 0);
    for (const std::int32_t top_k : {0, 1, 2'048, 2'049, 7'000, kVocab - 1}) {
      for (const double top_p : {0.03, 0.6, 0.99}) {
        SampleRow row = drawn(1, rng(), top_k);
        row.top_k = top_k;
        row.top_p = top_p;
        problem.add(logits, row);
      }
    }
  }
  CHECK(require_sampled(problem) == 0);
}

TEST_CASE("cuts through about as many tokens as a block can list", "[gpu][sampling]") {
  Problem problem{2'304};
  for (const std::int32_t num_likely : {2'047, 2'048, 2'049, 2'050, 2'053}) {
    Logits logits(2'304, -3.0f);
    std::fill_n(logits.end() - num_likely, num_likely, 0.5f);
    for (const std::int32_t top_k : {0, 1'000}) {
      SampleRow row = drawn(1, 6, num_likely);
      row.top_k = top_k;
      row.top_p = 0.75;
      problem.add(logits, row);
    }
  }
  CHECK(require_sampled(problem) == 0);
}

TEST_CASE("temperatures from the smallest to the largest", "[gpu][sampling]") {
  constexpr std::array<double, 9> kTemperatures = {
      std::numeric_limits<double>::denorm_min(), 1e-300, 1e-40, 1e-4, 1e4, 1e36, 1e40, 1e300,
      std::numeric_limits<double>::max()};
  Rng rng(3, "temperatures");
  Problem problem{64};
  for (const double temperature : kTemperatures) {
    for (const double spread : {0.0, 1e-44, 1e-30, 1.0, 1e30, 2e38}) {
      SampleRow row = drawn(temperature, rng(), 0);
      const Logits logits = random_logits(rng, 64, spread, spread == 1.0 ? 5 : 0);
      problem.add(logits, row);
      row.top_k = draw(rng, 1, 64);
      problem.add(logits, row);
      row.top_p = rng.uniform();
      problem.add(logits, row);
    }
  }
  CHECK(require_sampled(problem) == 0);
}

TEST_CASE("peaked rows, whose tail weighs next to nothing", "[gpu][sampling]") {
  constexpr std::int32_t kVocab = 3'000;
  Rng rng(4, "peaked");
  Problem problem{kVocab};
  for (const float peak : {10.0f, 25.0f, 31.0f, 32.0f, 33.0f, 800.0f}) {
    for (const double top_p : {0.5, 0.999999, std::nextafter(1.0, 0.0), 1.0}) {
      for (const std::int32_t top_k : {0, 2, 2'000}) {
        Logits logits = random_logits(rng, kVocab, 1);
        logits[static_cast<std::size_t>(draw(rng, 0, kVocab - 1))] = peak;
        SampleRow row = drawn(1, rng(), 0);
        row.top_k = top_k;
        row.top_p = top_p;
        problem.add(logits, row);
      }
    }
  }
  CHECK(require_sampled(problem) == 0);
}

TEST_CASE("draws from a tail of unlikely tokens", "[gpu][sampling]") {
  // Each weighs e^-20 = 2e-9 of the likeliest, which comes first: draws this high take one of them.
  Logits logits(3'000, -20.0f);
  logits.front() = 0;
  Problem problem{3'000};
  SampleRow row = drawn(1, 5, 0);
  for (; problem.rows.size() < 20; ++row.position) {
    if (uniform_of(row.seed, row.position) < 1 - 3e-6) continue;
    row.top_k = problem.rows.size() % 2 == 0 ? 0 : 1'501;
    problem.add(logits, row);
  }
  const std::vector<std::int32_t> tokens = sample(problem);
  for (std::size_t i = 0; i < tokens.size(); ++i) CHECK((tokens[i] > 1'500) == (i % 2 == 0));
  CHECK(require_sampled(problem) == 0);
}

TEST_CASE("min_p keeps a token as likely as it asks for, and none less", "[gpu][sampling]") {
  // A weight and the number next to it: the comparison is of the doubles of Sampler.
  Rng rng(5, "min_p");
  Problem problem{2};
  for (std::int32_t i = 0; i < 100; ++i) {
    const auto logit = static_cast<float>(-rng.uniform() * 3);
    const double weight = exp_of_negative(static_cast<double>(logit) / 0.7);
    SampleRow row = drawn(0.7, 1, 0);
    // The draw takes the second token if there is one.
    while (sampling_uniform(row.seed, 0) * (1 + weight) <= 1.0) ++row.seed;
    row.min_p = weight;
    problem.add({0, logit}, row);
    row.min_p = std::nextafter(weight, 1.0);
    problem.add({0, logit}, row);
  }
  const std::vector<std::int32_t> tokens = sample(problem);
  for (std::size_t i = 0; i < tokens.size(); ++i) CHECK(tokens[i] == (i % 2 == 0 ? 1 : 0));
}

TEST_CASE("a logit that is not finite fails its row and no other", "[gpu][sampling]") {
  constexpr std::int32_t kVocab = 4'200;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  Rng rng(6, "not finite");
  Problem problem{kVocab};
  std::vector<std::int32_t> expected;
  const auto add = [&](const Logits& logits, const SampleRow& row) {
    problem.add(logits, row);
    expected.push_back(host_token(logits, row));
  };
  SampleRow cut = drawn(1, 8, 9);
  cut.top_k = 30;
  cut.top_p = 0.8;
  for (const float bad : {std::nanf(""), -std::nanf(""), kInfinity, -kInfinity}) {
    for (const std::int32_t at : {0, 2'100, kVocab - 1}) {
      for (const SampleRow& row : {SampleRow{}, drawn(1, 7, 3), cut}) {
        Logits logits = random_logits(rng, kVocab, 5);
        add(logits, row);
        logits[static_cast<std::size_t>(at)] = bad;
        add(logits, row);
        REQUIRE(expected.back() == kSampleFailed);
      }
    }
  }
  CHECK(sample(problem) == expected);
  CHECK(std::count(expected.begin(), expected.end(), kSampleFailed) == 36);
}

TEST_CASE("rows with parameters of their own, in any order of outputs", "[gpu][sampling]") {
  constexpr std::int32_t kVocab = 777;
  constexpr std::size_t kRows = 40;
  Rng rng(7, "outputs");
  Problem problem{kVocab};
  for (std::size_t i = 0; i < kRows; ++i) {
    problem.add(random_logits(rng, kVocab, 6), random_row(rng, kVocab));
    problem.rows[i].out = static_cast<std::int32_t>((i * 23 + 5) % 50);  // 23 and 50: coprime
  }
  std::vector<std::int32_t> expected(50, kUntouched);
  for (std::size_t i = 0; i < kRows; ++i) {
    expected[static_cast<std::size_t>(problem.rows[i].out)] =
        host_token(problem.logits[i], problem.rows[i]);
  }
  CHECK(sample(problem, 50) == expected);
}

TEST_CASE("a row's token depends on no other row", "[gpu][sampling]") {
  // Batches of different sizes cut rows into different numbers of parts.
  constexpr std::int32_t kVocab = 9'000;
  Rng rng(8, "batches");
  Problem problem{kVocab};
  for (std::size_t i = 0; i < 6; ++i) {
    problem.add(random_logits(rng, kVocab, 6), random_row(rng, kVocab));
  }
  const std::vector<std::int32_t> tokens = sample(problem);
  for (std::size_t i = 0; i < problem.rows.size(); ++i) {
    Problem alone{kVocab};
    alone.add(problem.logits[i], problem.rows[i]);
    CHECK(sample(alone).front() == tokens[i]);
  }
  Problem many{kVocab};
  for (std::size_t i = 0; i < 150; ++i) many.add(problem.logits[i % 6], problem.rows[i % 6]);
  const std::vector<std::int32_t> of_many = sample(many);
  for (std::size_t i = 0; i < of_many.size(); ++i) CHECK(of_many[i] == tokens[i % 6]);
}

TEST_CASE("the same rows give the same tokens every time", "[gpu][sampling]") {
  // 20 rows: blocks that share a row, in whatever order the device has them run.
  constexpr std::int32_t kVocab = 10'000;
  Rng rng(10, "every time");
  Problem problem{kVocab};
  for (std::int32_t i = 0; i < 20; ++i) {
    problem.add(random_logits(rng, kVocab, 3), random_row(rng, kVocab));
  }
  const std::vector<std::int32_t> tokens = sample(problem);
  for (int i = 0; i < 4; ++i) CHECK(sample(problem) == tokens);
}

TEST_CASE("scratch for many rows does for fewer", "[gpu][sampling]") {
  for (const std::int32_t vocab_size : {1, 1'000, 50'000, 262'144}) {
    for (std::int32_t num_rows = 1; num_rows <= 700; ++num_rows) {
      REQUIRE(sample_scratch_bytes(num_rows, vocab_size) >
              sample_scratch_bytes(num_rows - 1, vocab_size));
    }
  }
  CHECK(sample_scratch_bytes(256, 262'144) < 8 << 20);
  Rng rng(9, "scratch");
  Problem problem{30'000};
  for (int i = 0; i < 2; ++i) {
    problem.add(random_logits(rng, 30'000, 6), random_row(rng, 30'000));
  }
  CHECK(sample(problem, 2, 300) == sample(problem));
  CHECK(sample(Problem{30'000}, 3) == std::vector<std::int32_t>(3, kUntouched));
}

TEST_CASE("random rows draw as Sampler does", "[gpu][sampling]") {
  constexpr std::array<double, 6> kSpreads = {0, 0.02, 0.5, 4, 30, 1'000};
  std::int32_t num_ties = 0;
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed, "gpu_sampling");
    const std::int32_t vocab_size = draw(rng, 1, seed % 10 == 0 ? 20'000 : 600);
    Problem problem{vocab_size};
    const std::int32_t num_rows = draw(rng, 1, 16);
    for (std::int32_t i = 0; i < num_rows; ++i) {
      const double spread = kSpreads[rng() % kSpreads.size()];
      problem.add(random_logits(rng, vocab_size, spread, chance(rng, 0.5) ? 5 : 0),
                  random_row(rng, vocab_size));
    }
    CAPTURE(seed);
    num_ties += require_sampled(problem);
  }
  CHECK(num_ties == 0);
}

}  // namespace TEST_FILE
