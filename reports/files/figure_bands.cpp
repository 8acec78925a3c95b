// SPDX-License-Identifier: Apache-2.0
#include "reports/files/figure_bands.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <limits>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/number_text.h"
#include "core/metrics/figures.h"

namespace metronome {

const FigureBand* FigureBands::find(std::string_view key) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const FigureBand& band) { return band.key == key; });
  return found == figures.end() ? nullptr : &*found;
}

std::string FigureBands::source() const {
  if (!step_scale) return "of " + count_text(num_seeds, "noise seed");
  if (step_scale->low == step_scale->high) return "of " + count_text(num_seeds, "seed");
  return fmt::format(
      "of {}, and of steps that take {:.2f} and {:.2f} times as long, with TTFT by "
      "its own errors",
      count_text(num_seeds, "seed"), step_scale->low, step_scale->high);
}

namespace {

// In a sentence: "p99 TTFT".
std::string name_of(const Figure& figure) {
  if (!figure.shown.words.empty()) return figure.shown.words;
  return figure.shown.name.empty() ? figure.key : figure.name_elsewhere();
}

}  // namespace

std::vector<std::string> FigureBands::steep_lines() const {
  std::vector<std::string> lines;
  for (const FigureBand& one : steep) {
    const Figure& known = figure(one.key);
    const auto number = [&known](double value) {
      return grouped_text(value * known.shown.scale, known.shown.decimals);
    };
    lines.push_back(fmt::format(
        "{} is steep: {} to {} as steps take {:.2f} to {:.2f} times as long", name_of(known),
        number(one.low), number(one.high), step_scale->low, step_scale->high));
  }
  return lines;
}

FigureBands figure_bands(std::span<const Summary> draws) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  FigureBands bands;
  bands.num_seeds = std::ssize(draws);
  for (const Figure& figure : all_figures()) {
    if (!figure.has_band || draws.empty()) continue;
    // Without limits, all draws lack a goodput.
    if (figure.value(draws.front(), {}).kind == FigureValue::Kind::Null) continue;
    FigureBand band{figure.key, kNone, kNone};
    for (const Summary& draw : draws) {
      const double value = figure.value(draw, {}).as_number();
      band.low = std::fmin(band.low, value);  // ignores NaN
      band.high = std::fmax(band.high, value);
    }
    bands.figures.push_back(std::move(band));
  }
  return bands;
}

std::vector<FigureBand> steep_figures(const Summary& fast, const Summary& slow,
                                      const FigureBand& step_scale) {
  const double steps = step_scale.high / step_scale.low;
  const double most = steps * steps * steps;
  std::vector<FigureBand> steep;
  for (const Figure& figure : all_figures()) {
    if (!figure.has_band) continue;
    const double low = figure.value(fast, {}).as_number();
    const double high = figure.value(slow, {}).as_number();
    if (!(low > 0) || !(high > 0)) continue;
    if (std::max(low / high, high / low) > most) steep.push_back({figure.key, low, high});
  }
  return steep;
}

}  // namespace metronome
