// SPDX-License-Identifier: Apache-2.0
#include "serve/client/bench_serve.h"

#include <algorithm>
#include <fmt/core.h>
#include <map>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/error.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/metrics/client_record.h"

namespace metronome {
namespace {

// Thresholds of the warnings.
constexpr double kLateMs = 5;             // p99 of sends
constexpr double kLateShareOfItl = 0.01;  // their median
constexpr double kLeastLateMs = 0.1;      // below this, the delay is the timer's
constexpr double kBusy = 0.8;             // of a processor
constexpr double kMergedShare = 0.01;     // of the token events

TimeNs start_of(const LoadedRequest& request) {
  if (request.sent != kNoTime) return request.sent;
  return request.ready != kNoTime ? request.ready : request.due;
}

std::int32_t as_count(std::int64_t number) {
  return static_cast<std::int32_t>(std::clamp<std::int64_t>(number, 0, INT32_MAX));
}

bool is_completed(const LoadedRequest& request) {
  return request.reason == EndReason::Length || request.reason == EndReason::Stop;
}

template <class Get>
Distribution over_sent(const LoadResult& load, Get get) {
  std::vector<double> sample;
  for (const LoadedRequest& request : load.requests) {
    if (request.sent != kNoTime) sample.push_back(static_cast<double>(get(request)));
  }
  return describe(sample);
}

Json delay_json(const Distribution& delay) {
  return {{"p50", delay.p50_ms}, {"p99", delay.p99_ms}, {"max", delay.max_ms}};
}

std::string in_ms(double ms) { return grouped_text(ms, ms < 10 ? 2 : 1) + " ms"; }
std::string share_text(double share) { return grouped_text(100 * share, 1) + " %"; }

std::string of_text(std::int64_t part, std::size_t whole) {
  return grouped_text(part) + " of " + count_text(whole, "request");
}

// "2 of 10 requests failed; first: request 3: HTTP 500: ...", one message per kind. A kind is the
// text up to its first digit, as addresses and ids begin there.
void add_failures(const LoadResult& load, std::vector<std::string>& warnings) {
  struct Kind {
    std::int64_t count = 0;
    std::size_t first = 0;
  };
  std::map<std::pair<EndReason, std::string>, Kind> kinds;
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    const LoadedRequest& request = load.requests[i];
    if (request.error.empty()) continue;
    const std::size_t colon = request.error.find(": ");
    Kind& kind = kinds[{request.reason, request.error.substr(0, colon)}];
    if (kind.count++ == 0) kind.first = i;
  }
  for (const auto& [key, kind] : kinds) {
    const char* const what = key.first == EndReason::QueueFull ? " were refused"
                             : key.first == EndReason::Aborted ? " timed out"
                                                               : " failed";
    warnings.push_back(fmt::format("{}{}; first: request {}: {}",
                                   of_text(kind.count, load.requests.size()), what, kind.first,
                                   load.requests[kind.first].error));
  }
}

struct TokenCounts {
  std::int64_t num_counted = 0;    // requests with usage
  std::int64_t num_different = 0;  // of those, with a number of events that is not their tokens'
  std::int64_t events = 0;
  std::int64_t tokens = 0;
  std::int64_t num_short = 0;  // fewer tokens than requested
  std::int64_t num_long = 0;   // more
  std::int64_t prompt_sent = 0;
  std::int64_t prompt_counted = 0;
};

TokenCounts count_tokens(const Workload& workload, const LoadResult& load) {
  TokenCounts counts;
  for (std::size_t i = 0; i < load.requests.size(); ++i) {
    const LoadedRequest& request = load.requests[i];
    if (!is_completed(request)) continue;
    const auto num_events = static_cast<std::int64_t>(request.tokens.size());
    const std::int64_t num_tokens = request.completion_tokens.value_or(num_events);
    counts.num_short += num_tokens < workload.requests[i].max_output_tokens ? 1 : 0;
    counts.num_long += num_tokens > workload.requests[i].max_output_tokens ? 1 : 0;
    if (request.prompt_tokens) {
      counts.prompt_sent += workload.requests[i].num_prompt_tokens;
      counts.prompt_counted += *request.prompt_tokens;
    }
    if (!request.completion_tokens) continue;
    ++counts.num_counted;
    counts.events += num_events;
    counts.tokens += num_tokens;
    counts.num_different += num_events != num_tokens ? 1 : 0;
  }
  return counts;
}

}  // namespace

RunRecord record_of_load(const Workload& workload, const LoadResult& load, LoadEndpoint endpoint) {
  METRONOME_CHECK(workload.requests.size() == load.requests.size(), "a load is of its workload");
  std::vector<WatchedRequest> watched(load.requests.size());
  for (std::size_t i = 0; i < watched.size(); ++i) {
    const LoadedRequest& loaded = load.requests[i];
    RequestRecord& request = watched[i].request;
    request.arrival = start_of(loaded);
    request.ended = loaded.ended;
    request.reason = loaded.reason;
    request.priority = workload.requests[i].priority;
    request.class_number = workload.requests[i].class_number;
    request.num_prompt_tokens = workload.requests[i].num_prompt_tokens;
    if (endpoint == LoadEndpoint::Chat && loaded.prompt_tokens) {
      request.num_prompt_tokens = as_count(*loaded.prompt_tokens);
    }
    request.max_output_tokens = workload.requests[i].max_output_tokens;
    const auto num_events = static_cast<std::int64_t>(loaded.tokens.size());
    // A request without an event has no token times.
    const std::int64_t num_tokens =
        is_completed(loaded)
            ? std::max<std::int64_t>(loaded.completion_tokens.value_or(num_events), 1)
            : num_events;
    watched[i].view = {loaded.due, as_count(num_tokens)};
    watched[i].token_times = loaded.tokens;
  }
  return make_client_record(watched);
}

ClientHealth client_health(const LoadResult& load, const Summary& summary) {
  ClientHealth health;
  health.send_delay = over_sent(load, [](const LoadedRequest& r) { return r.sent - r.due; });
  health.send_late = over_sent(load, [](const LoadedRequest& r) { return r.sent - r.ready; });
  std::vector<double> lags(load.loop.lags.begin(), load.loop.lags.end());
  health.loop_lag = describe(lags);
  if (load.loop.wall_ns > 0) {
    health.cpu_share =
        static_cast<double>(load.loop.cpu_ns) / static_cast<double>(load.loop.wall_ns);
  }
  health.busiest_second = load.loop.busiest_second;
  health.num_reads = load.loop.num_reads;
  health.num_events = load.loop.num_events;
  health.num_merged = load.loop.num_merged;
  health.num_connections = load.loop.num_connections;
  health.num_retries = load.loop.num_retries;
  health.median_itl_ms = summary.itl.p50_ms;
  return health;
}

Json client_json(const ClientHealth& health) {
  return {{"send_delay_ms", delay_json(health.send_delay)},
          {"send_late_ms", delay_json(health.send_late)},
          {"loop_lag_ms", delay_json(health.loop_lag)},
          {"cpu_share", health.cpu_share},
          {"busiest_second_cpu_share", health.busiest_second},
          {"num_reads", health.num_reads},
          {"num_token_events", health.num_events},
          {"num_merged_token_events", health.num_merged},
          {"num_connections", health.num_connections},
          {"num_retries", health.num_retries},
          {"warnings", Json(client_warnings(health))}};
}

std::vector<std::string> client_warnings(const ClientHealth& health) {
  std::vector<std::string> warnings;
  const Distribution& late = health.send_late;
  const double limit_ms = std::max(kLeastLateMs, kLateShareOfItl * health.median_itl_ms);
  const bool is_often_late = late.count > 0 && health.median_itl_ms > 0 && late.p50_ms > limit_ms;
  if ((late.count > 0 && late.p99_ms > kLateMs) || is_often_late) {
    warnings.push_back(
        "the client sent requests late: p50 " + in_ms(late.p50_ms) + ", p99 " + in_ms(late.p99_ms) +
        ", max " + in_ms(late.max_ms) + " after they were due" +
        (is_often_late ? " (median ITL " + in_ms(health.median_itl_ms) + ")" : "") +
        "; TTFT is measured from sending, but arrivals at the server differ from the scenario's");
  }
  if (health.busiest_second > kBusy) {
    warnings.push_back(
        fmt::format("the client was busy for {} of a second ({} of the whole time) and may have "
                    "added to the latencies; run it on a separate machine, or with a smaller load",
                    share_text(health.busiest_second), share_text(health.cpu_share)));
  }
  const auto num_events = static_cast<double>(health.num_events);
  if (static_cast<double>(health.num_merged) > kMergedShare * num_events) {
    // A short run has no figure of the loop.
    const std::string reason = health.loop_lag.count > 0
                                   ? "the client's loop was late by p99 " +
                                         in_ms(health.loop_lag.p99_ms) +
                                         "; the server sent the others together"
                                   : "the client's loop was late, or the server sent them together";
    warnings.push_back(grouped_text(health.num_merged) + " of " + grouped_text(health.num_events) +
                       " token events were read together with another one of the same request, "
                       "with a gap of 0: " +
                       reason);
  }
  return warnings;
}

std::vector<std::string> load_warnings(const Workload& workload, const LoadResult& load,
                                       LoadEndpoint endpoint) {
  std::vector<std::string> warnings;
  add_failures(load, warnings);
  const TokenCounts counts = count_tokens(workload, load);
  if (counts.num_different > 0) {
    warnings.push_back("the server counts " + count_text(counts.tokens, "token") + " in " +
                       count_text(counts.events, "event") + " (they differ in " +
                       of_text(counts.num_different, static_cast<std::size_t>(counts.num_counted)) +
                       "): ITL is between events, not between tokens");
  }
  if (counts.num_short > 0 || counts.num_long > 0) {
    warnings.push_back(of_text(counts.num_short, load.requests.size()) + " got fewer and " +
                       grouped_text(counts.num_long) +
                       " more tokens than the workload asks for: the server does not handle "
                       "ignore_eos and max_tokens as vLLM does");
  }
  if (endpoint == LoadEndpoint::Completions && counts.prompt_sent != counts.prompt_counted) {
    warnings.push_back("the server counts " + count_text(counts.prompt_counted, "prompt token") +
                       ", but " + grouped_text(counts.prompt_sent) + " were sent");
  }
  return warnings;
}

void append_vllm_detail(const RunRecord& record, const LoadResult& load, JsonText& json) {
  const auto list = [&](const char* name, auto append) {
    json.key(name);
    json.begin_array();
    for (std::size_t i = 0; i < record.requests.size(); ++i) append(i, record.requests[i]);
    json.end_array();
  };
  list("input_lens", [&](std::size_t, const RequestRecord& r) { json.value(r.num_prompt_tokens); });
  list("output_lens", [&](std::size_t, const RequestRecord& r) {
    json.value(r.completed() ? r.num_output_tokens : 0);
  });
  list("ttfts", [&](std::size_t, const RequestRecord& r) {
    json.value(r.first_token == kNoTime ? 0.0 : to_seconds(r.ttft_ns()));
  });
  list("itls", [&](std::size_t i, const RequestRecord&) {
    json.begin_array();
    const std::vector<TimeNs>& times = load.requests[i].tokens;
    for (std::size_t k = 1; k < times.size(); ++k) json.value(to_seconds(times[k] - times[k - 1]));
    json.end_array();
  });
  // 0 for a request that failed, as vLLM's.
  list("latencies", [&](std::size_t, const RequestRecord& r) {
    json.value(r.completed() ? to_seconds(r.e2el_ns()) : 0.0);
  });
  list("start_times",
       [&](std::size_t, const RequestRecord& r) { json.value(to_seconds(r.arrival)); });
  list("queue_times", [&](std::size_t i, const RequestRecord& r) {
    json.value(to_seconds(r.arrival - load.requests[i].due));
  });
  list("generated_texts", [&](std::size_t, const RequestRecord&) { json.value(""); });
  list("errors", [&](std::size_t i, const RequestRecord& r) {
    const std::string& error = load.requests[i].error;
    json.value(r.completed() ? "" : error.empty() ? "failed" : error.c_str());
  });
}

}  // namespace metronome
