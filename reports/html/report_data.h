// What the HTML report draws of one run, as compact JSON: columns of integers, bounded in size
// however long the run was.
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
#include "core/scenario/scenario.h"

namespace metronome {

// Integers as text: base64 VLQ, the form of source maps. Five bits a character, least significant
// first, the sign in the lowest bit.
class VlqText {
 public:
  void append(std::int64_t number);
  // The difference to the number that was given to append_delta before, 0 at first.
  void append_delta(std::int64_t number) {
    append(number - last_);
    last_ = number;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  std::int64_t last_ = 0;
};

// How much of one run a report keeps. Where there is more, neighbours share a bucket, of which
// those with the least and the greatest value of each series stay.
struct ReportLimits {
  std::size_t max_gap_points = 200'000;  // of the ITL timeline
  std::size_t max_steps = 40'000;
  std::size_t max_requests = 2'000;        // of the request timeline
  std::size_t max_request_marks = 20'000;  // chunks, and late gaps, drawn into it
  std::size_t max_stalls = 40;
};

// Limits for each of `num_runs` runs in one report, so that the whole stays readable.
ReportLimits report_limits(std::size_t num_runs);

// Positions in [0, size), in order: all of them, or at most `max_kept` among which every bucket's
// first minimum and first maximum of every series is found.
std::vector<std::size_t> keep_extremes(
    std::size_t size, std::size_t max_kept,
    std::span<const std::function<std::int64_t(std::size_t)>> series);

// Points (value, how many are at most that) of a sample's distribution, by value. The greatest
// 1,000 values are all there; below, 100 points for each factor of ten in the share that is
// greater, and 400 over the whole.
struct CurvePoint {
  TimeNs value_ns = 0;
  std::int64_t num_below = 0;  // values <= value_ns

  bool operator==(const CurvePoint&) const = default;
};
std::vector<CurvePoint> distribution_curve(std::vector<WeightedTime> sample);

// The JSON object; times in it are microseconds unless a name says otherwise.
std::string report_detail(const RunRecord& record, const SloConfig& slo,
                          const ReportLimits& limits);

}  // namespace metronome
