// SPDX-License-Identifier: Apache-2.0
#include "reports/measured/reading.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <utility>
#include <vector>

#include "core/base/clip.h"
#include "core/base/names.h"
#include "core/base/number_text.h"

namespace metronome {
namespace {

constexpr std::size_t kNamedFailures = 3;

struct StatisticName {
  const char* in_file;
  const char* of_figure;
};
// The names that the clients use, each with that of core/metrics/figures.cpp.
constexpr std::array<StatisticName, 12> kStatisticNames = {{{"mean", "mean"},
                                                            {"avg", "mean"},
                                                            {"median", "p50"},
                                                            {"p50", "p50"},
                                                            {"p90", "p90"},
                                                            {"p95", "p95"},
                                                            {"p99", "p99"},
                                                            {"std", "std"},
                                                            {"stddev", "std"},
                                                            {"std_dev", "std"},
                                                            {"min", "min"},
                                                            {"max", "max"}}};

void count_failures(MeasuredRun& run) {
  std::map<std::string, std::int64_t> kinds;
  for (const MeasuredRequest& request : run.requests) {
    if (!request.error.empty()) ++kinds[clipped(request.error)];
  }
  std::vector<std::pair<std::int64_t, std::string>> ordered;
  for (const auto& [text, count] : kinds) ordered.emplace_back(-count, text);
  std::sort(ordered.begin(), ordered.end());
  for (std::size_t i = 0; i < std::min(ordered.size(), kNamedFailures); ++i) {
    run.failures += (i == 0 ? "" : ", ") + grouped_text(-ordered[i].first) + " of \"" +
                    printable(ordered[i].second) + "\"";
  }
  if (ordered.size() > kNamedFailures) run.failures += ", and other reasons";
}

// The end of the last request, after the start of the first one.
TimeNs last_end(const MeasuredRun& run) {
  TimeNs last = 0;
  for (const MeasuredRequest& request : run.requests) {
    if (request.e2el_ns != kNoTime) last = std::max(last, request.start + request.e2el_ns);
  }
  return last;
}

// A failed request may have no start; it comes last.
void start_at_zero(std::vector<MeasuredRequest>& requests) {
  const auto start_of = [](const MeasuredRequest& request) {
    return request.start == kNoTime ? kNever : request.start;
  };
  std::stable_sort(requests.begin(), requests.end(),
                   [&](const MeasuredRequest& a, const MeasuredRequest& b) {
                     return start_of(a) < start_of(b);
                   });
  const TimeNs first = requests.front().start;
  for (MeasuredRequest& request : requests) {
    if (request.start != kNoTime) request.start -= first;
  }
}

}  // namespace

std::optional<JsonPlace> value_if(const JsonPlace& object, const std::string& key) {
  if (!object.has(key)) return std::nullopt;
  JsonPlace value = object.at(key);
  return value.is_null() ? std::nullopt : std::optional(std::move(value));
}

std::optional<JsonPlace> value_of_any(const JsonPlace& object,
                                      std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (std::optional<JsonPlace> value = value_if(object, key)) return value;
  }
  return std::nullopt;
}

std::optional<JsonPlace> value_at(const JsonPlace& object, std::string_view path) {
  std::optional<JsonPlace> value = object;
  while (value && !path.empty()) {
    const std::size_t end = std::min(path.find('.'), path.size());
    value = value_if(*value, std::string(path.substr(0, end)));
    path.remove_prefix(std::min(end + 1, path.size()));
  }
  return value;
}

std::optional<double> number_if(const JsonPlace& object, const std::string& key) {
  const Json* value = object.json().find(key);
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const auto number = value->get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}

std::optional<std::int64_t> count_if(const JsonPlace& object, const std::string& key) {
  const std::optional<double> number = number_if(object, key);
  constexpr double kMost = 1e15;
  if (!number || *number < 0 || *number > kMost) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

std::optional<std::string> text_if(const JsonPlace& object, const std::string& key) {
  const Json* value = object.json().find(key);
  if (value == nullptr || !value->is_string() || value->string().empty()) return std::nullopt;
  return value->string();
}

std::int32_t token_count(const JsonPlace& place) {
  const double number = place.number(0, std::numeric_limits<std::int32_t>::max());
  if (number != std::floor(number)) place.fail("is not a whole number; allowed: a count");
  return static_cast<std::int32_t>(number);
}

TimeNs time_in(const JsonPlace& place, double unit_ns) {
  if (unit_ns == 1 && place.json().is_number_integer()) return place.time();
  constexpr double kMost = 9.2e18;  // below TimeNs's largest value
  return std::llround(place.number(0, kMost / unit_ns) * unit_ns);
}

TimeNs time_in_seconds(const JsonPlace& place) {
  return time_in(place, static_cast<double>(kNsPerSecond));
}

double unit_ns(const JsonPlace& unit) {
  const std::string name = unit.text();
  if (name == "ns" || name == "nanoseconds") return 1;
  if (name == "us" || name == "\xc2\xb5s" || name == "microseconds") return kNsPerUs;
  if (name == "ms" || name == "milliseconds") return kNsPerMs;
  if (name == "s" || name == "sec" || name == "seconds") return kNsPerSecond;
  unit.fail("'" + clipped(name) + "' is not a unit of time; allowed: ns, us, ms, sec");
}

void set_distribution(const JsonPlace& object, std::string_view name, double scale,
                      FigureValues& figures) {
  for (const StatisticName& statistic : kStatisticNames) {
    const std::optional<double> number = number_if(object, statistic.in_file);
    if (!number) continue;
    figures.set(std::string(statistic.of_figure) + "_" + std::string(name) + "_ms",
                scale * *number);
  }
}

void add_token_time(TimeNs time, TimeNs& last, MeasuredRequest& request) {
  if (last == kNoTime) {
    request.ttft_ns = time - request.start;
  } else {
    request.gaps.push_back(time - last);
  }
  request.e2el_ns = time - request.start;
  last = time;
}

void add_failure(MeasuredRequest& request, const std::string& why) {
  request.error = why.empty() ? "no reason given" : why.substr(0, why.find('\n'));
}

void complete_run(MeasuredRun& run) {
  if (run.requests.empty()) return;
  run.num_failed = std::count_if(run.requests.begin(), run.requests.end(),
                                 [](const MeasuredRequest& r) { return !r.error.empty(); });
  run.num_completed = static_cast<std::int64_t>(run.requests.size()) - run.num_failed;
  count_failures(run);
  if (!run.has_starts()) return;
  start_at_zero(run.requests);
  if (run.duration_ns == 0) run.duration_ns = last_end(run);
}

bool MeasuredRun::has_starts() const {
  const auto is_completed = [](const MeasuredRequest& r) { return r.error.empty(); };
  return std::any_of(requests.begin(), requests.end(), is_completed) &&
         std::none_of(requests.begin(), requests.end(), [&](const MeasuredRequest& r) {
           return is_completed(r) && r.start == kNoTime;
         });
}

std::string MeasuredRun::load_text() const {
  std::string text;
  const auto add = [&text](const std::string& part) { text += (text.empty() ? "" : ", ") + part; };
  if (request_rate && std::isinf(*request_rate)) add("all requests at once");
  if (request_rate && std::isfinite(*request_rate)) {
    add(grouped_text(*request_rate, 2) + " requests/s");
  }
  if (max_concurrency) add("at most " + grouped_text(*max_concurrency) + " at once");
  return text;
}

}  // namespace metronome
