// SPDX-License-Identifier: Apache-2.0
// The bytes as a page of metrics: it is read or refused, and its histograms have their order.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/base/error.h"
#include "engines/metrics/server_metrics.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace metronome;
  std::string why;
  const auto metrics = read_server_metrics({reinterpret_cast<const char*>(data), size}, why);
  if (!metrics) {
    METRONOME_CHECK(!why.empty(), "a refusal has a reason");
    return 0;
  }
  const EngineFigures all = all_engines_together(metrics->engines);
  for (const BucketCounts& counts : all.histograms) {
    METRONOME_CHECK(counts.bounds.size() == counts.counts.size(), "each bucket has a bound");
    for (std::size_t i = 1; i < counts.counts.size(); ++i) {
      METRONOME_CHECK(counts.bounds[i] > counts.bounds[i - 1], "bounds ascend");
      METRONOME_CHECK(counts.counts[i] >= counts.counts[i - 1], "counts never fall");
    }
    const auto band = quantile_band(counts, 0.99);
    METRONOME_CHECK(!band || (band->least <= band->estimate && band->estimate <= band->most),
                    "an estimate is between its bounds");
  }
  for (const auto& [rank, engine] : metrics->engines) {
    METRONOME_CHECK(figures_since(engine, engine).has_value(), "nothing falls");
  }
  return 0;
}
