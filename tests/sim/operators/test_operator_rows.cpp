// SPDX-License-Identifier: Apache-2.0
// The rules for odd rows: hand-computed answers.
#include "sim/operators/operator_rows.h"
#include "tests/catch.h"

namespace metronome::TEST_FILE {
namespace {

TEST_CASE("times of launches are told from times of kernels", "[operators]") {
  ProductTable table;
  // Of weights up to 2^20 elements and 16 tokens: 4, 5, 6 and 60 us.
  table.by_shape[{1024, 1024}] = {{1, 16, 32}, {4, 60, 99}};
  table.by_shape[{128, 128}] = {{1, 8}, {5, 6}};
  table.by_shape[{2048, 1024}] = {{1}, {99}};
  CHECK(smallest_products_us(table) == 5.5);
  CHECK_FALSE(is_host_bound(table));
  table.by_shape[{1024, 1024}].us = {61, 62, 63};
  table.by_shape[{128, 128}].us = {60, 63};
  CHECK(smallest_products_us(table) == 61.5);
  CHECK(is_host_bound(table));
  CHECK(smallest_products_us({}) == 0);
}

TEST_CASE("more tokens never take less time", "[operators]") {
  Curve curve{{1, 2, 3, 4}, {10, 20, 12, 15}};
  CHECK(falling_share(curve) == Approx(1. / 3));
  lower_to_later(curve);
  CHECK(curve.us == std::vector<double>{10, 12, 12, 15});
  CHECK(falling_share(curve) == 0);
}

TEST_CASE("more bytes never take less time", "[operators]") {
  Curve curve{{1, 2, 3, 4}, {10, 20, 12, 25}};
  CHECK(raise_to_earlier(curve) == 1);
  CHECK(curve.us == std::vector<double>{10, 20, 20, 25});
}

TEST_CASE("missing cells follow those around them", "[operators]") {
  const Cells cells = {{{1, 10}, 2}, {{2, 10}, 3}, {{2, 20}, 5}, {{8, 20}, 30}};
  const Grid grid = grid_of(cells, false);
  CHECK(grid.rows == std::vector<double>{1, 2, 8});
  CHECK(grid.columns == std::vector<double>{10, 20});
  // (1, 20) is (1, 10) times 20 / 10; (8, 10) is (2, 10) times 8 / 2.
  CHECK(grid.us == std::vector<double>{2, 4, 3, 5, 12, 30});
  CHECK(grid_of(cells, true).us == std::vector<double>{2, 8, 3, 5, 12, 30});
}

TEST_CASE("no cell takes less than a smaller one", "[operators]") {
  Grid grid{{1, 2}, {10, 20, 30}, {5, 4, 6, 3, 7, 2}};
  raise_to_earlier(grid);
  CHECK(grid.us == std::vector<double>{5, 5, 6, 5, 7, 7});
}

TEST_CASE("a cell far above both neighbours was disturbed", "[operators]") {
  Grid grid{{1, 2, 4}, {10, 20, 30}, {5, 900, 7, 6, 8, 9, 10, 12, 70}};
  CHECK(lower_outliers(grid) == 1);
  CHECK(grid.us == std::vector<double>{5, 8, 7, 6, 8, 9, 10, 12, 70});
  // A short time among long ones lowers none of these; half as long again is no outlier.
  Grid dip{{1, 2}, {10, 20, 30}, {10, 15, 18, 11, 4, 20}};
  CHECK(lower_outliers(dip) == 0);
  Grid edge{{1, 2}, {10, 20}, {15, 10, 10, 12}};
  CHECK(lower_outliers(edge) == 0);
}

TEST_CASE("half of the heads take no longer than all", "[operators]") {
  Grid grid{{1, 2}, {10, 20}, {5, 10, 15, 20}};
  const Grid doubled{{1, 2}, {10, 20}, {6, 8, 14, 30}};
  // Only 10 is more than 15 % above its cell with all heads.
  CHECK(lower_to_more_heads(grid, {doubled}) == 0.25);
  CHECK(grid.us == std::vector<double>{5, 8, 14, 20});
  CHECK(lower_to_more_heads(grid, {}) == 0);
}

}  // namespace
}  // namespace metronome::TEST_FILE
