// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <span>
#include <vector>

#include "core/metrics/client_record.h"
#include "reports/files/json_lines.h"
#include "reports/files/result_files.h"

namespace metronome {
namespace {

// A template on the literal keeps its length known, which makes these lines cheap.
template <std::size_t kSize>
void append_time(JsonText& json, const char (&name)[kSize], TimeNs time) {
  if (time == kNoTime) return json.key(name).null();
  json.field(name, time);
}

template <std::size_t kSize>
void append_ms(JsonText& json, const char (&name)[kSize], bool exists, TimeNs ns) {
  if (!exists) return json.key(name).null();
  json.key(name).ms(ns);
}

// The times at which each request was preempted.
class PreemptionTimes {
 public:
  explicit PreemptionTimes(const RunRecord& record) : first_(record.requests.size() + 1) {
    for (const PreemptionRecord& p : record.preemptions) ++first_[index(p.request) + 1];
    for (std::size_t i = 1; i < first_.size(); ++i) first_[i] += first_[i - 1];
    times_.resize(record.preemptions.size());
    std::vector<std::size_t> next = first_;
    for (const PreemptionRecord& p : record.preemptions) times_[next[index(p.request)]++] = p.time;
  }
  std::span<const TimeNs> of(std::size_t i) const {
    return std::span(times_).subspan(first_[i], first_[i + 1] - first_[i]);
  }

 private:
  std::vector<std::size_t> first_;
  std::vector<TimeNs> times_;
};

// Written instead of the fields that refer to steps.
void append_token_times(const RunRecord& record, std::size_t i, JsonText& json) {
  json.field("due_ns", record.client[i].due);
  json.key("token_ns");
  json.begin_array();
  for (const TimeNs time : token_times(record, i)) json.value(time);
  json.end_array();
}

// Of a fleet; null for a request that reached none.
void append_replica(const RunRecord& record, std::size_t i, JsonText& json) {
  if (record.replicas.empty()) return;
  json.key("replica");
  if (record.replica_of[i] < 0) {
    json.null();
  } else {
    json.value(record.replica_of[i]);
  }
}

void append_request(const RunRecord& record, std::size_t i, std::span<const TimeNs> preempted,
                    JsonText& json) {
  const RequestRecord& request = record.requests[i];
  const bool has_token = request.first_token != kNoTime;
  const bool has_itl = request.has_itl();
  json.begin_object();
  json.field("request", i);
  json.field("end", to_string(request.reason));
  json.field("priority", request.priority);
  if (request.class_number != 0) {
    json.field("class", record.class_names[request.class_number - std::size_t{1}]);
  }
  append_replica(record, i, json);
  json.field("prompt_tokens", request.num_prompt_tokens);
  json.field("cached_tokens", request.num_prefix_hit_tokens);
  json.field("max_tokens", request.max_output_tokens);
  json.field("output_tokens", request.num_output_tokens);
  json.field("prefill_chunks", request.num_prefill_chunks);
  json.field("preemptions", request.num_preemptions);
  json.field("arrival_ns", request.arrival);
  append_time(json, "first_scheduled_ns", request.first_scheduled);
  append_time(json, "last_scheduled_ns", request.last_scheduled);
  append_time(json, "first_token_ns", request.first_token);
  append_time(json, "last_token_ns", request.last_token);
  append_time(json, "ended_ns", request.ended);
  if (!record.handed_over.empty()) json.field("handed_over_ns", record.handed_over[i]);
  append_ms(json, "queue_ms", request.first_scheduled != kNoTime, record.queue_ns(i));
  append_ms(json, "ttft_ms", has_token, request.ttft_ns());
  append_ms(json, "e2el_ms", has_token, request.e2el_ns());
  // Rounded to the nanosecond, like every other time here.
  append_ms(json, "tpot_ms", has_itl, has_itl ? std::llround(request.tpot_ns()) : 0);
  const bool has_gap = has_itl && request.max_itl_step >= 0;
  append_ms(json, "min_itl_ms", has_gap, request.min_itl_ns);
  append_ms(json, "max_itl_ms", has_gap, request.max_itl_ns);
  if (!record.has_steps()) {
    append_token_times(record, i, json);
    json.end_object();
    json.end_line();
    return;
  }
  if (has_itl) {
    json.field("max_itl_step", request.max_itl_step);
  } else {
    json.key("max_itl_step").null();
  }
  json.key("preempted_ns");
  json.begin_array();
  for (const TimeNs time : preempted) json.value(time);
  json.end_array();
  json.key("runs");
  json.begin_array();
  for (const TokenRun& run : record.runs_of(i)) {
    json.begin_array();
    json.value(run.first_step);
    json.value(run.num_steps);
    json.end_array();
  }
  json.end_array();
  if (!record.token_counts.empty()) {  // the tokens of each step of the runs
    json.key("step_tokens");
    json.begin_array();
    for (const std::uint8_t count : record.counts_of(i)) json.value(std::int32_t{count});
    json.end_array();
  }
  json.end_object();
  json.end_line();
}

}  // namespace

void write_requests_jsonl(const RunRecord& record, FileWriter& file) {
  const PreemptionTimes preemptions(record);
  write_json_lines(record.requests.size(), file, [&](std::size_t i, JsonText& json) {
    append_request(record, i, preemptions.of(i), json);
  });
}

}  // namespace metronome
