// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/slow_decodes.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <deque>
#include <fmt/core.h>
#include <iterator>
#include <optional>
#include <utility>

#include "core/base/json_text.h"
#include "core/base/number_text.h"

namespace metronome {
namespace {

constexpr double kSlow = 4;         // times as long as before
constexpr double kSlowScaled = 5;   // likewise, where the time before is a rougher measure
constexpr double kSudden = 2;       // times as long as the step before
constexpr std::size_t kKept = 256;  // earlier samples to compare with
constexpr std::size_t kEnough = 3;  // of them that must be comparable

TimeNs median(std::vector<TimeNs> times) {
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

// Reading the KV cache takes time: a sample compares with those that had about as much of it.
bool is_comparable(const DecodeSample& before, const DecodeSample& now) {
  constexpr double kMoreCache = 1.5;
  const bool has_cache =
      before.cache_usage == 0 || now.cache_usage <= kMoreCache * before.cache_usage;
  return before.num_requests >= now.num_requests && has_cache;
}

// The part of a step time that earlier steps explain.
struct Usual {
  TimeNs ns = 0;
  bool is_scaled = false;  // in proportion, as there were too few comparable steps

  double limit_ns() const { return (is_scaled ? kSlowScaled : kSlow) * static_cast<double>(ns); }
};

// At most so many times as long as `before`: the weights take what they took, and the rest grows
// with the requests or with the cache that they read.
double explained_growth(const DecodeSample& before, const DecodeSample& now) {
  const double requests =
      static_cast<double>(now.num_requests) / static_cast<double>(before.num_requests);
  const double cache = before.cache_usage > 0 ? now.cache_usage / before.cache_usage : 1;
  return std::max({1.0, requests, cache});
}

// As long as the steps of the nearest sizes explain; nullopt: there are too few.
std::optional<Usual> scaled_ns(const std::deque<DecodeSample>& before, const DecodeSample& now) {
  std::vector<std::pair<double, TimeNs>> nearest;  // growth, its step's time
  for (const DecodeSample& sample : before) {
    if (sample.num_requests > 0) {
      nearest.emplace_back(explained_growth(sample, now), sample.step_ns);
    }
  }
  if (nearest.size() < kEnough) return std::nullopt;
  const auto end = nearest.begin() + static_cast<std::ptrdiff_t>(kEnough);
  std::partial_sort(nearest.begin(), end, nearest.end());
  std::vector<TimeNs> times;
  for (auto one = nearest.begin(); one != end; ++one) {
    // In proportion to far fewer requests any time is explained, as steps do not begin at 0.
    constexpr double kFarther = 2;
    if (one->first > kFarther * nearest.front().first) break;
    times.push_back(std::llround(one->first * static_cast<double>(one->second)));
  }
  return Usual{median(std::move(times)), true};
}

// How long decodes of at least as many requests took before. Without enough of them: how long the
// others explain.
std::optional<Usual> usual_of(const std::deque<DecodeSample>& before, const DecodeSample& now) {
  std::vector<TimeNs> times;
  for (const DecodeSample& sample : before) {
    if (is_comparable(sample, now)) times.push_back(sample.step_ns);
  }
  if (times.size() < kEnough) return scaled_ns(before, now);
  return Usual{median(std::move(times))};
}

SlowDecodes span_of(const std::vector<DecodeSample>& samples, std::size_t first, std::size_t end,
                    const std::vector<Usual>& usual) {
  SlowDecodes span;
  span.first = first;
  span.last = end - 1;
  span.first_where = samples[first].where;
  span.last_where = samples[end - 1].where;
  span.first_line = samples[first].line;
  span.last_line = samples[end - 1].line;
  span.rank = samples[first].rank;
  span.first_time = samples[first].time;
  span.last_time = samples[end - 1].time;
  span.is_to_the_end = end == samples.size();
  span.least_requests = span.most_requests = samples[first].num_requests;
  std::vector<TimeNs> times, least_times;
  for (std::size_t i = first; i < end; ++i) {
    (samples[i].is_least ? least_times : times).push_back(samples[i].step_ns);
    span.least_requests = std::min(span.least_requests, samples[i].num_requests);
    span.most_requests = std::max(span.most_requests, samples[i].num_requests);
  }
  span.is_least = times.empty();
  span.step_ns = median(std::move(span.is_least ? least_times : times));
  std::vector<TimeNs> before;
  for (const Usual& one : usual) {
    before.push_back(one.ns);
    span.is_scaled = span.is_scaled || one.is_scaled;
  }
  span.before_ns = median(std::move(before));
  return span;
}

// Slow decodes may begin or end between two prompts: then lines beside the span are partly slow.
std::pair<std::size_t, std::size_t> with_neighbours(const std::vector<DecodeSample>& samples,
                                                    std::size_t first, std::size_t end,
                                                    const std::vector<Usual>& usual) {
  constexpr double kPartly = 1.5;  // times as long
  const auto is_slow = [&](const DecodeSample& sample, const Usual& was) {
    return sample.is_least &&
           static_cast<double>(sample.step_ns) >= kPartly * static_cast<double>(was.ns);
  };
  while (first > 0 && is_slow(samples[first - 1], usual.front())) --first;
  while (end < samples.size() && is_slow(samples[end], usual.back())) ++end;
  return {first, end};
}

}  // namespace

std::vector<SlowDecodes> find_slow_decodes(const std::vector<DecodeSample>& samples,
                                           std::size_t least_samples, std::optional<double> alone) {
  std::vector<SlowDecodes> spans;
  std::deque<DecodeSample> before;  // without slow ones
  std::vector<Usual> usual;         // of the slow ones so far
  std::size_t first = 0;
  std::size_t end = 0;     // behind the last of them
  bool is_enough = false;  // one of them alone
  const auto close = [&] {
    if (usual.size() >= least_samples || is_enough) {
      const auto [from, to] = with_neighbours(samples, first, end, usual);
      spans.push_back(span_of(samples, from, to, usual));
    } else {  // hiccups
      std::copy_if(samples.begin() + static_cast<std::ptrdiff_t>(first),
                   samples.begin() + static_cast<std::ptrdiff_t>(end), std::back_inserter(before),
                   [](const DecodeSample& sample) { return !sample.is_least; });
    }
    usual.clear();
    is_enough = false;
  };
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const auto step_ns = static_cast<double>(samples[i].step_ns);
    std::optional<Usual> was = usual_of(before, samples[i]);
    // Within a span more requests than ever compare with what fewer took.
    if (!usual.empty() && (!was || was->is_scaled)) was = usual.back();
    bool is_slow = was && step_ns >= was->limit_ns();
    // A growth step by step, as that of contexts, is no sudden change.
    if (usual.empty() && !before.empty()) {
      is_slow = is_slow && step_ns >= kSudden * static_cast<double>(before.back().step_ns);
    }
    if (is_slow) {
      if (usual.empty()) first = i;
      usual.push_back(*was);
      end = i + 1;
      is_enough = is_enough || (alone && step_ns >= *alone * static_cast<double>(was->ns));
      continue;
    }
    if (samples[i].is_least) continue;
    if (!usual.empty()) close();
    before.push_back(samples[i]);
    while (before.size() > kKept) before.pop_front();
  }
  if (!usual.empty()) close();
  return spans;
}

const SlowDecodes* span_at(const std::vector<SlowDecodes>& spans, const DecodePlace& place) {
  const auto found = std::find_if(spans.begin(), spans.end(),
                                  [&place](const SlowDecodes& one) { return one.contains(place); });
  return found == spans.end() ? nullptr : &*found;
}

std::vector<std::string> slow_decode_notes(const std::vector<SlowDecodes>& spans,
                                           const std::string& where_word, bool has_ranks) {
  std::vector<std::string> notes;
  for (const SlowDecodes& span : spans) {
    const auto at = [](std::int64_t line, const std::string& time) {
      const std::string place = line > 0 ? fmt::format("line {}", line) : std::string();
      const std::string both = place + (place.empty() || time.empty() ? "" : ", ") + time;
      return both.empty() ? both : " (" + both + ")";
    };
    const std::string requests =
        span.least_requests == span.most_requests
            ? grouped_text(span.most_requests)
            : grouped_text(span.least_requests) + " to " + grouped_text(span.most_requests);
    notes.push_back(fmt::format(
        "From {} {}{} on, a decode step of {}{}{} takes {}{}{}{}{}{} ms){}. No scheduler setting "
        "explains it: look for passes that no CUDA graph launches any more, a lower clock of the "
        "GPU, or another process on it.",
        where_word, span.first_where, at(span.first_line, span.first_time), requests,
        requests == "1" ? " request" : " requests",
        has_ranks ? fmt::format(" of rank {}", span.rank) : std::string(),
        span.is_least ? "at least " : "", ms_text(to_ms(span.step_ns)),
        span.is_least ? " ms without the time of prompts, " : " ms without a prompt, ",
        fixed_text(span.ratio(), 1),
        span.is_scaled
            ? " times as long as the steps before explain, even in proportion to requests and "
              "cache ("
            : " times as long as steps of at least as many did before (",
        ms_text(to_ms(span.before_ns)),
        span.is_to_the_end        ? std::string()
        : span.first == span.last ? ", in this " + where_word + " alone"
                                  : fmt::format(", up to {} {}{}", where_word, span.last_where,
                                                at(span.last_line, span.last_time))));
  }
  return notes;
}

void append_slow_decodes(const std::vector<SlowDecodes>& spans, bool has_ranks, JsonText& json) {
  json.begin_array();
  for (const SlowDecodes& span : spans) {
    json.begin_object();
    if (has_ranks) json.field("rank", span.rank);
    json.field("first", span.first_where);
    json.field("last", span.last_where);
    if (span.first_line > 0) json.field("first_line", span.first_line);
    json.field("least_requests", span.least_requests);
    json.field("most_requests", span.most_requests);
    json.key("step_ms").ms(span.step_ns);
    json.key("before_ms").ms(span.before_ns);
    json.end_object();
  }
  json.end_array();
}

}  // namespace metronome
