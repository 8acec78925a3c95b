// SPDX-License-Identifier: Apache-2.0
#include "serve/client/knee_search.h"

#include <algorithm>
#include <cmath>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/number_text.h"
#include "core/workload/workload_cut.h"

namespace metronome {
namespace {

constexpr double kTolerance = 1.1;  // the rate above the knee over the knee
constexpr std::size_t kMostPoints = 16;
constexpr std::size_t kFewestRequests = 20;
// A server that keeps up ends what arrives. Chance makes the number in progress differ between two
// times by about the root of their sum; three times that is one case in 700. A search has up to 16
// loads, and one that is taken for saturated ends below the knee.
constexpr double kEndedShare = 0.9;
constexpr double kNoise = 3;
constexpr double kIdle = 0.1;     // requests in progress, in the mean
constexpr double kPatienceS = 5;  // beside what the requests take

// Three significant digits, which are enough to say a rate again.
double rounded(double rate) {
  const double scale = std::pow(10, 2 - std::floor(std::log10(rate)));
  return std::round(rate * scale) / scale;
}

double most_e2el_s(const Summary& summary) {
  return summary.completed > 0 ? summary.e2el.max_ms / 1e3 : 0;
}

class KneeSearch {
 public:
  KneeSearch(const Workload& workload, const KneeOptions& options, const KneeTrial& trial)
      : workload_(workload), options_(options), trial_(trial) {}

  KneeResult run() {
    double rate = rounded(options_.first_rate);
    while (measure(rate)) {
      if (!result_.above) {
        rate = rounded(2 * rate);
      } else if (!result_.knee) {
        // A server that has hardly anything to do answers no better at a lower rate.
        const Summary& summary = at(*result_.above).summary;
        if (summary.completed > 0 && rate * summary.e2el.mean_ms / 1e3 < kIdle) {
          result_.end = KneeEnd::Idle;
          break;
        }
        rate = rounded(rate / 2);
      } else {
        const double low = at(*result_.knee).rate, high = at(*result_.above).rate;
        rate = rounded(std::sqrt(low * high));
        if (high <= kTolerance * low || rate <= low || rate >= high) {
          result_.end = KneeEnd::Found;
          break;
        }
      }
    }
    return std::move(result_);
  }

 private:
  const KneePoint& at(std::size_t i) const { return result_.points[i]; }

  // False: the search has ended, for the reason in result_.end.
  bool measure(double rate) {
    std::size_t count = requests_at(rate, send_s());
    if (count == 0) return ends(KneeEnd::FewRequests);
    if (!add_point(rate, count)) return false;
    // Answers that take longer than expected: once more, with a load as long as they need.
    const std::size_t wanted = requests_at(rate, send_s());
    if (result_.points.back().is_short && wanted > count) {
      result_.points.pop_back();
      if (!add_point(rate, wanted)) return false;
    }
    const std::size_t last = result_.points.size() - 1;
    if (at(last).verdict != KneeVerdict::KeepsUp) {
      if (!result_.above || rate < at(*result_.above).rate) result_.above = last;
    } else if (!result_.knee || rate > at(*result_.knee).rate) {
      result_.knee = last;
    }
    return true;
  }

  bool add_point(double rate, std::size_t count) {
    if (result_.points.size() == kMostPoints) return ends(KneeEnd::ManyPoints);
    const double left_s = options_.time_limit_s - used_s_;
    const double load_s = static_cast<double>(count) / rate;
    if (left_s < load_s) return ends(KneeEnd::TimeLimit);
    const double most_s = std::min(2 * load_s + 2 * longest_s_ + kPatienceS, left_s);
    const Workload load = workload_at(workload_, count, rate);
    result_.points.push_back(trial_(load, rate, static_cast<TimeNs>(most_s * 1e9)));
    const Summary& summary = result_.points.back().summary;
    used_s_ += to_seconds(summary.duration_ns);
    if (summary.completed > 0) answer_s_ = summary.e2el.mean_ms / 1e3;
    if (result_.points.back().verdict == KneeVerdict::KeepsUp) {
      longest_s_ = std::max(longest_s_, most_e2el_s(summary));
    }
    return true;
  }

  double send_s() const { return std::max(options_.point_s, 4 * answer_s_); }

  // The requests that arrive in this time, at most all; 0: all of them arrive while the first one
  // is answered, which says nothing of a rate.
  std::size_t requests_at(double rate, double seconds) const {
    const std::size_t all = workload_.requests.size();
    const auto wanted = static_cast<std::size_t>(std::min(rate * seconds, 1e9));
    const std::size_t count = std::min(std::max(wanted, kFewestRequests), all);
    const bool says_nothing = count == all && static_cast<double>(count) / rate < 2 * answer_s_;
    return says_nothing && result_.knee && !result_.above ? 0 : count;
  }

  bool ends(KneeEnd end) {
    result_.end = end;
    return false;
  }

  const Workload& workload_;
  const KneeOptions& options_;
  const KneeTrial& trial_;
  KneeResult result_;
  double used_s_ = 0;
  double answer_s_ = 0;   // the mean of the load before
  double longest_s_ = 0;  // of loads that the server kept up with
};

}  // namespace

std::string knee_error(const Workload& workload) {
  if (workload.mode != ArrivalMode::Timed) {
    return "clients that wait for answers have no rate; allowed: arrivals at times";
  }
  if (workload.requests.empty() || workload.requests.back().arrival <= 0) {
    return "all requests arrive at once; allowed: arrivals at a rate";
  }
  return {};
}

double rate_of(const Workload& workload) {
  return static_cast<double>(workload.requests.size()) /
         to_seconds(workload.requests.back().arrival);
}

Workload workload_at(const Workload& workload, std::size_t num_requests, double rate) {
  METRONOME_CHECK(knee_error(workload).empty(), "a load has a rate to change");
  // A burst at the start has no rate yet.
  while (workload.requests[num_requests - 1].arrival <= 0) ++num_requests;
  Workload load = workload;
  keep_first(num_requests, load);
  const auto last = static_cast<double>(load.requests.back().arrival);
  const double scale = static_cast<double>(load.requests.size()) / rate * 1e9 / last;
  for (RequestSpec& request : load.requests) {
    request.arrival = std::llround(static_cast<double>(request.arrival) * scale);
  }
  return load;
}

KneePoint knee_point(const RunRecord& record, double rate, const KneeOptions& options) {
  KneePoint point;
  point.rate = rate;
  point.num_requests = record.requests.size();
  point.summary = summarize(record, {options.slo, 0});
  TimeNs last = 0;
  for (const RequestRecord& request : record.requests) last = std::max(last, request.arrival);
  const TimeNs half = last / 2;
  std::int64_t num_at_half = 0, num_at_last = 0;  // in progress
  for (const RequestRecord& request : record.requests) {
    const bool has_ended = request.ended != kNoTime;
    point.num_arrived += request.arrival > half ? 1 : 0;
    point.num_ended += has_ended && request.ended > half && request.ended <= last ? 1 : 0;
    num_at_half += request.arrival <= half && !(has_ended && request.ended <= half) ? 1 : 0;
    num_at_last += !(has_ended && request.ended <= last) ? 1 : 0;
  }
  const Summary& summary = point.summary;
  point.is_short = summary.completed == 0 || summary.e2el.mean_ms / 1e3 > to_seconds(half);
  const auto arrived = static_cast<double>(point.num_arrived);
  const auto ended = static_cast<double>(point.num_ended);
  // Small numbers of arrivals spread wider than the root says: a Poisson distribution's upper limit
  // is z^2 / 2 further away.
  const double noise =
      kNoise * std::sqrt(static_cast<double>(num_at_half + num_at_last)) + kNoise * kNoise / 2;
  const auto all = static_cast<double>(point.num_requests);
  if (ended < kEndedShare * arrived && arrived - ended > noise) {
    point.verdict = KneeVerdict::Behind;
  } else if (static_cast<double>(summary.completed) < options.attainment * all) {
    point.verdict = KneeVerdict::Failing;
  } else if (summary.slo_attainment && *summary.slo_attainment < options.attainment) {
    point.verdict = KneeVerdict::Slow;
  }
  return point;
}

KneeResult find_knee(const Workload& workload, const KneeOptions& options, const KneeTrial& trial) {
  METRONOME_CHECK(knee_error(workload).empty(), "a knee has a rate");
  return KneeSearch(workload, options, trial).run();
}

std::string verdict_text(const KneePoint& point, const KneeOptions& options) {
  const Summary& summary = point.summary;
  const std::string required = percent_text(options.attainment, 1) + " are required";
  switch (point.verdict) {
    case KneeVerdict::KeepsUp: return "keeps up";
    case KneeVerdict::Behind:
      return grouped_text(point.num_ended) + " of " + count_text(point.num_arrived, "request") +
             " end in the second half of the load";
    case KneeVerdict::Failing:
      return grouped_text(summary.completed) + " of " + count_text(point.num_requests, "request") +
             " complete; " + required;
    case KneeVerdict::Slow:
      return percent_text(*summary.slo_attainment, 1) + " of the requests meet the SLO; " +
             required;
  }
  return {};
}

std::string knee_reason(const KneeResult& result, const KneeOptions& options) {
  switch (result.end) {
    case KneeEnd::TimeLimit:
      return "the next load would exceed the time limit of " + fixed_text(options.time_limit_s, 0) +
             " s";
    case KneeEnd::FewRequests:
      return "at higher rates all requests of the workload arrive before the first are answered";
    case KneeEnd::Idle: {
      const KneePoint& above = result.points[*result.above];
      return "at " + rate_text(above.rate) + " requests/s the server is nearly idle, and " +
             verdict_text(above, options);
    }
    case KneeEnd::ManyPoints: return count_text(kMostPoints, "load") + " were sent";
    case KneeEnd::Found: break;
  }
  const KneePoint& above = result.points[*result.above];
  return "at " + rate_text(above.rate) + " requests/s, less than " +
         fixed_text(100 * (kTolerance - 1), 0) + " % above, " + verdict_text(above, options);
}

}  // namespace metronome
