// SPDX-License-Identifier: Apache-2.0
// From logits to a token: known answers, distributions, and a straightforward reference.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "core/base/error.h"
#include "core/base/rng.h"
#include "core/engine/sampling.h"
#include "tests/catch.h"
#include "tests/error_of.h"

namespace metronome::TEST_FILE {
namespace {

using Logits = std::vector<float>;

constexpr std::size_t kLargeVocab = 262'144;

// The probabilities of the logits that are kept, by sorting everything, in long double and in
// vLLM's order of operations. Indexed by id; 0 where dropped.
std::vector<long double> reference_probabilities(const Logits& logits, const SamplingParams& p) {
  std::vector<std::size_t> order(logits.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return logits[a] > logits[b]; });
  const long double largest = logits[order.front()];
  const auto weight = [&](std::size_t id) {
    return std::exp((logits[id] - largest) / p.temperature);
  };
  while (weight(order.back()) < p.min_p) order.pop_back();
  if (p.top_k > 0 && order.size() > static_cast<std::size_t>(p.top_k)) {
    order.resize(static_cast<std::size_t>(p.top_k));
  }
  long double total = 0;
  for (const std::size_t id : order) total += weight(id);
  std::vector<long double> probabilities(logits.size(), 0.0L);
  const double needed = p.top_p * static_cast<double>(total);  // of 50 equals 0.9 is 45, not more
  long double reached = 0;
  for (const std::size_t id : order) {
    if (p.top_p < 1 && reached >= needed) break;
    probabilities[id] = weight(id);
    reached += weight(id);
  }
  for (long double& probability : probabilities) probability /= reached;
  return probabilities;
}

std::int32_t reference_draw(const std::vector<long double>& probabilities, double uniform) {
  long double reached = 0;
  std::int32_t last = 0;
  for (std::size_t id = 0; id < probabilities.size(); ++id) {
    if (probabilities[id] == 0) continue;
    last = static_cast<std::int32_t>(id);
    reached += probabilities[id];
    if (reached > uniform) break;
  }
  return last;
}

std::vector<int> count_draws(const Logits& logits, const SamplingParams& params,
                             std::int64_t num_draws) {
  Sampler sampler;
  std::vector<int> counts(logits.size(), 0);
  for (std::int64_t position = 0; position < num_draws; ++position) {
    ++counts[static_cast<std::size_t>(value(sampler.sample(logits, params, position).token))];
  }
  return counts;
}

// The ids that 2,000 draws give.
std::vector<std::size_t> support(const Logits& logits, const SamplingParams& params) {
  const std::vector<int> counts = count_draws(logits, params, 2'000);
  std::vector<std::size_t> ids;
  for (std::size_t id = 0; id < counts.size(); ++id) {
    if (counts[id] > 0) ids.push_back(id);
  }
  return ids;
}

double chi_square(const std::vector<int>& counts, const std::vector<long double>& probabilities,
                  double num_draws) {
  double sum = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    const double expected = static_cast<double>(probabilities[i]) * num_draws;
    if (expected == 0) {
      REQUIRE(counts[i] == 0);
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  }
  return sum;
}

// Sums of uniform numbers, by exact operations only: the same on every machine.
Logits random_logits(Rng& rng, std::size_t size, double spread, int num_levels) {
  Logits logits(size);
  for (float& logit : logits) {
    double x = 0;
    for (int i = 0; i < 4; ++i) x += static_cast<double>(rng() >> 40) * 0x1p-24 - 0.5;
    if (num_levels > 0) x = static_cast<double>(static_cast<int>(x * num_levels)) / num_levels;
    logit = static_cast<float>(x * spread);
  }
  return logits;
}

SamplingParams random_params(Rng& rng, std::size_t vocab) {
  constexpr std::array<double, 6> kTemperatures = {0.125, 0.5, 0.75, 1, 1.5, 4};
  const auto fraction = [&] { return static_cast<double>(rng() >> 11) * 0x1p-53; };
  SamplingParams params;
  params.temperature = kTemperatures[rng() % kTemperatures.size()];
  if (rng() % 2 == 0) params.top_k = static_cast<std::int32_t>(1 + rng() % vocab);
  if (rng() % 2 == 0) params.top_p = rng() % 4 == 0 ? 1 - fraction() * 0x1p-8 : 1 - fraction();
  if (rng() % 2 == 0) params.min_p = fraction() * fraction() * fraction();
  params.seed = rng();
  return params;
}

// The order and definitions of vLLM: bias, repetition, frequency, presence.
std::vector<long double> reference_logits(const Logits& logits, const SamplingParams& params,
                                          const std::vector<TokenId>& text,
                                          std::size_t num_prompt) {
  std::vector<long double> result(logits.begin(), logits.end());
  for (const auto& [id, bias] : params.logit_bias)
    result[static_cast<std::size_t>(value(id))] += bias;
  for (std::size_t id = 0; id < result.size(); ++id) {
    const TokenId token{static_cast<std::int32_t>(id)};
    const auto answer = text.begin() + static_cast<std::ptrdiff_t>(num_prompt);
    const auto in_answer = std::count(answer, text.end(), token);
    if (std::find(text.begin(), text.end(), token) != text.end()) {
      result[id] = result[id] > 0 ? result[id] / params.repetition_penalty
                                  : result[id] * params.repetition_penalty;
    }
    result[id] -= params.frequency_penalty * static_cast<double>(in_answer);
    if (in_answer > 0) result[id] -= params.presence_penalty;
  }
  return result;
}

}  // namespace

TEST_CASE("greedy takes the largest logit, of equals the lowest id", "[core][sampling]") {
  Sampler sampler;
  const SamplingParams greedy;
  CHECK(sampler.sample(Logits{0.5f, 2, -1}, greedy, 0).token == TokenId{1});
  CHECK(sampler.sample(Logits{1, 3, 2, 3, 3}, greedy, 7).token == TokenId{1});
  CHECK(sampler.sample(Logits{-0.0f, 0.0f}, greedy, 0).token == TokenId{0});
  CHECK(sampler.sample(Logits{-3}, greedy, 0).token == TokenId{0});
  CHECK(sampler.sample(Logits{1, 2}, greedy, 0).logprobs.empty());
}

TEST_CASE("greedy takes the first of the largest of any number of logits", "[core][sampling]") {
  Sampler sampler;
  for (std::uint64_t seed = 0; seed < 2'000; ++seed) {
    Rng rng(seed, "greedy");
    const std::size_t vocab = 1 + rng() % (seed % 20 == 0 ? 20'000 : 70);
    // Few levels, so that many are equal; zeros of both signs among them.
    Logits logits =
        random_logits(rng, vocab, seed % 3 == 0 ? 0 : 4, 1 + static_cast<int>(rng() % 5));
    for (float& logit : logits) {
      if (logit == 0 && rng() % 2 == 0) logit = -0.0f;
      if (seed % 5 == 0) logit = -std::abs(logit);
    }
    const auto first = std::max_element(logits.begin(), logits.end());
    CAPTURE(seed, vocab);
    REQUIRE(value(sampler.sample(logits, SamplingParams{}, 0).token) == first - logits.begin());
  }
}

TEST_CASE("the uniform number of a draw is SplitMix64's", "[core][sampling]") {
  // Worked out apart from this code: the generator's first outputs when it begins at the first
  // output of the one that begins at the seed.
  CHECK(sampling_uniform(0, 0) * 0x1p53 == 5876733520225071);
  CHECK(sampling_uniform(0, 1) * 0x1p53 == 6315957190297641);
  CHECK(sampling_uniform(42, 0) * 0x1p53 == 3092098744885774);
  CHECK(sampling_uniform(42, 2) * 0x1p53 == 4380647180739872);
}

TEST_CASE("a draw inverts the distribution in order of id", "[core][sampling]") {
  // Odds 1 : 2 : 1, so the borders are at a quarter and at three quarters.
  const auto log2 = static_cast<float>(std::log(2.0));
  const Logits logits = {1, 1 + log2, 1};
  SamplingParams params;
  params.temperature = 1;
  Sampler sampler;
  for (std::int64_t position = 0; position < 1'000; ++position) {
    params.seed = static_cast<std::uint64_t>(position % 3);
    const double u = sampling_uniform(params.seed, position);
    const int expected = u < 0.25 ? 0 : u < 0.75 ? 1 : 2;
    REQUIRE(value(sampler.sample(logits, params, position).token) == expected);
  }
  // At half the temperature the odds are squared, 1 : 4 : 1.
  params.temperature = 0.5;
  params.seed = 5;
  for (std::int64_t position = 0; position < 1'000; ++position) {
    const double u = sampling_uniform(5, position);
    const int expected = u < 1.0 / 6 ? 0 : u < 5.0 / 6 ? 1 : 2;
    REQUIRE(value(sampler.sample(logits, params, position).token) == expected);
  }
}

TEST_CASE("what top_k, top_p and min_p keep", "[core][sampling]") {
  // Probabilities 0.1, 0.4, 0.2, 0.25, 0.05.
  Logits logits;
  for (const double p : {0.1, 0.4, 0.2, 0.25, 0.05}) {
    logits.push_back(static_cast<float>(std::log(p)));
  }
  using Ids = std::vector<std::size_t>;
  const auto kept = [&](std::int32_t top_k, double top_p, double min_p) {
    SamplingParams params;
    params.temperature = 1;
    params.top_k = top_k;
    params.top_p = top_p;
    params.min_p = min_p;
    return support(logits, params);
  };
  CHECK(kept(0, 1, 0) == Ids{0, 1, 2, 3, 4});
  CHECK(kept(1, 1, 0) == Ids{1});
  CHECK(kept(3, 1, 0) == Ids{1, 2, 3});
  CHECK(kept(9, 1, 0) == Ids{0, 1, 2, 3, 4});
  CHECK(kept(0, 0.01, 0) == Ids{1});  // at least one
  CHECK(kept(0, 0.39, 0) == Ids{1});
  CHECK(kept(0, 0.41, 0) == Ids{1, 3});  // the one that reaches it is kept
  CHECK(kept(0, 0.66, 0) == Ids{1, 2, 3});
  CHECK(kept(0, 0.96, 0) == Ids{0, 1, 2, 3, 4});
  CHECK(kept(0, 1, 1) == Ids{1});
  CHECK(kept(0, 1, 0.49) == Ids{1, 2, 3});  // at least 0.196
  CHECK(kept(0, 1, 0.51) == Ids{1, 3});
  // top_p is a share of what the others leave: of 0.4, 0.25 and 0.2 the first two are 0.765.
  CHECK(kept(3, 0.75, 0) == Ids{1, 3});
  CHECK(kept(3, 0.77, 0) == Ids{1, 2, 3});
  CHECK(kept(0, 0.75, 0.49) == Ids{1, 3});
  CHECK(kept(2, 1, 0.1) == Ids{1, 3});
}

TEST_CASE("of equal logits the lower ids are kept", "[core][sampling]") {
  using Ids = std::vector<std::size_t>;
  SamplingParams params;
  params.temperature = 0.7;
  params.top_k = 3;
  CHECK(support(Logits(8, 1.5f), params) == Ids{0, 1, 2});
  CHECK(support(Logits{1, 2, 1, 2, 1}, params) == Ids{0, 1, 3});
  CHECK(support(Logits{0.0f, -0.0f, 0.0f, -0.0f}, params) == Ids{0, 1, 2});
  params.top_k = 0;
  params.top_p = 0.5;
  CHECK(support(Logits(8, -2.0f), params) == Ids{0, 1, 2, 3});
  params.top_p = 0.51;
  CHECK(support(Logits(8, -2.0f), params) == Ids{0, 1, 2, 3, 4});
}

TEST_CASE("settings that keep everything change nothing", "[core][sampling]") {
  Rng rng(3, "no-ops");
  Sampler sampler;
  const Logits logits = random_logits(rng, 300, 6, 0);
  SamplingParams plain;
  plain.temperature = 1.5;
  plain.seed = 9;
  SamplingParams same = plain;
  for (const std::int32_t top_k : {0, 300, 301, INT32_MAX}) {
    same.top_k = top_k;
    for (std::int64_t position = 0; position < 200; ++position) {
      REQUIRE(sampler.sample(logits, same, position).token ==
              sampler.sample(logits, plain, position).token);
    }
  }
}

TEST_CASE("near temperature 0 a draw is greedy", "[core][sampling]") {
  Rng rng(4, "cold");
  Sampler sampler;
  for (const double temperature : {1e-4, 1e-30, std::numeric_limits<double>::denorm_min()}) {
    SamplingParams params;
    params.temperature = temperature;
    for (std::int64_t position = 0; position < 200; ++position) {
      const Logits logits = random_logits(rng, 500, 20, 0);
      REQUIRE(sampler.sample(logits, params, position).token ==
              sampler.sample(logits, {}, position).token);
    }
    // Tokens that tie share the draws: no temperature makes one likelier.
    CHECK(support(Logits{1, 5, 2, 5}, params) == std::vector<std::size_t>{1, 3});
  }
}

TEST_CASE("at a high temperature all are alike", "[core][sampling]") {
  SamplingParams params;
  params.temperature = std::numeric_limits<double>::max();
  const Logits logits = {-100, 3e38f, 0, -3e38f};
  const double chi =
      chi_square(count_draws(logits, params, 40'000), {0.25L, 0.25L, 0.25L, 0.25L}, 40'000);
  CHECK(chi < 21.1);  // 3 degrees of freedom: 1 in 10,000
}

TEST_CASE("a logit that is not finite is an error", "[core][sampling]") {
  const auto error = [](float bad, const SamplingParams& params) {
    Logits logits(100, 1.0f);
    logits[17] = bad;
    return testing::error_of<std::runtime_error>([&] { Sampler().sample(logits, params, 5); });
  };
  SamplingParams drawn;
  drawn.temperature = 1;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const SamplingParams& params : {SamplingParams{}, drawn}) {
    CHECK(error(std::nanf(""), params) == "the logit of token 17 at position 5 is nan");
    CHECK(error(kInfinity, params) == "the logit of token 17 at position 5 is inf");
    CHECK(error(-kInfinity, params) == "the logit of token 17 at position 5 is -inf");
    CHECK(error(std::numeric_limits<float>::lowest(), params).empty());
  }
  CHECK_THROWS_AS(Sampler().sample(Logits{std::nanf("")}, {}, 0), std::runtime_error);
}

TEST_CASE("parameters out of range are an error", "[core][sampling]") {
  const auto rejects = [](auto change) {
    SamplingParams params;
    params.temperature = 1;
    change(params);
    CHECK_THROWS_AS(Sampler().sample(Logits{1, 2}, params, 0), InvariantError);
  };
  rejects([](SamplingParams& p) { p.temperature = -1; });
  rejects([](SamplingParams& p) { p.temperature = std::nan(""); });
  rejects([](SamplingParams& p) { p.top_k = -1; });
  rejects([](SamplingParams& p) { p.top_p = 0; });
  rejects([](SamplingParams& p) { p.top_p = 1.5; });
  rejects([](SamplingParams& p) { p.min_p = -0.1; });
  rejects([](SamplingParams& p) { p.min_p = 1.1; });
  CHECK_THROWS_AS(Sampler().sample(Logits{}, {}, 0), InvariantError);
}

TEST_CASE("logprobs are of the logits as they are", "[core][sampling]") {
  // Probabilities 1/8, 1/2, 1/8, 1/4.
  const auto log2 = static_cast<float>(std::log(2.0));
  const Logits logits = {0, 2 * log2, 0, log2};
  SamplingParams params;
  params.num_logprobs = 3;
  Sampler sampler;
  SampledToken sampled = sampler.sample(logits, params, 0);
  REQUIRE(sampled.logprobs.size() == 4);
  const auto is = [](const TokenLogprob& logprob, int token, double probability) {
    CHECK(value(logprob.token) == token);
    CHECK(logprob.logprob == Approx(std::log(probability)).epsilon(1e-6));
  };
  is(sampled.logprobs[0], 1, 0.5);
  is(sampled.logprobs[1], 1, 0.5);
  is(sampled.logprobs[2], 3, 0.25);
  is(sampled.logprobs[3], 0, 0.125);  // ties with token 2

  params.temperature = 0.1;
  params.top_k = 2;
  params.min_p = 0.5;
  params.top_p = 0.1;
  CHECK(sampler.sample(logits, params, 0).logprobs == sampled.logprobs);

  params = {};
  params.temperature = 100;
  params.num_logprobs = 0;
  for (std::int64_t position = 0; position < 20; ++position) {
    sampled = sampler.sample(logits, params, position);
    REQUIRE(sampled.logprobs.size() == 1);
    CHECK(sampled.logprobs.front().token == sampled.token);
  }
  params.num_logprobs = 100;  // of four tokens
  CHECK(sampler.sample(logits, params, 0).logprobs.size() == 5);
}

TEST_CASE("logprobs are exact, in descending order, and sum to one", "[core][sampling]") {
  Rng rng(5, "logprobs");
  Sampler sampler;
  SamplingParams params;
  for (const std::size_t vocab :
       {std::size_t{1}, std::size_t{2}, std::size_t{50}, std::size_t{3'000}, kLargeVocab}) {
    for (const double spread : {0.0, 1e-3, 5.0, 80.0, 2'000.0}) {
      const Logits logits = random_logits(rng, vocab, spread, spread == 5.0 ? 8 : 0);
      const long double largest = *std::max_element(logits.begin(), logits.end());
      long double total = 0;
      for (const float logit : logits) total += std::exp(logit - largest);
      params.num_logprobs = static_cast<std::int32_t>(vocab);
      const SampledToken sampled = sampler.sample(logits, params, 0);
      REQUIRE(sampled.logprobs.size() == vocab + 1);
      CHECK(sampled.logprobs[0] == sampled.logprobs[1]);
      double sum = 0;
      bool is_ordered = true;
      bool is_exact = true;
      for (std::size_t i = 1; i <= vocab; ++i) {
        const auto [token, logprob] = sampled.logprobs[i];
        const auto id = static_cast<std::size_t>(value(token));
        sum += std::exp(static_cast<double>(logprob));
        const auto expected = static_cast<float>(logits[id] - largest - std::log(total));
        is_exact =
            is_exact && std::abs(logprob - expected) <= std::abs(expected) * 0x1p-22f + 1e-12f;
        if (i == 1) continue;
        const auto before = static_cast<std::size_t>(value(sampled.logprobs[i - 1].token));
        is_ordered = is_ordered &&
                     (logits[before] > logits[id] || (logits[before] == logits[id] && before < id));
      }
      CAPTURE(vocab, spread);
      CHECK(is_exact);
      CHECK(is_ordered);
      CHECK(sum == Approx(1).epsilon(1e-5));
    }
  }
}

TEST_CASE("draws follow the distribution, over positions and over seeds", "[core][sampling]") {
  const Logits logits = {0.3f, 2.0f, -1.0f, 1.9f, 0.0f, 1.0f, 0.9f, -3.0f};
  SamplingParams params;
  params.temperature = 0.8;
  constexpr int kDraws = 200'000;
  // Limits are those that chance exceeds 1 time in 10,000.
  params.seed = 1234;
  CHECK(chi_square(count_draws(logits, params, kDraws), reference_probabilities(logits, params),
                   kDraws) < 29.9);  // 7 degrees of freedom
  params.top_k = 6;
  params.min_p = 0.15;
  params.top_p = 0.95;
  const auto probabilities = reference_probabilities(logits, params);
  CHECK(std::count(probabilities.begin(), probabilities.end(), 0.0L) == 4);
  CHECK(chi_square(count_draws(logits, params, kDraws), probabilities, kDraws) < 21.1);  // 3

  Sampler sampler;
  std::vector<int> counts(logits.size(), 0);
  for (params.seed = 0; params.seed < kDraws; ++params.seed) {
    ++counts[static_cast<std::size_t>(value(sampler.sample(logits, params, 77).token))];
  }
  CHECK(chi_square(counts, probabilities, kDraws) < 21.1);
}

TEST_CASE("draws that are neighbours have nothing to do with each other", "[core][sampling]") {
  // Pairs in 16 x 16 cells: neighbouring positions, neighbouring seeds, and the same sum of both.
  constexpr std::uint64_t kSide = 600;
  const auto chi = [](std::uint64_t seed_step, std::int64_t position_step) {
    std::vector<int> cells(256, 0);
    for (std::uint64_t seed = 1; seed <= kSide; ++seed) {
      for (std::int64_t position = 1; position <= std::int64_t{kSide}; ++position) {
        const double a = sampling_uniform(seed, position);
        const double b = sampling_uniform(seed + seed_step, position + position_step);
        REQUIRE((a >= 0 && a < 1));
        ++cells[static_cast<std::size_t>(a * 16) * 16 + static_cast<std::size_t>(b * 16)];
      }
    }
    return chi_square(cells, std::vector<long double>(256, 1.0L / 256), kSide * kSide);
  };
  // 255 degrees of freedom: 1 in 10,000.
  CHECK(chi(0, 1) < 347);
  CHECK(chi(1, 0) < 347);
  CHECK(chi(1, -1) < 347);
  CHECK(sampling_uniform(3, 8) != sampling_uniform(8, 3));
}

TEST_CASE("random logits and parameters draw as the reference does", "[core][sampling]") {
  Sampler sampler;
  constexpr std::array<double, 5> kSpreads = {0, 0.5, 4, 30, 1'000};
  for (std::uint64_t seed = 0; seed < 6'000; ++seed) {
    Rng rng(seed, "sampling");
    const std::size_t vocab = 1 + rng() % (seed % 50 == 0 ? 5'000 : 100);
    const double spread = kSpreads[rng() % kSpreads.size()];
    const Logits logits = random_logits(rng, vocab, spread, rng() % 2 == 0 ? 5 : 0);
    const SamplingParams params = random_params(rng, vocab);
    const auto probabilities = reference_probabilities(logits, params);
    for (int i = 0; i < 10; ++i) {
      const auto position = static_cast<std::int64_t>(rng() % 100'000);
      const double uniform = sampling_uniform(params.seed, position);
      CAPTURE(seed, vocab, spread, params.temperature, params.top_k, params.top_p, params.min_p);
      REQUIRE(value(sampler.sample(logits, params, position).token) ==
              reference_draw(probabilities, uniform));
    }
  }
}

TEST_CASE("a vocabulary of 262,144 draws as the reference does", "[core][sampling]") {
  Sampler sampler;
  Rng rng(8, "large");
  for (const double spread : {0.0, 0.01, 4.0, 60.0}) {
    Logits logits = random_logits(rng, kLargeVocab, spread, spread == 4.0 ? 64 : 0);
    // In ascending order each token beats all before it.
    if (spread == 60.0) std::sort(logits.begin(), logits.end());
    for (const std::int32_t top_k : {0, 1, 50, 200'000}) {
      for (const double top_p : {1.0, 0.9, 0.123}) {
        SamplingParams params;
        params.temperature = 1;
        params.top_k = top_k;
        params.top_p = top_p;
        const auto probabilities = reference_probabilities(logits, params);
        for (std::int64_t position = 0; position < 3; ++position) {
          CAPTURE(spread, top_k, top_p, position);
          REQUIRE(value(sampler.sample(logits, params, position).token) ==
                  reference_draw(probabilities, sampling_uniform(0, position)));
        }
      }
    }
  }
}

TEST_CASE("samples are the same bits on every compiler and machine", "[core][sampling]") {
  Sampler sampler;
  Rng rng(11, "golden");
  std::uint64_t digest = 0;
  for (int i = 0; i < 2'000; ++i) {
    const std::size_t vocab = 1 + rng() % 400;
    const Logits logits = random_logits(rng, vocab, 12, i % 3 == 0 ? 4 : 0);
    SamplingParams params = random_params(rng, vocab);
    params.num_logprobs = 3;
    const SampledToken sampled = sampler.sample(logits, params, i);
    for (const auto& [token, logprob] : sampled.logprobs) {
      digest = mix64(digest ^ static_cast<std::uint64_t>(value(token)));
      digest = mix64(digest ^ std::bit_cast<std::uint32_t>(logprob));
    }
  }
  CHECK(digest == 0xf6ebbe84811763f7ull);
}

TEST_CASE("a bias and penalties change logits", "[core][sampling]") {
  const std::vector<TokenId> text = {TokenId{0}, TokenId{1}, TokenId{2}, TokenId{2}, TokenId{3}};
  const auto likeliest = [&](const Logits& logits, const SamplingParams& params) {
    return value(Sampler().sample(logits, params, 5, {text, 2}).token);
  };
  const Logits logits = {4, 3.5f, 3.25f, 3, 2.875f};
  CHECK(likeliest(logits, {.logit_bias = {{TokenId{4}, 2}}}) == 4);
  CHECK(likeliest(logits, {.logit_bias = {{TokenId{0}, -100}}}) == 1);
  // Presence and frequency look at the answer alone: 2, 2, 3.
  CHECK(likeliest({3, 3.5f, 4, 3.875f, 1}, {.presence_penalty = 0.5}) == 1);
  CHECK(likeliest({3, 3.25f, 4, 3.875f, 1}, {.presence_penalty = 0.5}) == 2);
  CHECK(likeliest({3, 3.25f, 4, 3.875f, 1}, {.frequency_penalty = 0.5}) == 3);
  CHECK(likeliest({1, 1, 1, 1, 3}, {.presence_penalty = -2}) == 2);
  // Repetition looks at the prompt, too; negative logits are multiplied.
  CHECK(likeliest(logits, {.repetition_penalty = 1.5}) == 4);
  CHECK(likeliest({-1, -1, -1, -1, -1.25f}, {.repetition_penalty = 1.5}) == 4);
  CHECK(likeliest({-1, -1, -1, -1, -0.875f}, {.repetition_penalty = 0.5}) == 0);
  // The logits that are reported are the model's.
  const SampledToken sampled =
      Sampler().sample(logits, {.logit_bias = {{TokenId{4}, 2}}, .num_logprobs = 1}, 5, {text, 2});
  CHECK(sampled.logprobs == Sampler().logprobs(logits, TokenId{4}, 1));
  CHECK(sampled.logprobs[1].token == TokenId{0});
}

TEST_CASE("changed logits stay finite", "[core][sampling]") {
  const std::vector<TokenId> text = {TokenId{0}, TokenId{1}};
  const Logits logits = {3e38f, -3e38f, 1000};
  for (const double temperature : {0.0, 1.0}) {
    for (const double penalty : {1e-300, 1e300}) {
      const SamplingParams params = {.temperature = temperature,
                                     .presence_penalty = 2,
                                     .frequency_penalty = 2,
                                     .repetition_penalty = penalty,
                                     .logit_bias = {{TokenId{0}, 100}}};
      CHECK(Sampler().sample(logits, params, 2, {text, 1}).token ==
            (penalty < 1 ? TokenId{0} : TokenId{2}));
    }
  }
}

TEST_CASE("random biases and penalties give the reference's tokens", "[core][sampling]") {
  const std::uint64_t seed = 60;
  CAPTURE(seed);
  Rng rng(seed, "penalties");
  Sampler sampler;
  int num_changed = 0;
  for (int i = 0; i < 500; ++i) {
    const std::size_t vocab = 2 + rng() % 60;
    const Logits logits = random_logits(rng, vocab, 4, 0);
    std::vector<TokenId> text;
    for (std::uint64_t n = rng() % 40; n > 0; --n) {
      text.push_back(TokenId{static_cast<std::int32_t>(rng() % vocab)});
    }
    const std::size_t num_prompt = text.empty() ? 0 : rng() % text.size();
    SamplingParams params = random_params(rng, vocab);
    params.presence_penalty = static_cast<double>(rng() % 17) / 4 - 2;
    params.frequency_penalty = static_cast<double>(rng() % 17) / 4 - 2;
    params.repetition_penalty = static_cast<double>(1 + rng() % 16) / 8;
    params.logit_bias = {{TokenId{static_cast<std::int32_t>(rng() % vocab)}, 1.5f}};
    Logits expected;
    for (const long double logit : reference_logits(logits, params, text, num_prompt)) {
      expected.push_back(static_cast<float>(logit));
    }
    SamplingParams plain = params;
    plain.presence_penalty = plain.frequency_penalty = 0;
    plain.repetition_penalty = 1;
    plain.logit_bias.clear();
    for (const double temperature : {0.0, params.temperature}) {
      params.temperature = plain.temperature = temperature;
      const TokenId token = sampler.sample(logits, params, i, {text, num_prompt}).token;
      REQUIRE(token == sampler.sample(expected, plain, i).token);
      num_changed += token == sampler.sample(logits, plain, i).token ? 0 : 1;
    }
  }
  CHECK(num_changed > 100);
}

}  // namespace metronome::TEST_FILE
