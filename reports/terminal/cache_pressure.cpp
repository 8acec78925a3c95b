// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/cache_pressure.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "engines/log/log_dialect.h"

namespace metronome {
namespace {

// Prompt tokens that were looked up in the prefix cache, and the share that it had.
struct Lookup {
  double tokens = 0;
  double hit_rate = 0;
  bool is_full = false;
  const LogObservation* seen = nullptr;
};

// Seconds that a report is about: the median time between two reports. An idle server
// leaves some out, but each is about one interval.
double report_seconds(const EngineLog& log) {
  constexpr double kDefault = 10;
  std::vector<double> intervals;
  std::map<std::int32_t, std::string> last;  // by rank
  for (const LogObservation& seen : log.observations) {
    if (seen.kind != Observed::Report) continue;
    const std::string before = std::exchange(last[seen.rank], seen.time);
    if (const auto seconds = seconds_between(before, seen.time)) intervals.push_back(*seconds);
  }
  if (intervals.empty()) return kDefault;
  const auto middle = intervals.begin() + static_cast<std::ptrdiff_t>(intervals.size() / 2);
  std::nth_element(intervals.begin(), middle, intervals.end());
  return *middle > 0 ? *middle : kDefault;
}

std::vector<Lookup> lookups_of(const EngineLog& log) {
  std::vector<Lookup> lookups;
  const double seconds = report_seconds(log);
  for (const LogObservation& seen : log.observations) {
    Lookup lookup;
    lookup.seen = &seen;
    lookup.is_full = seen.cache_usage.value_or(0) >= kFullCache;
    if (seen.kind == Observed::Prefill) {
      const auto cached = static_cast<double>(seen.num_cached_tokens);
      lookup.tokens = cached + static_cast<double>(seen.num_prefill_tokens);
      if (lookup.tokens > 0) lookup.hit_rate = cached / lookup.tokens;
    } else if (seen.kind == Observed::Report) {
      if (!seen.hit_rate || *seen.hit_rate > 0.999) continue;
      lookup.hit_rate = *seen.hit_rate;
      // The throughput counts the computed tokens.
      lookup.tokens = seen.prompt_rate * seconds / (1 - lookup.hit_rate);
    }
    if (lookup.tokens > 0) lookups.push_back(lookup);
  }
  return lookups;
}

std::optional<CacheThrash> thrash_of(const EngineLog& log) {
  constexpr double kEnoughTokens = 4096;
  constexpr double kLeastFall = 0.05;
  double tokens[2] = {};
  double hits[2] = {};
  CacheThrash thrash;
  for (const Lookup& lookup : lookups_of(log)) {
    tokens[lookup.is_full] += lookup.tokens;
    hits[lookup.is_full] += lookup.tokens * lookup.hit_rate;
    if (lookup.is_full) thrash.span.add(*lookup.seen);
  }
  if (std::min(tokens[0], tokens[1]) < kEnoughTokens) return std::nullopt;
  thrash.hit_rate_with_room = hits[0] / tokens[0];
  thrash.hit_rate_when_full = hits[1] / tokens[1];
  const double fall = thrash.hit_rate_with_room - thrash.hit_rate_when_full;
  if (fall < kLeastFall) return std::nullopt;
  thrash.num_tokens = std::llround(fall * tokens[1]);
  return thrash;
}

// Tokens that the iterations of a rank computed, and those that its requests' prompts needed. The
// iterations count what is computed again after a preemption, the prompt throughput does not. From
// the start of the log, if it has the first iteration, or else from the first report on.
class PromptBalance {
 public:
  void add(const LogObservation& seen, double seconds) {
    constexpr std::int64_t kFirst = 1;
    if (seen.kind == Observed::Iteration) {
      if (!has_begun_ && seen.number <= kFirst) has_begun_ = true;
      const double tokens =
          static_cast<double>(seen.num_prefill_tokens +
                              std::max<std::int64_t>(seen.num_decode_tokens - seen.num_running, 0));
      computed_ += tokens;
      largest_ = std::max(largest_, tokens);
    } else if (seen.kind == Observed::Report) {
      if (has_begun_) {
        needed_ += seen.prompt_rate * seconds;
        again_ += computed_ - seen.prompt_rate * seconds;
      } else {
        has_begun_ = begins_late_ = true;
      }
      computed_ = 0;
    }
  }
  bool has_reports() const { return needed_ > 0; }
  double again() const { return again_; }
  // Intervals are not exactly as long as the median, and at an end a prompt may be half computed.
  double error() const { return 0.005 * needed_ + (begins_late_ ? 2 : 1) * largest_; }

 private:
  bool has_begun_ = false;
  bool begins_late_ = false;
  double computed_ = 0;  // since the last report
  double needed_ = 0;    // up to the last report
  double again_ = 0;     // computed - needed, up to the last report
  double largest_ = 0;   // iteration
};

void count_recomputed(const EngineLog& log, CachePressure& pressure) {
  if (!log.has(Observed::Iteration) || log.has_speculation) return;
  const double seconds = report_seconds(log);
  std::map<std::int32_t, PromptBalance> balances;  // by rank
  std::int64_t at_least = 0;
  for (const LogObservation& seen : log.observations) {
    balances[seen.rank].add(seen, seconds);
    if (seen.kind != Observed::Iteration) continue;
    // The scheduler gives a running request one token, and more only to compute some again.
    at_least += std::max<std::int64_t>(seen.num_decode_tokens - seen.num_running, 0);
  }
  double again = 0;
  double error = 0;
  bool has_reports = false;
  for (const auto& [rank, balance] : balances) {
    again += balance.again();
    error += balance.error();
    has_reports = has_reports || balance.has_reports();
  }
  if (pressure.num_preempted > 0 && has_reports) {
    pressure.num_recomputed_tokens = std::max<std::int64_t>(at_least, std::llround(again));
    pressure.recomputed_error_tokens = std::llround(error);
  } else if (at_least > 0 || pressure.num_preempted == 0) {
    pressure.num_recomputed_tokens = at_least;
  }
}

// "in lines 12 to 99, 03:04:05 to 03:05:00".
std::string span_text(const LogSpan& span) {
  if (span.first_line == span.last_line) {
    return fmt::format("in line {}{}", span.first_line,
                       span.first_time.empty() ? "" : ", at " + span.first_time);
  }
  return fmt::format(
      "in lines {} to {}{}", span.first_line, span.last_line,
      span.first_time.empty() ? "" : ", " + span.first_time + " to " + span.last_time);
}

std::string preemptions(const CachePressure& pressure, const EngineLog& log) {
  std::string text = std::string(log.engine_name()) + " preempted requests " +
                     grouped_text(pressure.num_preempted) + " times (" + span_text(pressure.span) +
                     "): the KV cache was full, and each lost its blocks. ";
  if (!pressure.num_recomputed_tokens) {
    return text +
           "The log does not say how many tokens were computed again: iterations "
           "(--enable-logging-iteration-details) between two or more reports do, without "
           "speculative decoding. ";
  }
  const std::string tokens = grouped_text(*pressure.num_recomputed_tokens);
  const std::int64_t error = pressure.recomputed_error_tokens;
  if (error == 0) return text + "At least " + tokens + " tokens were computed again. ";
  if (*pressure.num_recomputed_tokens < error) {
    return text + "At most " + count_text(*pressure.num_recomputed_tokens + error, "token") +
           " were computed again: the iterations computed about as many as the prompts "
           "had. ";
  }
  return text + "About " + tokens + " tokens (+-" + grouped_text(pressure.recomputed_error_tokens) +
         ") were computed again: the iterations computed so many more than the prompts had. ";
}

std::string retractions(const CachePressure& pressure, const EngineLog& log) {
  std::string text = fmt::format(
      "{} retracted requests {} times, in {}{}{}): the KV cache was full. ", log.engine_name(),
      grouped_text(pressure.num_preempted), grouped_text(pressure.num_lines),
      pressure.num_lines == 1 ? " step (" : " steps (", span_text(pressure.span));
  if (pressure.num_freed_tokens > 0) {
    text += "They freed " + count_text(pressure.num_freed_tokens, "token") +
            " of KV cache, which are computed again, but for prefixes that stay cached. ";
  }
  if (pressure.highest_reserve_ratio > 0) {
    text += "The reserve for outputs (new_token_ratio) rose to " +
            fixed_text(pressure.highest_reserve_ratio, 2) + ". ";
  }
  return text;
}

}  // namespace

void LogSpan::add(const LogObservation& seen) {
  if (first_line == 0) {
    first_line = seen.line;
    first_time = seen.time;
  }
  last_line = seen.line;
  last_time = seen.time;
}

CachePressure cache_pressure(const EngineLog& log) {
  CachePressure pressure;
  for (const LogObservation& seen : log.observations) {
    if (seen.cache_usage) {
      pressure.highest_usage = std::max(pressure.highest_usage.value_or(0), *seen.cache_usage);
    }
    if (seen.num_preempted == 0) continue;
    pressure.num_preempted += seen.num_preempted;
    pressure.num_freed_tokens += seen.num_freed_tokens.value_or(0);
    pressure.highest_reserve_ratio =
        std::max(pressure.highest_reserve_ratio, seen.new_reserve_ratio);
    ++pressure.num_lines;
    pressure.span.add(seen);
  }
  count_recomputed(log, pressure);
  pressure.thrash = thrash_of(log);
  return pressure;
}

std::vector<std::string> pressure_notes(const CachePressure& pressure, const EngineLog& log) {
  std::vector<std::string> notes;
  const std::string more_memory(log.dialect->more_memory);
  if (pressure.num_preempted > 0) {
    notes.push_back((log.dialect->form == LogForm::Iterations ? preemptions(pressure, log)
                                                              : retractions(pressure, log)) +
                    "How long they waited is not in the gaps of the log. " + more_memory);
  } else if (pressure.num_recomputed_tokens.value_or(0) > 0) {
    notes.push_back(fmt::format(
        "At least {} {} computed again after preemptions: iterations with more generation tokens "
        "than requests. Lines with 'Preemptions: ' are not in the log. {}",
        count_text(*pressure.num_recomputed_tokens, "token"),
        was_or_were(*pressure.num_recomputed_tokens), more_memory));
  }
  if (log.num_aborted > 0) {
    notes.push_back(std::string(log.engine_name()) + " aborted " +
                    count_text(log.num_aborted, "request") +
                    " in retractions: they had no room even alone, or could not resume.");
  }
  if (const std::optional<CacheThrash>& thrash = pressure.thrash) {
    notes.push_back("While at least " + fixed_text(100 * kFullCache, 0) +
                    " % of the KV cache was in use (" + span_text(thrash->span) +
                    "), the prefix cache had " + percent_text(thrash->hit_rate_when_full, 1) +
                    " of the prompt tokens, else " + percent_text(thrash->hit_rate_with_room, 1) +
                    ". At that rate " + grouped_text(thrash->num_tokens) +
                    " fewer prompt tokens would have been computed, if the prompts were alike. "
                    "More KV memory or fewer requests at once keeps the prefixes.");
  }
  return notes;
}

void append_pressure(const CachePressure& pressure, JsonText& json) {
  const auto append_span = [&json](const LogSpan& span) {
    json.field("first_line", span.first_line);
    json.field("last_line", span.last_line);
    json.field("first_time", span.first_time);
    json.field("last_time", span.last_time);
  };
  json.begin_object();
  json.field("preempted", pressure.num_preempted);
  if (pressure.num_preempted > 0) {
    json.field("freed_tokens", pressure.num_freed_tokens);
    append_span(pressure.span);
  }
  if (pressure.num_recomputed_tokens) {
    json.field("recomputed_tokens", *pressure.num_recomputed_tokens);
    json.field("recomputed_error_tokens", pressure.recomputed_error_tokens);
  }
  if (pressure.highest_usage) json.field("highest_usage", *pressure.highest_usage);
  json.key("thrash");
  if (pressure.thrash) {
    json.begin_object();
    json.field("hit_rate_with_room", pressure.thrash->hit_rate_with_room);
    json.field("hit_rate_when_full", pressure.thrash->hit_rate_when_full);
    json.field("recomputed_tokens", pressure.thrash->num_tokens);
    append_span(pressure.thrash->span);
    json.end_object();
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace metronome
