// SPDX-License-Identifier: Apache-2.0
#include "reports/files/noise_bands.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace metronome {
namespace {

constexpr std::pair<const char*, Distribution Summary::*> kBandMetrics[] = {
    {"ttft", &Summary::ttft},
    {"tpot", &Summary::tpot},
    {"itl", &Summary::itl},
    {"e2el", &Summary::e2el}};
constexpr std::pair<const char*, double Distribution::*> kBandStatistics[] = {
    {"mean_", &Distribution::mean_ms}, {"p50_", &Distribution::p50_ms},
    {"p90_", &Distribution::p90_ms},   {"p95_", &Distribution::p95_ms},
    {"p99_", &Distribution::p99_ms},   {"max_", &Distribution::max_ms}};
constexpr std::pair<const char*, double Summary::*> kRates[] = {
    {"request_throughput", &Summary::request_throughput},
    {"output_throughput", &Summary::output_throughput},
    {"total_token_throughput", &Summary::total_token_throughput}};
constexpr std::pair<const char*, std::optional<double> Summary::*> kGoodput[] = {
    {"request_goodput", &Summary::request_goodput}, {"slo_attainment", &Summary::slo_attainment}};

template <class Get>
FigureBand band_of(std::string key, std::span<const Summary> draws, Get get) {
  constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  FigureBand band{std::move(key), kNone, kNone};
  for (const Summary& draw : draws) {
    band.low = std::fmin(band.low, get(draw));  // ignores NaN
    band.high = std::fmax(band.high, get(draw));
  }
  return band;
}

}  // namespace

const FigureBand* NoiseBands::find(std::string_view key) const {
  const auto found = std::find_if(figures.begin(), figures.end(),
                                  [&](const FigureBand& band) { return band.key == key; });
  return found == figures.end() ? nullptr : &*found;
}

NoiseBands noise_bands(std::span<const Summary> draws) {
  NoiseBands bands;
  bands.num_seeds = std::ssize(draws);
  for (const auto& [metric, member] : kBandMetrics) {
    for (const auto& [statistic, field] : kBandStatistics) {
      bands.figures.push_back(band_of(
          std::string(statistic) + metric + "_ms", draws,
          [member = member, field = field](const Summary& draw) { return draw.*member.*field; }));
    }
  }
  bands.figures.push_back(
      band_of("duration", draws, [](const Summary& draw) { return to_seconds(draw.duration_ns); }));
  for (const auto& [key, rate] : kRates) {
    bands.figures.push_back(
        band_of(key, draws, [rate = rate](const Summary& draw) { return draw.*rate; }));
  }
  for (const auto& [key, rate] : kGoodput) {
    if (draws.empty() || !(draws.front().*rate)) continue;
    bands.figures.push_back(band_of(
        key, draws, [rate = rate](const Summary& draw) { return (draw.*rate).value_or(0); }));
  }
  return bands;
}

}  // namespace metronome
