// SPDX-License-Identifier: Apache-2.0
// Rules for measured operators whose times cannot be meant as they stand.
//
// Every rule says how much it changed, so that an import can say so.
#pragma once

#include <cstddef>
#include <vector>

#include "sim/cost/curve.h"
#include "sim/cost/grid.h"
#include "sim/operators/operator_tables.h"

namespace metronome {

// Of equal rows the least time counts; 0: none yet.
inline void keep_least(double us, double& least) {
  if (least == 0 || us < least) least = us;
}

// Adds a point of a curve, in its place.
void keep_least(double x, double us, Curve& curve);

// A weight of a million elements is read in a few microseconds. If products with such weights and
// up to 16 tokens take longer than this, eager launches were timed instead of kernels: Hopper's
// and Blackwell's tables have 4.3 to 6.3 us, or 61 to 180.
constexpr double kHostBoundUs = 25;

// The median of these products; 0 if none was measured.
double smallest_products_us(const ProductTable& table);
inline bool is_host_bound(const ProductTable& table) {
  return smallest_products_us(table) > kHostBoundUs;
}

// The share of adjacent points at which the time falls by more than a tenth.
double falling_share(const Curve& curve);

// A kernel can always be padded to more tokens: no point takes longer than a later one.
void lower_to_later(Curve& curve);

// Sizes at which a protocol changes: no point takes less than an earlier one. Returns how many did.
std::size_t raise_to_earlier(Curve& curve);

// A grid of cells, some of which may lack. A missing cell is the one with the next lower row, times
// the ratio of rows; in the first row, the one with the next lower column, times the ratio of
// columns, squared if `is_square`; the very first, the first that was measured. Requires cells.
Grid grid_of(const Cells& cells, bool is_square);

// A cell that takes more than half as long again as its neighbours in the next row and in the next
// column was disturbed: it takes as long as the longer of them. Returns how many did.
std::size_t lower_outliers(Grid& grid);

// No cell takes less than one in a lower row or column.
void raise_to_earlier(Grid& grid);

// Half of the heads cannot take longer than all of them. `doubled` has twice, four times, ... the
// heads. Returns the largest share of cells of a table that is more than 15 % faster.
double lower_to_more_heads(Grid& grid, const std::vector<Grid>& doubled);

}  // namespace metronome
