// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/product_curve.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/error.h"
#include "core/base/math.h"

namespace metronome {
namespace {

constexpr double kMicros = 1e6;
constexpr double kLaunchUs = 3;

// A measured size and its share in the interpolation.
struct Weighted {
  double size;
  double weight;
};

// The measured sizes around `value`; the nearest one outside.
std::vector<Weighted> around(const std::vector<double>& sizes, double value) {
  const auto above = std::lower_bound(sizes.begin(), sizes.end(), value);
  if (above == sizes.end()) return {{sizes.back(), 1}};
  if (above == sizes.begin() || *above == value) return {{*above, 1}};
  const double low = *(above - 1);
  const double share = log_of(value / low) / log_of(*above / low);
  return {{low, 1 - share}, {*above, share}};
}

struct Corner {
  double n;
  double k;
  double weight;
  const Curve* us;
};

double distance(double a, double b) { return std::abs(log_of(a / b)); }

std::vector<Corner> corners_of(const ProductTable& table, double n, double k) {
  std::vector<double> ns;
  std::vector<double> ks;
  for (const auto& [shape, ignored] : table.by_shape) {
    ns.push_back(shape.first);
    ks.push_back(shape.second);
  }
  for (std::vector<double>* sizes : {&ns, &ks}) {
    std::sort(sizes->begin(), sizes->end());
    sizes->erase(std::unique(sizes->begin(), sizes->end()), sizes->end());
  }
  std::vector<Corner> corners;
  for (const Weighted& of_n : around(ns, n)) {
    for (const Weighted& of_k : around(ks, k)) {
      const auto found = table.by_shape.find({of_n.size, of_k.size});
      if (found == table.by_shape.end()) continue;
      corners.push_back({of_n.size, of_k.size, of_n.weight * of_k.weight, &found->second});
    }
  }
  if (!corners.empty()) return corners;
  const auto nearest = std::min_element(
      table.by_shape.begin(), table.by_shape.end(), [&](const auto& a, const auto& b) {
        return distance(a.first.first, n) + distance(a.first.second, k) <
               distance(b.first.first, n) + distance(b.first.second, k);
      });
  return {{nearest->first.first, nearest->first.second, 1, &nearest->second}};
}

// Unlike Curve::at, the last time holds beyond the last point.
double held_at(const Curve& curve, double x) {
  bool ignored = false;
  return curve.at(std::min(x, curve.x.back()), ignored);
}

}  // namespace

double ProductPeaks::least_us(double m, double n, double k) const {
  const double bytes = weight_bytes * n * k + input_bytes * m * k + 2 * m * n;
  return kMicros * std::max(2 * m * n * k / flops, bytes / bandwidth);
}

ProductPeaks peaks_of(std::string_view dtype, const OperatorMeta& meta) {
  ProductPeaks peaks{meta.bfloat16_flops, meta.memory_bandwidth, 2, 2};
  if (dtype == "fp8" || dtype == "fp8_block") {
    peaks = {meta.fp8_flops, meta.memory_bandwidth, 1, 1};
  } else if (dtype == "nvfp4") {  // half a byte, and a byte for each 16
    peaks = {meta.fp4_flops, meta.memory_bandwidth, 0.5625, 0.5625};
  } else if (dtype == "int4_wo") {
    peaks.weight_bytes = 0.5;
  }
  return peaks;
}

Curve product_curve(const ProductTable& table, const ProductPeaks& peaks, double n, double k,
                    std::size_t& num_clamped) {
  METRONOME_CHECK(!table.by_shape.empty(), "a table has products");
  const std::vector<Corner> corners = corners_of(table, n, k);
  const Corner& nearest =
      *std::max_element(corners.begin(), corners.end(),
                        [](const Corner& a, const Corner& b) { return a.weight < b.weight; });
  Curve curve;
  for (const double m : nearest.us->x) {
    double sum = 0;
    double weights = 0;
    for (const Corner& corner : corners) {
      const double least_us = peaks.least_us(m, corner.n, corner.k);
      double us = held_at(*corner.us, m);
      if (us < least_us) {
        us = least_us;
        ++num_clamped;
      }
      sum += corner.weight * log_of(us / (least_us + kLaunchUs));
      weights += corner.weight;
    }
    curve.x.push_back(m);
    curve.us.push_back(exp_of(sum / weights) * (peaks.least_us(m, n, k) + kLaunchUs));
  }
  return curve;
}

Curve quantize_curve(const QuantizeTable& table, double k, const Curve& like) {
  METRONOME_CHECK(!table.by_width.empty(), "a table has widths");
  Curve curve;
  for (const double m : like.x) {
    Curve by_width;
    for (const auto& [width, us] : table.by_width) {
      by_width.x.push_back(width);
      by_width.us.push_back(held_at(us, m));
    }
    curve.x.push_back(m);
    curve.us.push_back(held_at(by_width, k));
  }
  return curve;
}

}  // namespace metronome
