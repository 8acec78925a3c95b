// SPDX-License-Identifier: Apache-2.0
#include "sim/operators/latent_times.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "core/base/math.h"
#include "core/base/number_text.h"
#include "core/base/real.h"
#include "sim/operators/operator_rows.h"

namespace metronome {
namespace {

constexpr double kSlow = 2;

// (heads, sequences, length): least time.
using Places = std::map<std::tuple<std::int64_t, double, double>, double>;

Places places_of(const std::vector<AttentionCells>& all, const TableOrigin& origin,
                 const std::string& kv_dtype) {
  Places places;
  for (const AttentionCells& cells : all) {
    if (cells.origin != origin || cells.kv_dtype != kv_dtype) continue;
    for (const auto& [place, us] : cells.us) {
      keep_least(us, places[{cells.heads, place.first, place.second}]);
    }
  }
  return places;
}

// The ratio of total times over the cells that both have: long ones count most. 0 if none.
double total_ratio(const Places& a, const Places& b) {
  double of_a = 0;
  double of_b = 0;
  for (const auto& [place, us] : a) {
    const auto other = b.find(place);
    if (other == b.end()) continue;
    of_a += us;
    of_b += other->second;
  }
  return of_b > 0 ? of_a / of_b : 0;
}

// The fastest of an origin's products on one side, by tokens.
Curve fastest(const std::vector<LatentProducts>& all, const TableOrigin& origin, bool is_entry,
              std::int64_t heads, bool allows_fp8) {
  Curve least;
  for (const LatentProducts& products : all) {
    const bool fits = products.origin == origin && products.is_entry == is_entry &&
                      products.heads == heads &&
                      (products.dtype == "bfloat16" || (allows_fp8 && products.dtype == "fp8"));
    if (!fits) continue;
    for (std::size_t i = 0; i < products.us.x.size(); ++i) {
      keep_least(products.us.x[i], products.us.us[i], least);
    }
  }
  return least;
}

}  // namespace

std::vector<AttentionCells> without_slow_origins(const std::vector<AttentionCells>& all,
                                                 const std::string& kv_dtype,
                                                 const std::string& name,
                                                 std::vector<std::string>& remarks) {
  std::map<std::string, Places> places;  // by origin
  for (const AttentionCells& cells : all) {
    const auto [found, is_new] = places.try_emplace(cells.origin.text());
    if (is_new) found->second = places_of(all, cells.origin, kv_dtype);
  }
  std::set<std::string> slow;
  for (const auto& [origin, times] : places) {
    double worst = 0;
    for (const auto& [_, others] : places) worst = std::max(worst, total_ratio(times, others));
    if (worst <= kSlow) continue;
    slow.insert(origin);
    remarks.push_back(name + ": not those of " + origin + ", which take " + fixed_text(worst, 1) +
                      " times as long as others");
  }
  std::vector<AttentionCells> kept;
  for (const AttentionCells& cells : all) {
    const bool is_slow = cells.kv_dtype == kv_dtype && slow.contains(cells.origin.text());
    if (!is_slow) kept.push_back(cells);
  }
  return kept;
}

Curve latent_products(const OperatorTables& tables, std::int64_t heads, WeightFormat format,
                      std::vector<std::string>& remarks) {
  const std::vector<LatentProducts>& all = tables.latent_products;
  if (all.empty()) return {};
  const TableOrigin& origin = all.front().origin;  // the engine's own come first
  std::int64_t nearest = 0;
  const auto distance = [heads](std::int64_t other) {
    return std::abs(log_of(real(other) / real(heads)));
  };
  for (const LatentProducts& products : all) {
    if (products.origin != origin) continue;
    if (nearest == 0 || distance(products.heads) < distance(nearest)) nearest = products.heads;
  }
  const bool allows_fp8 = format == WeightFormat::Fp8 || format == WeightFormat::Fp8Block;
  const Curve entry = fastest(all, origin, true, nearest, allows_fp8);
  const Curve exit = fastest(all, origin, false, nearest, allows_fp8);
  if (entry.empty() || exit.empty()) return {};
  if (origin.engine != tables.meta.engine) {
    remarks.push_back("products into and out of the latent space: of " + origin.text());
  }
  const double scale = real(heads) / real(nearest);
  if (nearest != heads) {
    remarks.push_back(
        fmt::format("products into and out of the latent space: {} heads are {} heads times {}",
                    heads, nearest, fixed_text(scale, 2)));
  }
  const WeightedCurve terms[] = {{&entry, scale}, {&exit, scale}};
  Curve both = sum_of_measured(terms);
  lower_to_later(both);
  return both;
}

}  // namespace metronome
