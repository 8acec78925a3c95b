// SPDX-License-Identifier: Apache-2.0
#include "core/run/time_accuracy.h"

#include <algorithm>
#include <fmt/core.h>

#include "core/base/count_text.h"

namespace metronome {

std::string TimeAccuracy::text() const {
  const auto ends = [](const ErrorBand& band) {
    const int decimals = -0.1 < band.low && band.high < 0.1 ? 1 : 0;
    return fmt::format("{:+.{}f} to {:+.{}f} %", 100 * band.low, decimals, 100 * band.high,
                       decimals);
  };
  const std::string of = nearest.empty()
                             ? "twice the mean error of " + count_text(num_values, "held-out step")
                             : "nine in ten measured values; the nearest are " +
                                   count_text(num_values, "value") + " of " + nearest;
  return fmt::format("TPOT {}, TTFT {}: {}. Step times: {}; KV of {} bits", ends(tpot), ends(ttft),
                     of, step_times, kv_bits);
}

void add_accuracy(const TimeAccuracy& accuracy, std::vector<TimeAccuracy>& all) {
  const auto known = std::find_if(all.begin(), all.end(), [&](const TimeAccuracy& one) {
    return one.step_times == accuracy.step_times && one.kv_bits == accuracy.kv_bits &&
           one.nearest == accuracy.nearest;
  });
  if (known == all.end()) {
    all.push_back(accuracy);
    return;
  }
  const auto widen = [](ErrorBand& band, const ErrorBand& other) {
    band.low = std::min(band.low, other.low);
    band.high = std::max(band.high, other.high);
  };
  widen(known->tpot, accuracy.tpot);
  widen(known->ttft, accuracy.ttft);
  known->mean_tpot_error = std::max(known->mean_tpot_error, accuracy.mean_tpot_error);
}

}  // namespace metronome
