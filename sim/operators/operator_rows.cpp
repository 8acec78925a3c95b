// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/operator_rows.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {
namespace {

constexpr double kSmallTokens = 16;
constexpr double kSmallWeights = 1024. * 1024;
constexpr double kFalls = 0.9;        // of the point before
constexpr double kMuchFaster = 0.85;  // of the same cell with fewer heads
constexpr double kOutlier = 1.5;      // times the neighbours that should take longer

}  // namespace

void keep_least(double x, double us, Curve& curve) {
  const auto at = std::lower_bound(curve.x.begin(), curve.x.end(), x);
  const auto place = curve.us.begin() + (at - curve.x.begin());
  if (at != curve.x.end() && *at == x) {
    *place = std::min(*place, us);
  } else {
    curve.x.insert(at, x);
    curve.us.insert(place, us);
  }
}

double smallest_products_us(const ProductTable& table) {
  std::vector<double> times;
  for (const auto& [shape, curve] : table.by_shape) {
    if (shape.first * shape.second > kSmallWeights) continue;
    for (std::size_t i = 0; i < curve.x.size() && curve.x[i] <= kSmallTokens; ++i) {
      times.push_back(curve.us[i]);
    }
  }
  if (times.empty()) return 0;
  std::sort(times.begin(), times.end());
  const std::size_t middle = times.size() / 2;
  return times.size() % 2 == 1 ? times[middle] : (times[middle - 1] + times[middle]) / 2;
}

double falling_share(const Curve& curve) {
  if (curve.us.size() < 2) return 0;
  double num_falls = 0;
  for (std::size_t i = 1; i < curve.us.size(); ++i) {
    if (curve.us[i] < kFalls * curve.us[i - 1]) num_falls += 1;
  }
  return num_falls / static_cast<double>(curve.us.size() - 1);
}

void lower_to_later(Curve& curve) {
  for (std::size_t i = curve.us.size(); i > 1; --i) {
    curve.us[i - 2] = std::min(curve.us[i - 2], curve.us[i - 1]);
  }
}

std::size_t raise_to_earlier(Curve& curve) {
  std::size_t num_raised = 0;
  for (std::size_t i = 1; i < curve.us.size(); ++i) {
    if (curve.us[i] >= curve.us[i - 1]) continue;
    curve.us[i] = curve.us[i - 1];
    ++num_raised;
  }
  return num_raised;
}

Grid grid_of(const Cells& cells, bool is_square) {
  METRONOME_CHECK(!cells.empty(), "a grid has cells");
  Grid grid;
  for (const auto& [place, us] : cells) {
    grid.rows.push_back(place.first);
    grid.columns.push_back(place.second);
  }
  for (std::vector<double>* axis : {&grid.rows, &grid.columns}) {
    std::sort(axis->begin(), axis->end());
    axis->erase(std::unique(axis->begin(), axis->end()), axis->end());
  }
  const std::size_t width = grid.columns.size();
  for (std::size_t i = 0; i < grid.rows.size(); ++i) {
    for (std::size_t k = 0; k < width; ++k) {
      const auto found = cells.find({grid.rows[i], grid.columns[k]});
      double us = 0;
      if (found != cells.end()) {
        us = found->second;
      } else if (i > 0) {
        us = grid.cell(i - 1, k) * grid.rows[i] / grid.rows[i - 1];
      } else if (k > 0) {
        const double ratio = grid.columns[k] / grid.columns[k - 1];
        us = grid.us.back() * (is_square ? ratio * ratio : ratio);
      } else {
        us = cells.begin()->second;
      }
      grid.us.push_back(us);
    }
  }
  return grid;
}

std::size_t lower_outliers(Grid& grid) {
  const std::size_t width = grid.columns.size();
  std::size_t num_lowered = 0;
  for (std::size_t i = grid.us.size(); i-- > 0;) {
    if (i + width >= grid.us.size() || (i + 1) % width == 0) continue;
    const double later = std::max(grid.us[i + width], grid.us[i + 1]);
    if (grid.us[i] <= kOutlier * later) continue;
    grid.us[i] = later;
    num_lowered += 1;
  }
  return num_lowered;
}

void raise_to_earlier(Grid& grid) {
  const std::size_t width = grid.columns.size();
  for (std::size_t i = 0; i < grid.us.size(); ++i) {
    if (i >= width) grid.us[i] = std::max(grid.us[i], grid.us[i - width]);
    if (i % width > 0) grid.us[i] = std::max(grid.us[i], grid.us[i - 1]);
  }
}

double lower_to_more_heads(Grid& grid, const std::vector<Grid>& doubled) {
  double largest_share = 0;
  for (const Grid& other : doubled) {
    double num_faster = 0;
    std::size_t cell = 0;
    for (const double row : grid.rows) {
      for (const double column : grid.columns) {
        bool ignored = false;
        const double us = other.at(row, column, ignored);
        if (us < kMuchFaster * grid.us[cell]) num_faster += 1;
        grid.us[cell] = std::min(grid.us[cell], us);
        ++cell;
      }
    }
    largest_share = std::max(largest_share, num_faster / static_cast<double>(grid.us.size()));
  }
  return largest_share;
}

}  // namespace metronome
