// SPDX-License-Identifier: Apache-2.0
// The HTML report's data of one run as compact JSON: columns of integers, of bounded size however
// long the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "core/base/distribution.h"
#include "core/base/types.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"

namespace metronome {

// Integers as text: base64 VLQ, as in source maps. Five bits per character, least significant
// first, the sign in the lowest bit.
class VlqText {
 public:
  void append(std::int64_t number);
  // Appends the difference to the previous number given to append_delta, initially 0.
  void append_delta(std::int64_t number) {
    append(number - last_);
    last_ = number;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::int64_t last_ = 0;
};

// Limits of the data that a report keeps of one run. Beyond a limit, neighbours share a bucket, and
// each bucket keeps the points with the minimum and maximum of each series.
struct ReportLimits {
  std::size_t max_gap_points = 200'000;  // of the ITL timeline
  std::size_t max_steps = 40'000;
  std::size_t max_requests = 2'000;        // of the request timeline
  std::size_t max_request_marks = 20'000;  // chunks and late gaps drawn into it
  std::size_t max_stalls = 40;
  std::size_t curve_divisor = 1;  // distribution_curve()
};

// Limits for each of `num_runs` runs in one report, so that the whole report stays readable.
ReportLimits report_limits(std::size_t num_runs);

// Limits for each of `num_runs` runs that are drawn only when a reader selects them: a sketch, so
// that some hundred of them stay below 3 MB.
ReportLimits sketch_limits(std::size_t num_runs);

// Positions in [0, size), in order: all of them, or at most `max_kept`, including every bucket's
// first minimum and first maximum of every series.
std::vector<std::size_t> keep_extremes(
    std::size_t size, std::size_t max_kept,
    std::span<const std::function<std::int64_t(std::size_t)>> series);

// Points of a sample's distribution, by value. The greatest 1,000 values are all included. Below
// them there are 100 points per factor of ten in the share of greater values, and 400 over the
// whole range. Each of these numbers is divided by `divisor` > 0.
struct CurvePoint {
  TimeNs value_ns = 0;
  std::int64_t num_below = 0;  // values <= value_ns

  bool operator==(const CurvePoint&) const = default;
};
std::vector<CurvePoint> distribution_curve(std::vector<WeightedTime> sample,
                                           std::size_t divisor = 1);

// The JSON object; times in it are microseconds unless a name says otherwise.
std::string report_detail(const RunRecord& record, const SloConfig& slo,
                          const ReportLimits& limits);

}  // namespace metronome
