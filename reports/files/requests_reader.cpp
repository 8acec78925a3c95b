// SPDX-License-Identifier: Apache-2.0
#include "reports/files/requests_reader.h"

#include <algorithm>
#include <cmath>
#include <fmt/core.h>
#include <initializer_list>
#include <string>
#include <vector>

namespace metronome {
namespace {

EndReason read_reason(const JsonPlace& place) {
  const std::string name = place.text();
  for (std::size_t i = 0; i < kNumEndReasons; ++i) {
    const auto reason = static_cast<EndReason>(i);
    if (to_string(reason) == name) return reason;
  }
  place.fail("'" + name + "' is not a known reason for the end of a request");
}

void check_number(const JsonPlace& line, std::size_t position) {
  constexpr const char* kAllowed = "; allowed: every request once, in order";
  const JsonPlace place = line.at("request");
  const std::int64_t number = place.integer(0, kNever - 1);
  const auto next = static_cast<std::int64_t>(position);
  if (number == next) return;
  if (number < next) {
    place.fail(fmt::format("is {}, which line {} has already{}", number, number + 1, kAllowed));
  }
  place.fail(fmt::format("is {}, not {}, the next request{}", number, next, kAllowed));
}

struct Instant {
  const char* key;
  TimeNs time;  // kNoTime: has not happened
};

void check_order(const JsonPlace& line, std::initializer_list<Instant> instants) {
  const Instant* before = nullptr;
  for (const Instant& instant : instants) {
    if (instant.time == kNoTime) continue;
    if (before != nullptr && instant.time < before->time) {
      line.at(instant.key)
          .fail(fmt::format("is {}, before {}; allowed: {} or later", instant.time, before->key,
                            before->time));
    }
    before = &instant;
  }
}

void check_most(const JsonPlace& line, const char* key, std::int64_t count, const char* limit_key,
                std::int64_t limit) {
  if (count <= limit) return;
  line.at(key).fail(fmt::format("is {}, more than {}; allowed: 0 to {}", count, limit_key, limit));
}

void check_exists(const JsonPlace& line, const char* key, TimeNs time, bool has_to,
                  const char* why) {
  if ((time != kNoTime) == has_to) return;
  line.at(key).fail(has_to ? std::string("is null, but ") + why + "; allowed: a time"
                           : std::string("is a time, but ") + why + "; allowed: null");
}

// A figure in milliseconds that follows from the line's times.
void check_ms(const JsonPlace& line, const char* key, bool exists, TimeNs ns) {
  const JsonPlace place = line.at(key);
  if (place.is_null() && !exists) return;
  constexpr double kRounding = 1e-6;
  const double ms = static_cast<double>(ns) / static_cast<double>(kNsPerMs);
  if (exists && !place.is_null() &&
      std::abs(place.number() - ms) <= kRounding + 1e-9 * std::abs(ms)) {
    return;
  }
  place.fail("does not follow from the times of the line; allowed: " +
             (exists ? Json(ms).dump() : std::string("null")));
}

void check_counts(const JsonPlace& line, const RequestRecord& request, RequestsSource source) {
  // A run that was cut has requests that never arrived: they have no counts.
  const bool has_arrived = request.reason != EndReason::None || request.num_output_tokens > 0 ||
                           request.first_scheduled != kNoTime || request.num_prompt_tokens > 0;
  if (!has_arrived) return;
  if (request.num_prompt_tokens < 1) line.at("prompt_tokens").fail("is 0; allowed: at least 1");
  if (request.max_output_tokens < 1) line.at("max_tokens").fail("is 0; allowed: at least 1");
  check_most(line, "cached_tokens", request.num_prefix_hit_tokens, "prompt_tokens",
             request.num_prompt_tokens);
  if (source == RequestsSource::Client) return;  // a server may count otherwise
  // A scheduler may give a request that it preempted its whole output once more.
  check_most(line, "output_tokens", request.num_output_tokens, "max_tokens",
             std::int64_t{request.max_output_tokens} * (1 + request.num_preemptions));
  if (request.completed() && request.num_output_tokens == 0) {
    line.at("output_tokens").fail("is 0, but the request was completed; allowed: at least 1");
  }
}

void check_times(const JsonPlace& line, const RequestRecord& request, RequestsSource source) {
  const RequestRecord& r = request;
  check_exists(line, "ended_ns", r.ended, r.reason != EndReason::None,
               r.reason != EndReason::None ? "the request ended" : "end is none");
  check_exists(line, "last_scheduled_ns", r.last_scheduled, r.first_scheduled != kNoTime,
               "first_scheduled_ns says otherwise");
  check_exists(line, "last_token_ns", r.last_token, r.first_token != kNoTime,
               "first_token_ns says otherwise");
  if (source == RequestsSource::Engine) {
    check_exists(line, "first_token_ns", r.first_token, r.num_output_tokens > 0,
                 "output_tokens says otherwise");
  }
  check_order(line, {{"arrival_ns", r.arrival},
                     {"first_scheduled_ns", r.first_scheduled},
                     {"last_scheduled_ns", r.last_scheduled},
                     {"ended_ns", r.ended}});
  check_order(line, {{"arrival_ns", r.arrival},
                     {"first_scheduled_ns", r.first_scheduled},
                     {"first_token_ns", r.first_token},
                     {"last_token_ns", r.last_token},
                     {"ended_ns", r.ended}});
  const bool has_token = r.first_token != kNoTime;
  check_ms(line, "ttft_ms", has_token, r.ttft_ns());
  check_ms(line, "e2el_ms", has_token, r.e2el_ns());
  for (const char* key : {"queue_ms", "tpot_ms", "min_itl_ms", "max_itl_ms"}) {
    const JsonPlace place = line.at(key);
    if (!place.is_null() && !(place.number() >= 0)) place.fail("is negative; allowed: at least 0");
  }
}

}  // namespace

RequestRecord read_request(const JsonPlace& line, std::size_t position, RequestsSource source) {
  check_number(line, position);
  RequestRecord request;
  request.reason = read_reason(line.at("end"));
  request.priority = static_cast<std::int32_t>(line.at("priority").integer(INT32_MIN, INT32_MAX));
  request.num_prompt_tokens = line.at("prompt_tokens").count();
  request.num_prefix_hit_tokens = line.at("cached_tokens").count();
  request.max_output_tokens = line.at("max_tokens").count();
  request.num_output_tokens = line.at("output_tokens").count();
  request.num_prefill_chunks = line.at("prefill_chunks").count();
  request.num_preemptions = line.at("preemptions").count();
  request.arrival = line.at("arrival_ns").time();
  request.first_scheduled = line.at("first_scheduled_ns").time_or_none();
  request.last_scheduled = line.at("last_scheduled_ns").time_or_none();
  request.first_token = line.at("first_token_ns").time_or_none();
  request.last_token = line.at("last_token_ns").time_or_none();
  request.ended = line.at("ended_ns").time_or_none();
  check_counts(line, request, source);
  check_times(line, request, source);
  return request;
}

std::uint16_t read_class(const JsonPlace& line, std::vector<std::string>& names) {
  if (!line.has("class")) return 0;
  const std::string name = line.at("class").text();
  const auto found = std::find(names.begin(), names.end(), name);
  const auto number = static_cast<std::uint16_t>(found - names.begin() + 1);
  if (found != names.end()) return number;
  constexpr std::size_t kMostNames = UINT16_MAX - 1;
  if (names.size() == kMostNames) {
    line.at("class").fail("is one of too many classes; allowed: at most 65534");
  }
  names.push_back(name);
  return number;
}

void read_preemptions(const JsonPlace& line, std::size_t position, RunRecord& record) {
  const RequestRecord& request = record.requests[position];
  const JsonPlace times = line.at("preempted_ns");
  std::int32_t count = 0;
  TimeNs earliest = request.first_scheduled;
  times.for_each([&](const JsonPlace& place) {
    const TimeNs time = place.time();
    if (earliest == kNoTime || time < earliest) {
      place.fail("is before the request was scheduled, or before the previous preemption");
    }
    earliest = time;
    ++count;
    record.preemptions.push_back({time, static_cast<RequestId>(position)});
  });
  if (count != request.num_preemptions) {
    times.fail(fmt::format("has {} times, but preemptions is {}", count, request.num_preemptions));
  }
}

void check_token_times(const JsonPlace& line, const RequestRecord& request, TimeNs first,
                       TimeNs last) {
  const auto check = [&line](const char* key, TimeNs written, TimeNs known) {
    if (written == known) return;
    line.at(key).fail("is not the time of that token; allowed: " +
                      (known == kNoTime ? std::string("null") : std::to_string(known)));
  };
  check("first_token_ns", request.first_token, first);
  check("last_token_ns", request.last_token, last);
}

}  // namespace metronome
