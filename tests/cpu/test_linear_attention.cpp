// SPDX-License-Identifier: Apache-2.0
// The kernels of linear attention: to the bit against their definitions written plainly, on every
// instruction set and for every chunk, and to rounding against the chunk-parallel form of the
// gated delta rule, which engines use for prompts.
#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/cpu/kernel_reference.h"

namespace metronome::testing::TEST_FILE {
namespace {

// One value head of a sequence.
struct HeadInputs {
  std::int64_t num_tokens;
  std::int64_t key_dim;
  std::int64_t value_dim;
  Floats1d queries, keys;  // [num_tokens, key_dim], of length about 1
  Floats1d values;         // [num_tokens, value_dim]
  Floats1d decays, betas;  // [num_tokens]

  HeadInputs(Rng& rng, std::int64_t tokens, std::int64_t keys_each, std::int64_t values_each)
      : num_tokens(tokens),
        key_dim(keys_each),
        value_dim(values_each),
        queries(random_floats(rng, tokens * keys_each, 1 / std::sqrt(double(keys_each)))),
        keys(random_floats(rng, tokens * keys_each, std::sqrt(3.0 / double(keys_each)))),
        values(random_floats(rng, tokens * values_each)) {
    for (std::int64_t t = 0; t < tokens; ++t) {
      decays.push_back(static_cast<float>(1 - 0.3 * rng.uniform()));
      betas.push_back(static_cast<float>(rng.uniform()));
    }
  }
};

struct HeadOutputs {
  Floats1d outputs;  // [num_tokens, value_dim]
  Floats1d state;    // [key_dim, value_dim]
};

// The kernel in chunks of so many tokens.
HeadOutputs by_kernel(const Kernels& set, const HeadInputs& in, std::int64_t chunk) {
  HeadOutputs out = {Floats1d(static_cast<std::size_t>(in.num_tokens * in.value_dim)),
                     Floats1d(static_cast<std::size_t>(in.key_dim * in.value_dim))};
  for (std::int64_t begin = 0; begin < in.num_tokens; begin += chunk) {
    // The kernel has one stride for queries, keys and values, so their rows are joined.
    const std::int64_t count = std::min(chunk, in.num_tokens - begin);
    const std::int64_t stride = 2 * in.key_dim + in.value_dim + 3;
    Floats1d rows(static_cast<std::size_t>(count * stride), std::nanf(""));
    for (std::int64_t t = 0; t < count; ++t) {
      float* const row = rows.data() + t * stride;
      std::copy_n(in.queries.data() + (begin + t) * in.key_dim, in.key_dim, row);
      std::copy_n(in.keys.data() + (begin + t) * in.key_dim, in.key_dim, row + in.key_dim);
      std::copy_n(in.values.data() + (begin + t) * in.value_dim, in.value_dim,
                  row + 2 * in.key_dim);
    }
    set.delta_rule({.queries = rows.data(),
                    .keys = rows.data() + in.key_dim,
                    .values = rows.data() + 2 * in.key_dim,
                    .stride = stride,
                    .decays = in.decays.data() + begin,
                    .betas = in.betas.data() + begin,
                    .gate_stride = 1,
                    .outputs = out.outputs.data() + begin * in.value_dim,
                    .output_stride = in.value_dim,
                    .state = out.state.data(),
                    .num_tokens = count,
                    .key_dim = in.key_dim,
                    .value_dim = in.value_dim});
  }
  return out;
}

HeadOutputs by_definition(const HeadInputs& in) {
  HeadOutputs out = {{}, Floats1d(static_cast<std::size_t>(in.key_dim * in.value_dim))};
  const auto state = [&](std::int64_t i, std::int64_t j) -> float& {
    return out.state[static_cast<std::size_t>(i * in.value_dim + j)];
  };
  for (std::int64_t t = 0; t < in.num_tokens; ++t) {
    const auto token = static_cast<std::size_t>(t);
    const float* const query = in.queries.data() + t * in.key_dim;
    const float* const key = in.keys.data() + t * in.key_dim;
    for (std::int64_t j = 0; j < in.value_dim; ++j) {
      float recalled = 0;
      for (std::int64_t i = 0; i < in.key_dim; ++i) {
        state(i, j) *= in.decays[token];
        recalled = std::fma(state(i, j), key[i], recalled);
      }
      const float value = in.values[static_cast<std::size_t>(t * in.value_dim + j)];
      const float delta = (value - recalled) * in.betas[token];
      float output = 0;
      for (std::int64_t i = 0; i < in.key_dim; ++i) {
        state(i, j) = std::fma(delta, key[i], state(i, j));
        output = std::fma(state(i, j), query[i], output);
      }
      out.outputs.push_back(output);
    }
  }
  return out;
}

// The chunk-parallel form in double: within a chunk of `size` tokens, the corrections u of all
// tokens solve a triangular system, u_t = beta_t (v_t - (D_t S_0^T k_t) - sum over s < t of
// D_t / D_s (k_s . k_t) u_s), where D_t is the product of the chunk's decays up to t.
HeadOutputs by_chunks(const HeadInputs& in, std::int64_t size) {
  using Doubles = std::vector<double>;
  const auto at = [](std::int64_t i) { return static_cast<std::size_t>(i); };
  const auto dot = [&](const Floats1d& a, std::int64_t s, const Floats1d& b, std::int64_t t) {
    double sum = 0;
    for (std::int64_t i = 0; i < in.key_dim; ++i) {
      sum += double(a[at(s * in.key_dim + i)]) * double(b[at(t * in.key_dim + i)]);
    }
    return sum;
  };
  HeadOutputs out;
  Doubles state(at(in.key_dim * in.value_dim), 0.0);
  for (std::int64_t begin = 0; begin < in.num_tokens; begin += size) {
    const std::int64_t end = std::min(begin + size, in.num_tokens);
    Doubles logs;  // of D_t
    double sum = 0;
    for (std::int64_t t = begin; t < end; ++t) {
      sum += std::log(double(in.decays[at(t)]));
      logs.push_back(sum);
    }
    Doubles corrections;  // [end - begin, value_dim]
    for (std::int64_t t = begin; t < end; ++t) {
      for (std::int64_t j = 0; j < in.value_dim; ++j) {
        double recalled = 0;
        double output = 0;
        const double since = std::exp(logs[at(t - begin)]);
        for (std::int64_t i = 0; i < in.key_dim; ++i) {
          const double kept = since * state[at(i * in.value_dim + j)];
          recalled += kept * double(in.keys[at(t * in.key_dim + i)]);
          output += kept * double(in.queries[at(t * in.key_dim + i)]);
        }
        for (std::int64_t s = begin; s < t; ++s) {
          const double faded = std::exp(logs[at(t - begin)] - logs[at(s - begin)]) *
                               corrections[at((s - begin) * in.value_dim + j)];
          recalled += dot(in.keys, s, in.keys, t) * faded;
          output += dot(in.keys, s, in.queries, t) * faded;
        }
        const double value = double(in.values[at(t * in.value_dim + j)]);
        corrections.push_back((value - recalled) * double(in.betas[at(t)]));
        out.outputs.push_back(
            static_cast<float>(output + dot(in.keys, t, in.queries, t) * corrections.back()));
      }
    }
    for (std::int64_t i = 0; i < in.key_dim; ++i) {
      for (std::int64_t j = 0; j < in.value_dim; ++j) {
        double& element = state[at(i * in.value_dim + j)];
        element *= std::exp(sum);
        for (std::int64_t t = begin; t < end; ++t) {
          element += std::exp(sum - logs[at(t - begin)]) * double(in.keys[at(t * in.key_dim + i)]) *
                     corrections[at((t - begin) * in.value_dim + j)];
        }
      }
    }
  }
  for (const double element : state) out.state.push_back(static_cast<float>(element));
  return out;
}

double largest_difference(const Floats1d& a, const Floats1d& b) {
  REQUIRE(a.size() == b.size());
  double largest = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double difference = std::fabs(double(a[i]) - double(b[i]));
    largest = difference <= largest ? largest : difference;
  }
  return largest;
}

}  // namespace

TEST_CASE("the delta rule has the same bits on every instruction set and in every chunk",
          "[cpu][kernels][linear_attention]") {
  constexpr std::uint64_t kSeed = 41;
  for (const std::int64_t key_dim : {1, 5, 16, 24}) {
    for (const std::int64_t value_dim : {1, 3, 4, 15, 16, 17, 33, 64, 70, 128}) {
      Rng rng(kSeed, "delta rule " + std::to_string(key_dim) + " x " + std::to_string(value_dim));
      const HeadInputs in(rng, 23, key_dim, value_dim);
      const HeadOutputs expected = by_definition(in);
      for (const Kernels* set : kernel_sets()) {
        for (const std::int64_t chunk : {1, 2, 7, 22, 23}) {
          INFO(set->name << ", seed " << kSeed << ", " << key_dim << " x " << value_dim
                         << ", chunks of " << chunk);
          const HeadOutputs computed = by_kernel(*set, in, chunk);
          CHECK(first_difference(computed.outputs, expected.outputs) == -1);
          CHECK(first_difference(computed.state, expected.state) == -1);
        }
      }
    }
  }
}

TEST_CASE("the model's own chunk does not matter: the chunk-parallel form agrees to rounding",
          "[cpu][kernels][linear_attention]") {
  for (std::uint64_t seed = 0; seed < 6; ++seed) {
    Rng rng(seed, "chunk-parallel");
    const HeadInputs in(rng, rng.uniform_int(60, 200), rng.uniform_int(4, 40),
                        rng.uniform_int(4, 40));
    const HeadOutputs by_token = by_kernel(kernels(), in, in.num_tokens);
    for (const std::int64_t size : {1, 16, 64, 100}) {
      INFO("seed " << seed << ", model's chunk " << size);
      const HeadOutputs chunked = by_chunks(in, size);
      CHECK(largest_difference(by_token.outputs, chunked.outputs) < 1e-5);
      CHECK(largest_difference(by_token.state, chunked.state) < 1e-5);
    }
    // The engine's chunk changes no bit.
    for (const std::int64_t chunk : {1, 13, 64}) {
      CHECK(first_difference(by_kernel(kernels(), in, chunk).outputs, by_token.outputs) == -1);
    }
  }
}

TEST_CASE("the convolution and the gate of attention, by their definitions",
          "[cpu][kernels][linear_attention]") {
  Rng rng(43, "convolution");
  for (const std::int64_t n : {1, 3, 4, 8, 15, 16, 31, 70}) {
    for (const std::int64_t width : {2, 4, 5}) {
      const Floats1d taps = random_floats(rng, width * n);
      const Floats1d rows = random_floats(rng, width * n, 2);
      std::vector<const float*> inputs;
      for (std::int64_t j = 0; j < width; ++j) inputs.push_back(rows.data() + j * n);
      const auto count = static_cast<std::size_t>(n);
      Floats1d sums(count);
      for (std::int64_t j = 0; j < width; ++j) {
        for (std::int64_t i = 0; i < n; ++i) {
          float& sum = sums[static_cast<std::size_t>(i)];
          const auto at = static_cast<std::size_t>(j * n + i);
          sum = std::fma(taps[at], rows[at], sum);
        }
      }
      for (const Kernels* set : kernel_sets()) {
        INFO(set->name << ", " << n << " channels, width " << width);
        Floats1d expected(count);
        set->silu_multiply(sums.data(), nullptr, n, expected.data());
        Floats1d out(count);
        set->convolve(inputs.data(), taps.data(), width, n, out.data());
        CHECK(first_difference(out, expected) == -1);

        Floats1d gated(count);
        set->sigmoid_multiply(sums.data(), rows.data(), n, gated.data());
        for (std::size_t i = 0; i < count; ++i) {
          const double sigmoid = 1 / (1 + std::exp(-double(sums[i])));
          CHECK(std::fabs(double(gated[i]) - sigmoid * double(rows[i])) < 1e-6);
        }
      }
    }
  }
}

}  // namespace metronome::testing::TEST_FILE
