// SPDX-License-Identifier: Apache-2.0
#include "core/metrics/steadiness.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace metronome {

bool is_same_figure(double a, double b) {
  return std::abs(a - b) <= kSameShare * std::max(std::abs(a), std::abs(b));
}

bool hides_stalls(const Distribution& itl) {
  constexpr double kNothing = 0.001;  // of the time: what remains of rounding
  // Per gap. Gaps between two percentiles are at most as long as the upper one.
  const double stalled_ms = itl.mean_ms - itl.p50_ms;
  const double seen_ms = 0.4 * (itl.p90_ms - itl.p50_ms) + 0.05 * (itl.p95_ms - itl.p50_ms) +
                         0.04 * (itl.p99_ms - itl.p50_ms);
  return stalled_ms > kNothing * itl.mean_ms && stalled_ms > 2 * seen_ms;
}

std::string_view to_string(SteadyBy by) {
  return by == SteadyBy::Longest ? "longest gap" : "p99 ITL";
}

SteadyBy steady_by(std::span<const Distribution> itls) {
  return std::any_of(itls.begin(), itls.end(), hides_stalls) ? SteadyBy::Longest : SteadyBy::P99;
}

double steady_figure_ms(const Distribution& itl, SteadyBy by) {
  return by == SteadyBy::Longest ? itl.max_ms : itl.p99_ms;
}

std::size_t steadiest(std::span<const double> figures_ms) {
  double least = std::numeric_limits<double>::infinity();
  for (const double figure : figures_ms) least = std::fmin(least, figure);
  const auto found = std::find_if(figures_ms.begin(), figures_ms.end(), [least](double figure) {
    return figure <= least || is_same_figure(figure, least);
  });
  return found == figures_ms.end() ? 0 : static_cast<std::size_t>(found - figures_ms.begin());
}

std::vector<char> leaders(std::span<const double> figures, bool is_higher_better) {
  double best = std::numeric_limits<double>::quiet_NaN();
  for (const double figure : figures) {
    best = is_higher_better ? std::fmax(best, figure) : std::fmin(best, figure);
  }
  std::vector<char> leads;
  for (const double figure : figures) leads.push_back(is_same_figure(figure, best) ? 1 : 0);
  return leads;
}

std::vector<char> marked_leaders(std::span<const double> figures, bool is_higher_better) {
  std::vector<char> leads = leaders(figures, is_higher_better);
  if (std::count(leads.begin(), leads.end(), 0) == 0) leads.assign(leads.size(), 0);
  return leads;
}

std::vector<char> marked_p99_itls(std::span<const double> p99_ms, std::span<const double> max_ms) {
  std::vector<char> leads = marked_leaders(p99_ms, false);
  const std::vector<char> shortest = leaders(max_ms, false);
  for (std::size_t i = 0; i < leads.size(); ++i) leads[i] = leads[i] != 0 && shortest[i] != 0;
  return leads;
}

}  // namespace metronome
