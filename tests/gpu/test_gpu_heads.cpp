// SPDX-License-Identifier: Apache-2.0
// Queries and the KV cache, out of the fused projections, against their definition in double.
#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/catch.h"
#include "tests/draws.h"
#include "tests/gpu/gpu_test.h"

namespace TEST_FILE {
using namespace metronome;
using namespace metronome::testing;

namespace {

constexpr float kEps = 1e-6f;
constexpr std::int64_t kMaxPosition = 40;

struct Problem {
  std::int32_t head_dim = 64;
  std::int32_t n_heads = 1;
  std::int32_t n_kv_heads = 1;
  std::int32_t block_size = 16;
  std::int32_t num_blocks = 3;
  std::int32_t num_tokens = 0;
  bool has_query_norm = false;
  bool has_key_norm = false;
  bool unit_offset = false;
  Bf16s qkv;
  Bf16s query_norm;
  Bf16s key_norm;
  std::vector<float> cos_sin;
  std::vector<std::int32_t> positions;
  std::vector<std::int32_t> slots;

  std::int64_t num_heads() const { return n_heads + 2 * n_kv_heads; }
  std::int64_t pool_size() const {
    return std::int64_t{num_blocks} * n_kv_heads * block_size * head_dim;
  }
};

struct Result {
  Bf16s queries;  // with a token more than is written
  Bf16s keys;
  Bf16s values;
};

// Fills in what the shape leaves open. Slots are distinct; about one in five is padding.
void draw_contents(Rng& rng, Problem& problem) {
  const std::int64_t half = problem.head_dim / 2;
  problem.qkv = random_bf16(rng, problem.num_tokens * problem.num_heads() * problem.head_dim, 3.0);
  problem.query_norm = random_bf16(rng, problem.head_dim, 1.5);
  problem.key_norm = random_bf16(rng, problem.head_dim, 1.5);
  problem.cos_sin.resize(static_cast<std::size_t>(kMaxPosition * problem.head_dim));
  for (std::int64_t p = 0; p < kMaxPosition; ++p) {
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<double>(p) *
                           std::pow(1e4, -static_cast<double>(i) / static_cast<double>(half));
      problem.cos_sin[static_cast<std::size_t>(p * problem.head_dim + i)] =
          static_cast<float>(std::cos(angle));
      problem.cos_sin[static_cast<std::size_t>(p * problem.head_dim + half + i)] =
          static_cast<float>(std::sin(angle));
    }
  }
  std::set<std::int32_t> used;
  for (std::int32_t t = 0; t < problem.num_tokens; ++t) {
    problem.positions.push_back(draw(rng, 0, kMaxPosition - 1));
    std::int32_t slot = -1;
    if (!chance(rng, 0.2)) {
      do {
        slot = draw(rng, 0, problem.num_blocks * problem.block_size - 1);
      } while (!used.insert(slot).second);
    }
    problem.slots.push_back(slot);
  }
}

HeadsArgs shape_args(const Problem& problem) {
  HeadsArgs args;
  args.num_tokens = problem.num_tokens;
  args.n_heads = problem.n_heads;
  args.n_kv_heads = problem.n_kv_heads;
  args.head_dim = problem.head_dim;
  args.block_size = problem.block_size;
  args.eps = kEps;
  args.unit_offset = problem.unit_offset;
  return args;
}

// Everything that is not written is NaN.
Result run(const Problem& problem) {
  const auto pool_size = static_cast<std::size_t>(problem.pool_size());
  const auto num_queries = static_cast<std::size_t>(problem.num_tokens + 1) *
                           static_cast<std::size_t>(problem.n_heads * problem.head_dim);
  const DeviceArray<bf16> qkv = on_device(problem.qkv);
  const DeviceArray<bf16> query_norm = on_device(problem.query_norm);
  const DeviceArray<bf16> key_norm = on_device(problem.key_norm);
  const DeviceArray<float> cos_sin = on_device(problem.cos_sin);
  const DeviceArray<std::int32_t> positions = on_device(problem.positions);
  const DeviceArray<std::int32_t> slots = on_device(problem.slots);
  const DeviceArray<bf16> queries = on_device(Bf16s(num_queries, bf16_nan()));
  const DeviceArray<bf16> keys = on_device(Bf16s(pool_size, bf16_nan()));
  const DeviceArray<bf16> values = on_device(Bf16s(pool_size, bf16_nan()));
  HeadsArgs args = shape_args(problem);
  args.qkv = qkv.data();
  args.query_norm = problem.has_query_norm ? query_norm.data() : nullptr;
  args.key_norm = problem.has_key_norm ? key_norm.data() : nullptr;
  args.cos_sin = cos_sin.data();
  args.positions = positions.data();
  args.slots = slots.data();
  args.queries = queries.data();
  args.keys = keys.data();
  args.values = values.data();
  launch_heads(args, nullptr);
  return {queries.download(), keys.download(), values.download()};
}

Bf16s head_of(const Problem& problem, std::int64_t token, std::int64_t head) {
  return row_of(problem.qkv, token * problem.num_heads() + head, problem.head_dim);
}

// A query or key head after its norm, where it has one, and RoPE.
std::vector<Range> turned_head(const Problem& problem, std::int64_t token, std::int64_t head) {
  const Bf16s row = head_of(problem, token, head);
  const bool is_query = head < problem.n_heads;
  std::vector<Range> x;
  if (is_query ? problem.has_query_norm : problem.has_key_norm) {
    x = reference_norm(row, is_query ? problem.query_norm : problem.key_norm,
                       static_cast<double>(kEps), problem.unit_offset);
  } else {
    for (const bf16 element : row) x.push_back(exactly(to_double(element)));
  }
  const auto half = static_cast<std::size_t>(problem.head_dim / 2);
  const std::int64_t position = problem.positions[static_cast<std::size_t>(token)];
  const float* angles = problem.cos_sin.data() + position * problem.head_dim;
  std::vector<Range> out(row.size());
  for (std::size_t i = 0; i < half; ++i) {
    const double cosine = static_cast<double>(angles[i]);
    const double sine = static_cast<double>(angles[half + i]);
    const Range low[2] = {x[i] * cosine, x[half + i] * -sine};
    const Range high[2] = {x[half + i] * cosine, x[i] * sine};
    const auto sum = [](const Range(&terms)[2]) {
      const double error = (magnitude(terms[0]) + magnitude(terms[1])) * 2 * 0x1p-24;
      return rounded_to_bf16(widened(terms[0] + terms[1], error));
    };
    out[i] = sum(low);
    out[half + i] = sum(high);
  }
  return out;
}

// The row of a pool that holds a KV head of a slot.
std::int64_t pool_row(const Problem& problem, std::int32_t slot, std::int64_t kv_head) {
  return (slot / problem.block_size * problem.n_kv_heads + kv_head) * problem.block_size +
         slot % problem.block_size;
}

void check_result(const Problem& problem, const Result& result) {
  RangeCheck check;
  const auto add = [&](const Bf16s& actual, const std::vector<Range>& expected) {
    for (std::size_t i = 0; i < actual.size(); ++i) check.add(actual[i], expected[i]);
  };
  Bf16s keys(result.keys.size(), bf16_nan());
  Bf16s values = keys;
  for (std::int64_t t = 0; t < problem.num_tokens; ++t) {
    for (std::int64_t h = 0; h < problem.n_heads; ++h) {
      add(row_of(result.queries, t * problem.n_heads + h, problem.head_dim),
          turned_head(problem, t, h));
    }
    const std::int32_t slot = problem.slots[static_cast<std::size_t>(t)];
    for (std::int64_t h = 0; slot >= 0 && h < problem.n_kv_heads; ++h) {
      const std::int64_t row = pool_row(problem, slot, h);
      const Bf16s key = row_of(result.keys, row, problem.head_dim);
      add(key, turned_head(problem, t, problem.n_heads + h));
      set_row(keys, row, key);
      set_row(values, row, head_of(problem, t, problem.n_heads + problem.n_kv_heads + h));
    }
  }
  CHECK(check.first_outside() == -1);
  CHECK(check.exact_share() > 0.95);
  // Values are copies; and no row of the pools but these was written.
  CHECK(first_difference(result.values, values) == -1);
  CHECK(first_difference(result.keys, keys) == -1);
  for (std::int64_t h = 0; h < problem.n_heads; ++h) {
    CHECK(first_difference(
              row_of(result.queries, problem.num_tokens * problem.n_heads + h, problem.head_dim),
              Bf16s(static_cast<std::size_t>(problem.head_dim), bf16_nan())) == -1);
  }
}

}  // namespace

TEST_CASE("heads of known contents are turned by known angles", "[gpu_heads]") {
  Problem problem;
  problem.num_tokens = 2;
  problem.num_blocks = 1;
  problem.positions = {1, 0};
  problem.slots = {3, -1};
  // Position 0 turns by nothing, position 1 by a quarter: (a, b) becomes (-b, a).
  problem.cos_sin.assign(128, 0.0f);
  for (std::size_t i = 0; i < 32; ++i) problem.cos_sin[i] = problem.cos_sin[96 + i] = 1.0f;
  for (int i = 0; i < 2 * 3 * 64; ++i) problem.qkv.push_back(to_bf16(i % 256 + 1));
  const Result result = run(problem);
  for (std::size_t i = 0; i < 32; ++i) {
    const auto x = static_cast<double>(i);
    CHECK(to_double(result.queries[i]) == -(x + 33));
    CHECK(to_double(result.queries[32 + i]) == x + 1);
    CHECK(to_double(result.queries[64 + i]) == x + 193);  // token 1, element 192 of qkv
    CHECK(to_double(result.queries[96 + i]) == x + 225);
    CHECK(to_double(result.keys[3 * 64 + i]) == -(x + 97));
    CHECK(to_double(result.keys[3 * 64 + 32 + i]) == x + 65);
    CHECK(to_double(result.values[3 * 64 + i]) == x + 129);
    CHECK(to_double(result.values[3 * 64 + 32 + i]) == x + 161);
  }
  for (std::size_t i = 0; i < result.keys.size(); ++i) {
    CHECK(std::isnan(to_double(result.keys[i])) == (i / 64 != 3));
    CHECK(std::isnan(to_double(result.values[i])) == (i / 64 != 3));
  }
}

TEST_CASE("heads of every shape are as defined", "[gpu_heads]") {
  const std::uint64_t seed = GENERATE(as<std::uint64_t>{}, 1, 2, 3);
  Rng rng(seed, "gpu_heads");
  for (const std::int32_t head_dim : {64, 128, 256}) {
    for (const std::int32_t block_size : {1, 16, 33}) {
      for (int kind = 0; kind < 6; ++kind) {
        Problem problem;
        problem.head_dim = head_dim;
        problem.block_size = block_size;
        problem.n_kv_heads = draw(rng, 1, 8);
        problem.n_heads = problem.n_kv_heads * draw(rng, 1, 5);
        problem.num_tokens = draw(rng, 1, 4);
        problem.num_blocks = 4;
        problem.has_query_norm = kind == 1 || kind >= 3;
        problem.has_key_norm = kind >= 2;
        problem.unit_offset = kind == 5;
        draw_contents(rng, problem);
        INFO("seed " << seed << " head_dim " << head_dim << " block_size " << block_size << " kind "
                     << kind << " n_heads " << problem.n_heads << " n_kv_heads "
                     << problem.n_kv_heads << " tokens " << problem.num_tokens);
        check_result(problem, run(problem));
      }
    }
  }
}

TEST_CASE("more heads than a thread block holds", "[gpu_heads]") {
  Rng rng(4, "gpu_heads");
  for (const std::int32_t head_dim : {64, 128, 256}) {
    Problem problem;
    problem.head_dim = head_dim;
    problem.n_kv_heads = 3;
    problem.n_heads = 129;
    problem.num_tokens = 2;
    problem.has_query_norm = true;
    problem.has_key_norm = true;
    draw_contents(rng, problem);
    problem.slots = {7, 40};
    INFO("head_dim " << head_dim);
    check_result(problem, run(problem));
  }
}

TEST_CASE("a token's heads have the same bits alone and among forty", "[gpu_heads]") {
  Rng rng(5, "gpu_heads");
  for (const std::int32_t head_dim : {64, 128, 256}) {
    Problem crowd;
    crowd.head_dim = head_dim;
    crowd.n_heads = 6;
    crowd.n_kv_heads = 3;
    crowd.num_tokens = 40;
    crowd.has_query_norm = true;
    crowd.has_key_norm = true;
    draw_contents(rng, crowd);
    const std::int64_t token = draw(rng, 0, 39);
    const auto place = static_cast<std::size_t>(token);
    crowd.slots[place] = 17;
    for (std::size_t t = 0; t < crowd.slots.size(); ++t) {
      if (t != place && crowd.slots[t] == 17) crowd.slots[t] = -1;
    }
    const std::int64_t row_length = crowd.num_heads() * head_dim;
    const Bf16s row = row_of(crowd.qkv, token, row_length);
    // A neighbour's NaNs stay with it.
    for (bf16& x : crowd.qkv) x = chance(rng, 0.1) ? bf16_nan() : x;
    set_row(crowd.qkv, token, row);

    Problem alone = crowd;
    alone.num_tokens = 1;
    alone.qkv = row;
    alone.positions = {crowd.positions[place]};
    alone.slots = {2};
    const Result expected = run(alone);
    const Result result = run(crowd);
    INFO("head_dim " << head_dim << " token " << token);
    CHECK(first_difference(row_of(result.queries, token, crowd.n_heads * head_dim),
                           row_of(expected.queries, 0, crowd.n_heads * head_dim)) == -1);
    for (std::int64_t h = 0; h < crowd.n_kv_heads; ++h) {
      const std::int64_t there = pool_row(crowd, 17, h);
      const std::int64_t here = pool_row(crowd, 2, h);
      CHECK(first_difference(row_of(result.keys, there, head_dim),
                             row_of(expected.keys, here, head_dim)) == -1);
      CHECK(first_difference(row_of(result.values, there, head_dim),
                             row_of(expected.values, here, head_dim)) == -1);
    }
  }
}

TEST_CASE("a slot more than 2^31 elements into the cache", "[gpu_heads]") {
  Rng rng(6, "gpu_heads");
  Problem problem;
  problem.head_dim = 256;
  problem.n_kv_heads = 8;
  problem.n_heads = 8;
  problem.num_tokens = 1;
  draw_contents(rng, problem);
  problem.slots = {5};
  const Result expected = run(problem);

  // The same pools, as if they began 2^32 elements before their memory.
  const std::int64_t elements_before = std::int64_t{1} << 32;
  const DeviceArray<bf16> qkv = on_device(problem.qkv);
  const DeviceArray<float> cos_sin = on_device(problem.cos_sin);
  const DeviceArray<std::int32_t> positions = on_device(problem.positions);
  const DeviceArray<std::int32_t> slots = on_device(
      std::vector<std::int32_t>{static_cast<std::int32_t>(elements_before / (8 * 256)) + 5});
  const DeviceArray<bf16> queries(8 * 256);
  const DeviceArray<bf16> keys =
      on_device(Bf16s(static_cast<std::size_t>(problem.pool_size()), bf16_nan()));
  const DeviceArray<bf16> values =
      on_device(Bf16s(static_cast<std::size_t>(problem.pool_size()), bf16_nan()));
  const auto begun_before = [&](const DeviceArray<bf16>& pool) {
    return reinterpret_cast<bf16*>(reinterpret_cast<std::uintptr_t>(pool.data()) -
                                   static_cast<std::uintptr_t>(elements_before) * sizeof(bf16));
  };
  HeadsArgs args = shape_args(problem);
  args.qkv = qkv.data();
  args.cos_sin = cos_sin.data();
  args.positions = positions.data();
  args.slots = slots.data();
  args.queries = queries.data();
  args.keys = begun_before(keys);
  args.values = begun_before(values);
  launch_heads(args, nullptr);
  CHECK(first_difference(keys.download(), expected.keys) == -1);
  CHECK(first_difference(values.download(), expected.values) == -1);
}

TEST_CASE("no tokens, and heads of a size there is no kernel for", "[gpu_heads]") {
  HeadsArgs args;
  args.n_heads = 2;
  args.n_kv_heads = 1;
  args.block_size = 16;
  args.head_dim = 128;
  CHECK_NOTHROW(launch_heads(args, nullptr));
  args.head_dim = 96;
  CHECK_THROWS_AS(launch_heads(args, nullptr), CudaError);
}

}  // namespace TEST_FILE
