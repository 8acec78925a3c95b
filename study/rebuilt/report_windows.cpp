// SPDX-License-Identifier: Apache-2.0
#include "study/rebuilt/report_windows.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/base/real.h"
#include "study/rebuilt/log_clock.h"

namespace metronome {
namespace {

constexpr TimeNs kUsualInterval = 10 * kStampNs;  // of vLLM's reports

std::map<std::int32_t, std::vector<const LogObservation*>> reports_of(const EngineLog& log) {
  std::map<std::int32_t, std::vector<const LogObservation*>> ranks;
  for (const LogObservation& seen : log.observations) {
    if (seen.kind == Observed::Report) ranks[seen.rank].push_back(&seen);
  }
  return ranks;
}

double tokens_of(const std::vector<const LogObservation*>& reports) {
  double sum = 0;
  for (const LogObservation* seen : reports) sum += seen->prompt_rate + seen->decode_rate;
  return sum;
}

// The most frequent time between two stamps. An idle server leaves reports out, and its rates are
// those of the last interval.
TimeNs interval_of(const std::vector<TimeNs>& stamps) {
  std::map<TimeNs, int> counts;
  for (std::size_t i = 1; i < stamps.size(); ++i) {
    if (stamps[i] == kNoTime || stamps[i - 1] == kNoTime) continue;
    const TimeNs apart = (stamps[i] - stamps[i - 1] + kStampNs / 2) / kStampNs * kStampNs;
    if (apart > 0) ++counts[apart];
  }
  TimeNs best = kUsualInterval;
  int most = 0;
  for (const auto& [apart, count] : counts) {
    if (count > most) {
      most = count;
      best = apart;
    }
  }
  return best;
}

ReportWindow window_of(const LogObservation& seen, TimeNs end, TimeNs interval) {
  ReportWindow window;
  window.begin = end - interval;
  window.end = end;
  window.prompt_tokens = seen.prompt_rate * to_seconds(interval);
  window.output_tokens = seen.decode_rate * to_seconds(interval);
  window.num_running = seen.num_running;
  window.num_waiting = seen.num_waiting;
  window.cache_usage = seen.cache_usage;
  window.hit_rate = seen.hit_rate;
  window.line = seen.line;
  return window;
}

// Windows, and the requests received in them, on one clock in the order of their lines.
void place(const std::vector<const LogObservation*>& reports,
           const std::vector<LogArrival>& arrivals, ReportWindows& all) {
  LogClock clock;
  std::vector<TimeNs> stamps;
  std::vector<TimeNs> arrival_stamps;
  std::size_t next = 0;
  for (const LogObservation* seen : reports) {
    for (; next < arrivals.size() && arrivals[next].line < seen->line; ++next) {
      arrival_stamps.push_back(clock.read(arrivals[next].time));
    }
    stamps.push_back(clock.read(seen->time));
  }
  all.interval = interval_of(stamps);
  TimeNs end = 0;
  for (std::size_t i = 0; i < reports.size(); ++i) {
    const TimeNs follows = i == 0 ? all.interval : end + all.interval;
    end = stamps[i] == kNoTime ? follows : stamps[i] + kStampNs / 2;
    all.windows.push_back(window_of(*reports[i], end, all.interval));
  }
  const TimeNs first = all.windows.front().begin;
  for (ReportWindow& window : all.windows) {
    window.begin -= first;
    window.end -= first;
  }
  std::size_t of = 0;
  for (std::size_t a = 0; a < next; ++a) {
    while (arrivals[a].line > all.windows[of].line) ++of;
    all.windows[of].arrivals.push_back(arrivals[a]);
    const TimeNs stamp = arrival_stamps[a];
    all.windows[of].stamps.push_back(stamp == kNoTime ? kNoTime : stamp - first);
  }
  constexpr TimeNs kJitter = 2 * kStampNs;
  std::int64_t before = 0;
  for (std::size_t i = 0; i < all.windows.size(); ++i) {
    ReportWindow& window = all.windows[i];
    if (i > 0 && window.begin - all.windows[i - 1].end > kJitter) before = 0;
    window.mean_running = real(before + window.num_running) / 2;
    window.is_busy = before > 0 && window.num_running > 0;
    before = window.num_running;
  }
}

std::vector<LogArrival> answers_of(const EngineLog& log) {
  std::vector<LogArrival> calls;
  for (const std::int64_t line : log.answer_lines) calls.emplace_back().line = line;
  return calls;
}

// ---- the fit ----

struct Row {
  double steps = 0;   // per second
  double tokens = 0;  // per second
};

struct Pair {
  double step = 0;  // seconds
  double token = 0;
};

// Least squares of 1 = step x steps + token x tokens.
std::optional<Pair> solve(const std::vector<Row>& rows, std::size_t left_out) {
  double ss = 0;
  double st = 0;
  double tt = 0;
  double s = 0;
  double t = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (i == left_out) continue;
    ss += rows[i].steps * rows[i].steps;
    st += rows[i].steps * rows[i].tokens;
    tt += rows[i].tokens * rows[i].tokens;
    s += rows[i].steps;
    t += rows[i].tokens;
  }
  const double det = ss * tt - st * st;
  constexpr double kSingular = 1e-6;
  if (!(det > kSingular * ss * tt)) return std::nullopt;
  return Pair{(s * tt - t * st) / det, (t * ss - s * st) / det};
}

}  // namespace

ReportWindows report_windows(const EngineLog& log) {
  ReportWindows all;
  const auto ranks = reports_of(log);
  if (ranks.empty()) return all;
  const auto most = std::max_element(ranks.begin(), ranks.end(), [](const auto& a, const auto& b) {
    return tokens_of(a.second) < tokens_of(b.second);
  });
  all.rank = most->first;
  all.num_ranks = ranks.size();
  // A line does not say which rank receives its request.
  const bool is_one = ranks.size() == 1;
  all.has_arrivals = is_one && !log.arrivals.empty();
  all.has_answers = is_one && log.arrivals.empty() && !log.answer_lines.empty();
  std::vector<LogArrival> arrivals;
  if (all.has_arrivals) arrivals = log.arrivals;
  if (all.has_answers) arrivals = answers_of(log);
  place(most->second, arrivals, all);
  return all;
}

MeanRunning mean_running(std::span<const ReportWindow> windows, TimeNs start,
                         const RunRecord& record) {
  MeanRunning mean;
  TimeNs all = 0;
  TimeNs ran = 0;
  std::int64_t num_logged = 0;
  for (const ReportWindow& window : windows) {
    num_logged += window.num_running;
    all += window.end - window.begin;
    for (const RequestRecord& request : record.requests) {
      if (request.first_scheduled == kNoTime || request.ended == kNoTime) continue;
      const TimeNs from = std::max(request.first_scheduled + start, window.begin);
      const TimeNs until = std::min(request.ended + start, window.end);
      ran += std::max<TimeNs>(until - from, 0);
    }
  }
  if (windows.empty() || all <= 0) return mean;
  mean.logged = real(num_logged) / real(windows.size());
  mean.simulated = real(ran) / real(all);
  return mean;
}

FittedModel WindowFit::model() const {
  FittedModel model;
  model.form.graph = step_ns;
  model.form.eager = step_ns;
  model.form.tokens = {{0, 0, token_ns}};
  model.tokens_shape = "a line, by reports of a server";
  model.num_steps = num_windows;
  model.host_gap_ns = 0;  // the reports' time includes it
  model.knows_contexts = false;
  FeatureRange any;
  constexpr double kMost = 1e9;
  any.max = {kMost, kMost, kMost, kMost, kMost, kMost, false, 0};
  model.decode_range = any;
  model.prefill_range = any;
  RegimeError all;
  all.regime = "all";
  all.num_steps = num_windows;
  all.mean_ms = step_ns / real(kNsPerMs);
  all.mean_abs_error = error;
  all.p95_abs_error = 2 * error;
  model.errors = {all};
  return model;
}

std::optional<WindowFit> fit_windows(std::span<const ReportWindow> windows) {
  constexpr std::size_t kLeastWindows = 4;
  constexpr double kMostError = 0.5;
  // Of the p99 of gaps at another budget: found on the reports alone of two logs of vLLM 0.32 on a
  // CPU (docs/guide/diagnose_vllm.md).
  constexpr double kTriedError = 0.25;
  std::vector<Row> rows;
  for (const ReportWindow& window : windows) {
    if (!window.is_busy || window.output_tokens <= 0) continue;
    const double seconds = to_seconds(window.end - window.begin);
    rows.push_back({window.output_tokens / window.mean_running / seconds,
                    (window.prompt_tokens + window.output_tokens) / seconds});
  }
  if (rows.size() < kLeastWindows) return std::nullopt;
  const std::optional<Pair> all = solve(rows, rows.size());
  if (!all || all->step <= 0 || all->token <= 0) return std::nullopt;
  double sum = 0;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::optional<Pair> others = solve(rows, i);
    if (!others) return std::nullopt;
    sum += std::abs(others->step * rows[i].steps + others->token * rows[i].tokens - 1);
  }
  const double error = sum / real(rows.size());
  if (!(error <= kMostError)) return std::nullopt;
  return WindowFit{all->step * 1e9, all->token * 1e9, std::max(error, kTriedError),
                   static_cast<std::int64_t>(rows.size())};
}

}  // namespace metronome
