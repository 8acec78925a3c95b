// SPDX-License-Identifier: Apache-2.0
// Finds the knee of a server: the highest rate of requests that it keeps up with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"
#include "core/metrics/slo_config.h"
#include "core/metrics/summary.h"
#include "core/workload/workload.h"

namespace metronome {

struct KneeOptions {
  double first_rate = 1;      // requests/s
  double point_s = 30;        // how long a load sends requests, if the workload has enough of them
  double time_limit_s = 600;  // of all loads together
  // The share of requests that have to complete, and to meet the SLO if there is one.
  double attainment = 0.99;
  SloConfig slo;
};

enum class KneeVerdict : std::uint8_t {
  KeepsUp,
  Behind,   // fewer requests end than arrive
  Failing,  // too few of the requests complete
  Slow,     // too few of the requests meet the SLO
};
// In the order of KneeVerdict.
constexpr std::string_view kKneeVerdicts[] = {"keeps_up", "behind", "failing", "slow"};

// A load of the search.
struct KneePoint {
  double rate = 0;  // requests/s
  std::size_t num_requests = 0;
  KneeVerdict verdict = KneeVerdict::KeepsUp;
  // In the second half of the time in which requests are sent, when the first ones have ended.
  std::int64_t num_arrived = 0;
  std::int64_t num_ended = 0;
  Summary summary;
  // The answers take longer than half of the time in which requests are sent, so num_ended is low
  // whether or not the server keeps up.
  bool is_short = false;
};

enum class KneeEnd : std::uint8_t { Found, TimeLimit, FewRequests, ManyPoints, Idle };

struct KneeResult {
  std::vector<KneePoint> points;  // in the order in which they were measured
  // Of `points`: the highest rate that the server keeps up with, the lowest above at which it does
  // not.
  std::optional<std::size_t> knee, above;
  KneeEnd end = KneeEnd::Found;
};

// The reason for which the workload's rate cannot be changed; empty if it can.
std::string knee_error(const Workload& workload);

// The first `num_requests` of a workload, at least 1 of them, and more if they all arrive at 0.
// Their arrivals are scaled so that the last one comes after num_requests / rate seconds. Requires
// that knee_error() is empty, as rate_of() does.
Workload workload_at(const Workload& workload, std::size_t num_requests, double rate);

// Requests/s of all of them.
double rate_of(const Workload& workload);

// Judges one load.
KneePoint knee_point(const RunRecord& record, double rate, const KneeOptions& options);

// Sends a load, gives up the requests that have not ended `most_ns` after it began, and returns its
// knee_point().
using KneeTrial = std::function<KneePoint(const Workload& load, double rate, TimeNs most_ns)>;

// Doubles the rate until the server does not keep up, or halves it until it does, and halves the
// ratio between the two until the higher rate is at most 10 % above. A load has the first requests
// of the workload. It sends for point_s, or for four times as long as an answer of the load before
// took. It is given up when it has taken twice that, and twice the longest answer before.
KneeResult find_knee(const Workload& workload, const KneeOptions& options, const KneeTrial& trial);

// The reason for the search's end, without its full stop: "at 9.51 requests/s 82 requests end
// while 120 arrive".
std::string knee_reason(const KneeResult& result, const KneeOptions& options);
std::string verdict_text(const KneePoint& point, const KneeOptions& options);

}  // namespace metronome
