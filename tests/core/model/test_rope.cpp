// SPDX-License-Identifier: Apache-2.0
// Rotary frequencies against what transformers 5 computes with torch on a CPU, in float32.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <numbers>
#include <vector>

#include "core/model/rope.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

ModelConfig with_rope(std::int64_t head_dim, double theta, const RopeScaling& scaling = {}) {
  ModelConfig model;
  model.head_dim = head_dim;
  model.rope_theta = theta;
  model.rope_scaling = scaling;
  return model;
}

std::vector<std::uint32_t> bits_of(const std::vector<float>& values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

TEST_CASE("rotary frequencies are transformers' to the bit", "[core][rope]") {
  using Bits = std::vector<std::uint32_t>;
  CHECK(bits_of(rope_frequencies(with_rope(10, 1e6), false)) ==
        Bits{0x3f800000, 0x3d813856, 0x3b8273a6, 0x3983b1f5, 0x3784f351});
  const RopeScaling linear = {RopeScaling::Kind::Linear, 3, 1, 4, 8192};
  CHECK(bits_of(rope_frequencies(with_rope(10, 500000, linear), false)) ==
        Bits{0x3eaaaaab, 0x3cc5e9c4, 0x3ae5826f, 0x39051334, 0x371a51f4});
  // Wavelengths 6 to 629: up to 16 as they are, above 64 divided by 4, a passage between.
  const RopeScaling llama3 = {RopeScaling::Kind::Llama3, 4, 1, 4, 64};
  CHECK(bits_of(rope_frequencies(with_rope(16, 100, llama3), false)) ==
        Bits{0x3f800000, 0x3f0ff59a, 0x3e826136, 0x3da4eb34, 0x3cd09b89, 0x3c6655c2, 0x3c0186e3,
             0x3b91ad39});
}

TEST_CASE("llama3 scaling has three bands", "[core][rope]") {
  const RopeScaling scaling = {RopeScaling::Kind::Llama3, 8, 1, 4, 8192};
  const std::vector<float> plain = rope_frequencies(with_rope(128, 500000), false);
  const std::vector<float> scaled = rope_frequencies(with_rope(128, 500000, scaling), false);
  REQUIRE(scaled.size() == 64);
  int num_in_band[3] = {};
  for (std::size_t i = 0; i < plain.size(); ++i) {
    INFO("pair " << i);
    const double turns = 8192 * double{plain[i]} / (2 * std::numbers::pi);
    if (turns > 4) {
      CHECK(scaled[i] == plain[i]);
      ++num_in_band[0];
    } else if (turns < 1) {
      CHECK(scaled[i] == plain[i] / 8);
      ++num_in_band[2];
    } else {
      // The share kept grows from 0 at one turn to 1 at four.
      const double share = (turns - 1) / 3;
      CHECK(scaled[i] == Approx(plain[i] * (share + (1 - share) / 8)).epsilon(1e-5));
      ++num_in_band[1];
    }
  }
  CHECK(num_in_band[0] == 29);
  CHECK(num_in_band[1] == 6);
  CHECK(num_in_band[2] == 29);
}

TEST_CASE("window layers have a base of their own, unscaled", "[core][rope]") {
  const RopeScaling linear = {RopeScaling::Kind::Linear, 8, 1, 4, 8192};
  ModelConfig gemma = with_rope(256, 1e6, linear);
  gemma.rope_local_theta = 10000;
  CHECK(rope_frequencies(gemma, true) == rope_frequencies(with_rope(256, 10000), false));
  CHECK(rope_frequencies(gemma, false) == rope_frequencies(with_rope(256, 1e6, linear), true));
  CHECK(rope_frequencies(gemma, false).front() == 0.125f);
  // Without one they turn as all others do.
  gemma.rope_local_theta = 0;
  CHECK(rope_frequencies(gemma, true) == rope_frequencies(gemma, false));
}

TEST_CASE("rotary frequencies are the powers of the base", "[core][rope]") {
  for (const std::int64_t head_dim : {2, 6, 64, 80, 256}) {
    for (const double theta : {10000.0, 1234.5, 5e6}) {
      INFO("head_dim " << head_dim << " theta " << theta);
      const std::vector<float> frequencies = rope_frequencies(with_rope(head_dim, theta), false);
      REQUIRE(static_cast<std::int64_t>(frequencies.size()) == head_dim / 2);
      CHECK(frequencies[0] == 1);
      for (std::size_t i = 0; i < frequencies.size(); ++i) {
        const double exponent = 2.0 * static_cast<double>(i) / static_cast<double>(head_dim);
        CHECK(frequencies[i] == Approx(std::pow(theta, -exponent)).epsilon(2e-6));
      }
    }
  }
}

}  // namespace
}  // namespace metronome::TEST_FILE
