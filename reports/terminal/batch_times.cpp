// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/batch_times.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "engines/log/log_text.h"

namespace metronome {
namespace {

constexpr double kLongest = 3600;  // seconds of an interval; no server reaches it

// Prompts with long contexts take longer, but not so many times as long as those of the log do.
constexpr double kMostOfUsual = 3;

// The batches and decodes between two Decode lines of a rank.
struct Interval {
  std::vector<std::size_t> batches;  // their places among the observations
  std::vector<double> tokens;        // of each
  double decode_s = 0;               // of its decode steps
  bool is_known = false;
  // Seconds from line to line: by the throughput and the mean of the running requests; the least
  // and the most that these and the times of the lines allow.
  double whole_s = 0, least_s = 0, most_s = 0;
  DecodeSample decodes;  // without their time
};

// How far the times of lines may be off: they have whole seconds, but for formats of one's own.
double tolerance_s(const EngineLog& log) {
  const bool has_fractions =
      std::any_of(log.observations.begin(), log.observations.end(),
                  [](const auto& seen) { return seen.time.find('.') != std::string::npos; });
  return has_fractions ? 0.01 : 1;
}

// The time of a decode step by its requests: the median of the steps with the nearest numbers.
class DecodePaces {
 public:
  DecodePaces(double usual_s, const std::vector<DecodeSample>& pure) : usual_s_(usual_s) {
    for (const DecodeSample& sample : pure) {
      steps_.emplace_back(static_cast<double>(sample.num_requests), to_seconds(sample.step_ns));
    }
    std::sort(steps_.begin(), steps_.end());
  }
  double seconds(double num_requests) const {
    constexpr std::ptrdiff_t kNearest = 5;
    if (std::ssize(steps_) < kNearest) return usual_s_;
    auto first = std::lower_bound(steps_.begin(), steps_.end(), std::pair(num_requests, 0.0));
    auto last = first;
    while (last - first < kNearest) {
      const bool takes_lower =
          last == steps_.end() || (first != steps_.begin() &&
                                   num_requests - (first - 1)->first <= last->first - num_requests);
      takes_lower ? --first : ++last;
    }
    std::vector<double> times;
    for (auto it = first; it != last; ++it) times.push_back(it->second);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

 private:
  double usual_s_;
  std::vector<std::pair<double, double>> steps_;  // requests, seconds
};

// Collects the intervals of one rank.
class IntervalReader {
 public:
  IntervalReader(const DecodePaces& steps, double num_steps, double tolerance)
      : steps_(steps), num_steps_(num_steps), tolerance_(tolerance) {}

  void prefill(const LogObservation& seen, std::size_t place) {
    open_.batches.push_back(place);
    open_.tokens.push_back(static_cast<double>(seen.num_prefill_tokens));
    is_idle_ = is_idle_ || seen.num_running == 0;
    running_.push_back(static_cast<double>(seen.num_running));
  }
  void decode(const LogObservation& seen) {
    running_.push_back(static_cast<double>(seen.num_running));
    open_.is_known = has_begun_ && !is_idle_ && seen.decode_rate > 0 && seen.num_running > 0;
    if (open_.is_known) measure(seen);
    close();
    has_begun_ = true;
    begun_at_ = seen.time;
    running_.push_back(static_cast<double>(seen.num_running));
  }
  void close() {
    if (!open_.batches.empty()) intervals_.push_back(open_);
    open_ = {};
    is_idle_ = false;
    running_.clear();
  }
  const std::vector<Interval>& intervals() const { return intervals_; }

 private:
  void measure(const LogObservation& seen) {
    const auto seconds = [&](double num_running) {
      return std::min(num_steps_ * num_running / seen.decode_rate, kLongest);
    };
    double sum = 0;
    for (const double running : running_) sum += running;
    const double mean = sum / static_cast<double>(running_.size());
    open_.decode_s = num_steps_ * steps_.seconds(mean);
    open_.whole_s = seconds(mean);
    open_.least_s = seconds(*std::min_element(running_.begin(), running_.end()));
    const double most_running = *std::max_element(running_.begin(), running_.end());
    open_.most_s = seconds(most_running);
    open_.decodes = {.where = seen.line,
                     .time = seen.time,
                     .num_requests = std::llround(most_running),
                     .cache_usage = seen.cache_usage.value_or(0),
                     .rank = seen.rank,
                     .is_least = true};
    const std::optional<double> logged = seconds_between(begun_at_, seen.time);
    if (!logged) return;
    const double least = std::max(*logged - tolerance_, 0.0);
    const double most = *logged + tolerance_;
    for (double* const time : {&open_.whole_s, &open_.least_s, &open_.most_s}) {
      *time = std::clamp(*time, least, most);
    }
  }

  const DecodePaces& steps_;
  double num_steps_;
  double tolerance_;
  std::vector<Interval> intervals_;
  Interval open_;
  bool has_begun_ = false;
  bool is_idle_ = false;  // no request was running at a batch
  std::string begun_at_;
  std::vector<double> running_;  // requests, at the lines of the interval
};

// The time of all batches: each takes as long as a decode step at least, as both read the weights.
double batch_seconds(const Interval& interval, double token_s, double decode_s) {
  double sum = 0;
  for (const double tokens : interval.tokens) sum += std::max(decode_s, token_s * tokens);
  return sum;
}

// The time of a prompt token with which batches take what decodes leave of all known intervals; 0
// without such intervals.
double seconds_per_token(std::span<const Interval> intervals, double decode_s) {
  double left = 0;
  double tokens = 0;
  for (const Interval& interval : intervals) {
    if (!interval.is_known) continue;
    left += std::max(interval.whole_s - interval.decode_s, 0.0);
    for (const double each : interval.tokens) tokens += each;
  }
  if (tokens == 0 || left == 0) return 0;
  double low = 0;
  double high = left / tokens;  // batches then take longer than `left`, but for rounding
  for (int i = 0; i < 50; ++i) {
    const double middle = (low + high) / 2;
    double sum = 0;
    for (const Interval& interval : intervals) {
      if (interval.is_known) sum += batch_seconds(interval, middle, decode_s);
    }
    (sum < left ? low : high) = middle;
  }
  return high;
}

// Whether something else than these batches and usual decodes took a part of the interval.
bool is_too_long(const Interval& interval, double token_s, double decode_s) {
  const double usual_s = batch_seconds(interval, token_s, decode_s);
  return interval.is_known && interval.least_s - interval.decode_s > kMostOfUsual * usual_s;
}

// The time of a prompt token by intervals that do not take far longer than the median of the log's
// tokens explains.
double usual_seconds_per_token(const std::vector<Interval>& intervals, double decode_s) {
  std::vector<std::pair<double, double>> costs;  // per token, tokens
  double half = 0;
  for (const Interval& interval : intervals) {
    if (!interval.is_known) continue;
    double tokens = 0;
    for (const double each : interval.tokens) tokens += each;
    costs.emplace_back(seconds_per_token(std::span(&interval, 1), decode_s), tokens);
    half += tokens / 2;
  }
  std::sort(costs.begin(), costs.end());
  double median_s = 0;
  for (const auto& [cost, tokens] : costs) {
    median_s = cost;
    if ((half -= tokens) <= 0) break;
  }
  std::vector<Interval> usual = intervals;
  std::erase_if(usual, [&](const Interval& one) { return is_too_long(one, median_s, decode_s); });
  const double token_s = seconds_per_token(usual, decode_s);
  return token_s > 0 ? token_s : seconds_per_token(intervals, decode_s);
}

double requests_per_s(const EngineLog& log) {
  double num_requests = 0;
  double seconds = 0;
  std::string last;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind == Observed::Prefill) {
      num_requests += static_cast<double>(seen.num_prefill_requests);
    }
    if (!last.empty()) seconds += seconds_between(last, seen.time).value_or(0);
    if (!seen.time.empty()) last = seen.time;
  }
  return seconds > 0 ? num_requests / seconds : 0;
}

}  // namespace

bool lacks_batch_times(const EngineLog& log) {
  return log.has(Observed::Prefill) &&
         std::all_of(log.observations.begin(), log.observations.end(), [](const auto& seen) {
           return seen.kind != Observed::Prefill || seen.elapsed_ns == 0;
         });
}

BatchTimes estimate_batch_times(const EngineLog& log, TimeNs decode_ns,
                                const std::vector<DecodeSample>& pure,
                                std::int64_t decode_interval) {
  BatchTimes times;
  times.observations = log.observations;
  times.requests_per_s = requests_per_s(log);
  const double decode_s = to_seconds(decode_ns);
  const DecodePaces steps(decode_s, pure);
  const double tolerance = tolerance_s(log);
  std::map<std::int32_t, IntervalReader> ranks;
  for (std::size_t i = 0; i < log.observations.size(); ++i) {
    const LogObservation& seen = log.observations[i];
    IntervalReader& rank =
        ranks.try_emplace(seen.rank, steps, static_cast<double>(decode_interval), tolerance)
            .first->second;
    if (seen.kind == Observed::Prefill) rank.prefill(seen, i);
    if (seen.kind == Observed::Decode) rank.decode(seen);
  }
  std::vector<Interval> intervals;
  for (auto& [number, rank] : ranks) {
    rank.close();
    intervals.insert(intervals.end(), rank.intervals().begin(), rank.intervals().end());
  }
  const double token_s = usual_seconds_per_token(intervals, decode_s);
  times.ns_per_token = 1e9 * token_s;
  if (token_s == 0) return times;
  for (const Interval& interval : intervals) {
    // As long as batches are on average, unless the interval says otherwise.
    const double usual_s = batch_seconds(interval, token_s, decode_s);
    double prefill_s = usual_s;
    if (interval.is_known) {
      const double left_s = std::max(interval.least_s - kMostOfUsual * usual_s, 0.0);
      times.least_decodes.push_back(interval.decodes);
      times.least_decodes.back().step_ns =
          std::llround(1e9 * left_s / static_cast<double>(decode_interval));
    }
    if (interval.is_known && !is_too_long(interval, token_s, decode_s)) {
      prefill_s = std::clamp(interval.decode_s + usual_s, interval.least_s, interval.most_s) -
                  interval.decode_s;
    }
    const double share = std::max(prefill_s, 0.0) / usual_s;
    for (std::size_t i = 0; i < interval.batches.size(); ++i) {
      const double seconds = share * std::max(decode_s, token_s * interval.tokens[i]);
      times.observations[interval.batches[i]].elapsed_ns =
          std::max<TimeNs>(std::llround(1e9 * seconds), decode_ns);
    }
  }
  return times;
}

}  // namespace metronome
