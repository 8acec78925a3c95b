// SPDX-License-Identifier: Apache-2.0
// Embedding and gated activation on the GPU.
#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

// Rows after the last are NaN.
Bf16s embedded(const Bf16s& table, std::int64_t hidden_dim,
               const std::vector<std::int32_t>& token_ids, const std::vector<std::int32_t>& sampled,
               float scale) {
  const DeviceArray<bf16> table_array = on_device(table);
  const DeviceArray<std::int32_t> ids = on_device(token_ids);
  const DeviceArray<std::int32_t> sampled_array = on_device(sampled);
  const DeviceArray<bf16> out =
      on_device(Bf16s((token_ids.size() + 1) * static_cast<std::size_t>(hidden_dim), bf16_nan()));
  EmbedArgs args;
  args.table = table_array.data();
  args.token_ids = ids.data();
  args.sampled = sampled_array.data();
  args.num_tokens = static_cast<std::int32_t>(token_ids.size());
  args.hidden_dim = static_cast<std::int32_t>(hidden_dim);
  args.vocab_size = static_cast<std::int32_t>(static_cast<std::int64_t>(table.size()) / hidden_dim);
  args.scale = scale;
  args.out = out.data();
  launch_embed(args, nullptr);
  return out.download();
}

// Rows after the last are NaN.
Bf16s activated(const Bf16s& gate_up, std::int64_t dim, bool is_gelu) {
  const std::int64_t num_tokens = static_cast<std::int64_t>(gate_up.size()) / (2 * dim);
  const DeviceArray<bf16> input = on_device(gate_up);
  const DeviceArray<bf16> out =
      on_device(Bf16s(static_cast<std::size_t>((num_tokens + 1) * dim), bf16_nan()));
  GatedActivationArgs args;
  args.gate_up = input.data();
  args.out = out.data();
  args.num_tokens = static_cast<std::int32_t>(num_tokens);
  args.dim = static_cast<std::int32_t>(dim);
  args.is_gelu = is_gelu;
  launch_gated_activation(args, nullptr);
  return out.download();
}

// act(x) * up by the formulas, with the errors float may make of it.
Range expected_activation(double x, double up, bool is_gelu) {
  const double pi = std::acos(-1.0);
  const double u = std::sqrt(2 / pi) * (x + 0.044715 * x * x * x);
  const double z = is_gelu ? 2 * u : x;
  double act = x / (1 + std::exp(-x));
  // 1 + tanh(u) is 2 / (1 + exp(-2 u)), which is to be had far left of 0 as well.
  if (is_gelu) act = u > -5 ? x / 2 * (1 + std::tanh(u)) : x / (1 + std::exp(-2 * u));
  // The argument of exp is rounded some times, and its errors are multiplied by |z|.
  const double error = std::abs(act * up) * (32 + 8 * std::min(std::abs(z), 100.0)) * 0x1p-24;
  Range range = widened(exactly(act * up), error);
  if (z < -80) {  // in float it may underflow
    range.low = std::min(range.low, 0.0);
    range.high = std::max(range.high, 0.0);
  }
  return rounded_to_bf16(range);
}

void check_activation(const Bf16s& gate_up, std::int64_t dim, bool is_gelu) {
  const Bf16s actual = activated(gate_up, dim, is_gelu);
  const auto num_tokens = static_cast<std::int64_t>(gate_up.size()) / (2 * dim);
  RangeCheck check;
  for (std::int64_t t = 0; t < num_tokens; ++t) {
    const Bf16s gates = row_of(gate_up, 2 * t, dim);
    const Bf16s ups = row_of(gate_up, 2 * t + 1, dim);
    const Bf16s row = row_of(actual, t, dim);
    for (std::size_t i = 0; i < row.size(); ++i) {
      check.add(row[i], expected_activation(to_double(gates[i]), to_double(ups[i]), is_gelu));
    }
  }
  CHECK(check.first_outside() == -1);
  if (dim > 1000) CHECK(check.exact_share() > 0.98);
  CHECK(first_difference(row_of(actual, num_tokens, dim),
                         Bf16s(static_cast<std::size_t>(dim), bf16_nan())) == -1);
}

}  // namespace

TEST_CASE("embeddings are the table's rows, scaled and rounded once", "[gpu_elementwise]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "gpu_embed");
  for (const std::int64_t hidden_dim : {8, 64, 72, 1152, 4096, 4104, 5120, 16384}) {
    for (const float scale : {1.0f, 33.941125f}) {
      const std::int64_t vocab_size = 11;
      const Bf16s table = random_bf16(rng, vocab_size * hidden_dim, 0.1);
      // By number, sampled before, out of range, a sample that failed.
      const std::vector<std::int32_t> sampled = {4, kSampleFailed, 11, 10};
      const std::vector<std::int32_t> ids = {10, 0, -1, -2, -3, -4, 11, 1 << 30, 7, 7};
      const std::vector<std::int32_t> expected_ids = {10, 0, 4, 0, 0, 10, 0, 0, 7, 7};
      const Bf16s out = embedded(table, hidden_dim, ids, sampled, scale);
      Bf16s expected(out.size(), bf16_nan());
      for (std::size_t t = 0; t < ids.size(); ++t) {
        Bf16s row = row_of(table, expected_ids[t], hidden_dim);
        for (bf16& x : row) {
          x = bf16_of_bits(bf16_of_float(float_of_bf16(bits_of(x)) * scale));
        }
        set_row(expected, static_cast<std::int64_t>(t), row);
      }
      INFO("seed " << seed << " hidden_dim " << hidden_dim << " scale " << scale);
      CHECK(first_difference(out, expected) == -1);
    }
  }
}

TEST_CASE("an embedding more than 2^31 elements into the table", "[gpu_elementwise]") {
  Rng rng(3, "gpu_embed");
  const std::int64_t hidden_dim = 4096;
  const std::int32_t id = 1 << 20;  // 2^32 elements before it
  const Bf16s row = random_bf16(rng, hidden_dim);
  const DeviceArray<bf16> memory = on_device(row);
  const DeviceArray<std::int32_t> ids = on_device(std::vector<std::int32_t>{id});
  const DeviceArray<bf16> out(static_cast<std::size_t>(hidden_dim));
  EmbedArgs args;
  args.table = reinterpret_cast<const bf16*>(reinterpret_cast<std::uintptr_t>(memory.data()) -
                                             (std::uintptr_t{1} << 32) * sizeof(bf16));
  args.token_ids = ids.data();
  args.num_tokens = 1;
  args.hidden_dim = static_cast<std::int32_t>(hidden_dim);
  args.vocab_size = id + 1;
  args.out = out.data();
  launch_embed(args, nullptr);
  CHECK(first_difference(out.download(), row) == -1);
}

TEST_CASE("known activations", "[gpu_elementwise]") {
  // Gates, then what goes up; silu(1) = 0.731059, gelu(1) = 0.841192 by the tanh form.
  Bf16s gate_up(16, to_bf16(0));
  gate_up[0] = gate_up[1] = to_bf16(1);
  gate_up[2] = to_bf16(100);
  gate_up[3] = to_bf16(-100);
  gate_up[8] = to_bf16(1);
  gate_up[9] = to_bf16(-2);
  gate_up[10] = gate_up[11] = gate_up[12] = to_bf16(3);
  const Bf16s silu = activated(gate_up, 8, false);
  CHECK(to_double(silu[0]) == to_double(to_bf16(0.731059)));
  CHECK(to_double(silu[1]) == -2 * to_double(to_bf16(0.731059)));
  CHECK(to_double(silu[2]) == 300);
  CHECK(std::abs(to_double(silu[3])) < 1e-38);
  CHECK(to_double(silu[4]) == 0);
  const Bf16s gelu = activated(gate_up, 8, true);
  CHECK(to_double(gelu[0]) == to_double(to_bf16(0.841192)));
  CHECK(to_double(gelu[1]) == -2 * to_double(to_bf16(0.841192)));
  CHECK(to_double(gelu[2]) == 300);
  CHECK(std::abs(to_double(gelu[3])) < 1e-38);
  CHECK(to_double(gelu[4]) == 0);
}

TEST_CASE("activations of every bf16 there is", "[gpu_elementwise]") {
  const bool is_gelu = GENERATE(false, true);
  // 8 tokens of 8160 gates: 0x7f80 finite numbers of each sign.
  const std::int64_t dim = 8160;
  Bf16s gate_up;
  for (int t = 0; t < 8; ++t) {
    for (int i = 0; i < dim; ++i) {
      const int number = t * 8160 + i;
      const int bits = number < 0x7f80 ? number : 0x8000 + number - 0x7f80;
      gate_up.push_back(bf16_of_bits(static_cast<std::uint16_t>(bits)));
    }
    for (int i = 0; i < dim; ++i) gate_up.push_back(to_bf16(i % 2 == 0 ? 1 : -2));
  }
  check_activation(gate_up, dim, is_gelu);
}

TEST_CASE("activations of every size", "[gpu_elementwise]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2);
  Rng rng(seed, "gpu_activation");
  for (const std::int64_t dim : {8, 16, 72, 2048, 2056, 4096, 4104, 6912}) {
    for (const std::int64_t num_tokens : {1, 3}) {
      const Bf16s gate_up = random_bf16(rng, num_tokens * 2 * dim, 6.0);
      INFO("seed " << seed << " dim " << dim << " tokens " << num_tokens);
      check_activation(gate_up, dim, chance(rng, 0.5));
    }
  }
}

TEST_CASE("a token's activations have the same bits alone and among forty", "[gpu_elementwise]") {
  Rng rng(4, "gpu_activation");
  for (const bool is_gelu : {false, true}) {
    const std::int64_t dim = 520;
    Bf16s crowd = random_bf16(rng, 40 * 2 * dim, 4.0);
    const std::int64_t place = draw(rng, 0, 39);
    const Bf16s alone = row_of(crowd, place, 2 * dim);
    // A neighbour's NaNs stay with it.
    for (bf16& x : crowd) x = chance(rng, 0.3) ? bf16_nan() : x;
    set_row(crowd, place, alone);
    CHECK(first_difference(row_of(activated(crowd, dim, is_gelu), place, dim),
                           row_of(activated(alone, dim, is_gelu), 0, dim)) == -1);
  }
}

TEST_CASE("no tokens are no work for the elementwise kernels", "[gpu_elementwise]") {
  EmbedArgs embed;
  embed.hidden_dim = 64;
  CHECK_NOTHROW(launch_embed(embed, nullptr));
  GatedActivationArgs activation;
  activation.dim = 64;
  CHECK_NOTHROW(launch_gated_activation(activation, nullptr));
}

}  // namespace TEST_FILE
