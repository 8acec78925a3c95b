// SPDX-License-Identifier: Apache-2.0
// Which of several runs gives its tokens most steadily, by the ITL of each.
//
// The p99 leaves out one gap in a hundred. Where a run has few gaps and huge ones, it does not see
// them: a prompt computed in two steps of six seconds has a lower p99 than in sixteen steps of 0.8.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/distribution.h"

namespace metronome {

// Figures within this share of each other tell nothing.
constexpr double kSameShare = 0.01;
bool is_same_figure(double a, double b);

// Whether fewer than 1 % of the gaps hold most of the stalled time: what gaps are longer than their
// median. It is certain where the percentiles leave less than half of that time for the other gaps.
bool hides_stalls(const Distribution& itl);

enum class SteadyBy : std::uint8_t { P99, Longest };
std::string_view to_string(SteadyBy by);  // "p99 ITL", "longest gap"

// The p99, or the longest gap where the p99 of one of the runs hides its stalls.
SteadyBy steady_by(std::span<const Distribution> itls);

// The lower, the steadier.
double steady_figure_ms(const Distribution& itl, SteadyBy by);

// The first of those whose figure is the same as the lowest; 0 if no run has one.
std::size_t steadiest(std::span<const double> figures_ms);

// For each figure, whether it is the best to kSameShare. NaN is none.
std::vector<char> leaders(std::span<const double> figures, bool is_higher_better);
// The leaders that a table marks: none if all figures are the best.
std::vector<char> marked_leaders(std::span<const double> figures, bool is_higher_better);
// The marked leaders of p99 ITLs: the lowest is no best where the longest gap of its run is longer
// than that of others.
std::vector<char> marked_p99_itls(std::span<const double> p99_ms, std::span<const double> max_ms);

}  // namespace metronome
