// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/packed_column.h"
#include "tests/catch.h"
#include "tests/draws.h"

namespace metronome::testing::TEST_FILE {
namespace {

void check_values(const PackedColumn& column, const std::vector<std::int64_t>& values) {
  REQUIRE(column.size() == values.size());
  bool are_equal = true;
  std::array<std::int64_t, PackedColumn::kBlock> block;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (i % PackedColumn::kBlock == 0) column.read_block(i / PackedColumn::kBlock, block);
    are_equal &= column[i] == values[i] && block[i % PackedColumn::kBlock] == values[i];
  }
  CHECK(are_equal);
}

}  // namespace

TEST_CASE("a packed column gives back every value", "[base][packed]") {
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed, "packed column");
    INFO("seed " << seed);
    const std::int32_t num_bits = draw(rng, 0, 62);
    const std::int64_t least = rng.uniform_int(-(std::int64_t{1} << 61), std::int64_t{1} << 61);
    const std::int64_t range = (std::int64_t{1} << num_bits) - 1;
    const std::int32_t size = draw(rng, 0, 700);
    PackedColumn column;
    std::vector<std::int64_t> values;
    for (std::int32_t i = 0; i < size; ++i) {
      const bool is_constant = i / 128 % 3 == 1;  // a block of one value between others
      values.push_back(is_constant ? least : least + rng.uniform_int(0, range));
      column.push_back(values.back());
    }
    check_values(column, values);
    const PackedColumn moved = std::move(column);
    check_values(moved, values);
  }
}

TEST_CASE("a packed column takes the smallest and the largest number", "[base][packed]") {
  PackedColumn column;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 300; ++i) {
    values.push_back(i % 3 == 0 ? INT64_MIN : i % 3 == 1 ? INT64_MAX : i);
    column.push_back(values.back());
  }
  check_values(column, values);
}

TEST_CASE("a column of one value takes no bits", "[base][packed]") {
  constexpr std::size_t kNumValues = 1 << 20;
  PackedColumn constant;
  PackedColumn counted;  // seven bits in each block
  for (std::size_t i = 0; i < kNumValues; ++i) {
    constant.push_back(-5);
    counted.push_back(static_cast<std::int64_t>(i));
  }
  CHECK(8 * constant.num_bytes() < 4 * kNumValues);
  CHECK(8 * counted.num_bytes() < 11 * kNumValues);
}

}  // namespace metronome::testing::TEST_FILE
