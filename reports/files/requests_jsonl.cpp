// SPDX-License-Identifier: Apache-2.0
#include <cmath>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/metrics/client_record.h"
#include "reports/files/json_lines.h"
#include "reports/files/requests_stream.h"
#include "reports/files/result_files.h"
#include "system/progress.h"

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

// The fields that refer to no steps.
struct RequestFacts {
  std::size_t number;
  const RequestRecord& request;
  const std::vector<std::string>& class_names;
  std::optional<std::int32_t> replica;  // of a fleet; -1: the request reached none
  TimeNs handed_over;                   // kNoTime: at its arrival, which is not written
};

void append_facts(const RequestFacts& facts, JsonText& json) {
  const RequestRecord& request = facts.request;
  const bool has_token = request.first_token != kNoTime;
  const bool has_itl = request.has_itl();
  json.field("request", facts.number);
  json.field("end", to_string(request.reason));
  json.field("priority", request.priority);
  if (request.class_number != 0) {
    json.field("class", facts.class_names[request.class_number - std::size_t{1}]);
  }
  if (facts.replica) {
    json.key("replica");
    if (*facts.replica < 0) {
      json.null();
    } else {
      json.value(*facts.replica);
    }
  }
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
  const bool was_handed_over = facts.handed_over != kNoTime;
  if (was_handed_over) json.field("handed_over_ns", facts.handed_over);
  const TimeNs seen = was_handed_over ? facts.handed_over : request.arrival;
  append_ms(json, "queue_ms", request.first_scheduled != kNoTime, request.first_scheduled - seen);
  append_ms(json, "ttft_ms", has_token, request.ttft_ns());
  append_ms(json, "e2el_ms", has_token, request.e2el_ns());
  // Rounded to the nanosecond, like every other time here.
  append_ms(json, "tpot_ms", has_itl, has_itl ? std::llround(request.tpot_ns()) : 0);
  const bool has_gap = has_itl && request.max_itl_step >= 0;
  append_ms(json, "min_itl_ms", has_gap, request.min_itl_ns);
  append_ms(json, "max_itl_ms", has_gap, request.max_itl_ns);
}

void append_preemptions(std::span<const TimeNs> preempted, JsonText& json) {
  json.key("preempted_ns");
  json.begin_array();
  for (const TimeNs time : preempted) json.value(time);
  json.end_array();
}

void append_request(const RunRecord& record, std::size_t i, std::span<const TimeNs> preempted,
                    JsonText& json) {
  const RequestRecord& request = record.requests[i];
  json.begin_object();
  append_facts({.number = i,
                .request = request,
                .class_names = record.class_names,
                .replica = record.replicas.empty() ? std::nullopt
                                                   : std::optional(record.replica_of[i]),
                .handed_over = record.handed_over.empty() ? kNoTime : record.handed_over[i]},
               json);
  if (!record.has_steps()) {
    append_token_times(record, i, json);
    json.end_object();
    json.end_line();
    return;
  }
  if (request.has_itl()) {
    json.field("max_itl_step", request.max_itl_step);
  } else {
    json.key("max_itl_step").null();
  }
  append_preemptions(preempted, json);
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

RequestsStream::RequestsStream(std::string path, std::int64_t max_bytes,
                               std::vector<std::string> class_names)
    : file_(std::move(path), throw_if_interrupted),
      max_bytes_(max_bytes),
      class_names_(std::move(class_names)) {}

void RequestsStream::take(const EndedRequest& ended) {
  if (is_too_large_) return;
  json_.begin_object();
  append_facts({.number = ended.number,
                .request = ended.record,
                .class_names = class_names_,
                .replica = ended.replica,
                .handed_over = ended.handed_over},
               json_);
  append_preemptions(ended.preempted, json_);
  json_.end_object();
  json_.end_line();
  if (json_.size() >= kFlushBytes) flush();
}

void RequestsStream::flush() {
  if (is_too_large_) return;
  is_too_large_ = file_.num_bytes() + static_cast<std::int64_t>(json_.size()) > max_bytes_;
  if (!is_too_large_) file_.write(json_.view());
  json_.clear();
}

bool RequestsStream::finish() {
  flush();
  if (!is_too_large_) file_.begin_sync();
  file_.close();
  return !is_too_large_;
}

void write_requests_jsonl(const RunRecord& record, FileWriter& file) {
  const PreemptionTimes preemptions(record);
  write_json_lines(record.requests.size(), file, [&](std::size_t i, JsonText& json) {
    append_request(record, i, preemptions.of(i), json);
  });
}

}  // namespace metronome
