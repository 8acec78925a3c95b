// SPDX-License-Identifier: Apache-2.0
// trace.json: a run in Chrome's trace event format.
#include <algorithm>
#include <fmt/core.h>
#include <functional>
#include <limits>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include "core/base/json.h"
#include "core/base/json_text.h"
#include "core/engine/policies/registry.h"
#include "core/metrics/gap_analysis.h"
#include "reports/files/gap_parts_json.h"
#include "reports/files/json_lines.h"
#include "reports/files/request_slices.h"
#include "reports/files/result_files.h"
#include "system/file_writer.h"

namespace metronome {
namespace {

constexpr int kGpuProcess = 1;
constexpr int kRequestProcess = 2;
constexpr int kStepTrack = 1;
constexpr int kStallTrack = 2;
// Track numbers are unique over all processes, as viewers name threads by number only.
constexpr std::int64_t kBeforeRequests = 1000;
constexpr std::size_t kMaxStalls = 50;

std::size_t to_index(std::int32_t position) { return static_cast<std::size_t>(position); }

// The drawn steps [begin, end) and their time range.
struct Window {
  std::int32_t begin = 0;
  std::int32_t end = 0;
  TimeNs from = 0;
  TimeNs until = kNever;
  bool is_cut = false;
};

// The longest window around `centre` whose events fit into `max_bytes`; all steps if they fit.
Window choose_window(const RunRecord& record, const RequestSlices& slices, std::int32_t centre,
                     std::size_t max_bytes) {
  // Average bytes of events in the file, rounded up: a step with its counters; a chunk with its
  // arrow and its part of a request; a pause of a request with the slice after it.
  constexpr std::size_t kStepBytes = 280;
  constexpr std::size_t kChunkBytes = 700;
  constexpr std::size_t kRunBytes = 220;
  std::vector<std::int32_t> num_runs(record.steps.size());
  for (const TokenRun& run : record.runs) ++num_runs[to_index(run.first_step)];
  const auto bytes_of = [&](std::int32_t step) {
    return kStepBytes + kRunBytes * to_index(num_runs[to_index(step)]) +
           kChunkBytes * to_index(record.steps.num_prefill_chunks(to_index(step)));
  };
  const auto num_steps = static_cast<std::int32_t>(record.steps.size());
  Window window{centre, centre};
  std::size_t num_bytes = 0;
  while (num_bytes < max_bytes && (window.begin > 0 || window.end < num_steps)) {
    if (window.end < num_steps) num_bytes += bytes_of(window.end++);
    if (window.begin > 0) num_bytes += bytes_of(--window.begin);
  }
  window.is_cut = window.begin > 0 || window.end < num_steps;
  if (!window.is_cut) return window;
  window.from = slices.began_at(window.begin);
  window.until = record.steps.finished_at(to_index(window.end - 1));
  return window;
}

// The most tokens of a step according to the scenario; nullptr: no limit, or unknown.
Json token_budget_of(const Json& config) {
  const Json scheduler = config.value("scheduler", Json());
  const PolicyInfo* policy = find_policy(scheduler.value("policy", "").get<std::string>());
  if (policy == nullptr) return nullptr;
  const Json* limit = scheduler.find(policy->budget_key);
  return limit != nullptr && limit->is_number() ? *limit : Json();
}

// Writes events one after the other, each on its own line.
class EventWriter {
 public:
  explicit EventWriter(FileWriter& file) : file_(file) {}

  JsonText& json() { return json_; }
  // Opens an event; `name` is what the viewer shows.
  JsonText& begin(const char* phase, std::string_view name, int process, std::int64_t track) {
    if (json_.size() >= kFlushBytes) {
      file_.write(json_.view());
      json_.clear();
    }
    if (num_events_++ > 0) json_.break_line();
    json_.begin_object();
    json_.field("ph", phase);
    json_.field("name", name);
    json_.field("pid", process);
    json_.field("tid", track);
    return json_;
  }
  JsonText& begin_slice(std::string_view name, int process, std::int64_t track, TimeNs from,
                        TimeNs until) {
    begin("X", name, process, track);
    json_.key("ts").us(from);
    json_.key("dur").us(until - from);
    json_.key("args").begin_object();
    return json_;
  }
  // Closes an event whose args are open.
  void end() {
    json_.end_object();
    json_.end_object();
  }
  void name(const char* what, int process, std::int64_t track, const std::string& text) {
    begin("M", what, process, track).key("args").begin_object();
    json_.field("name", text);
    end();
  }
  void order(const char* what, int process, std::int64_t track) {
    begin("M", what, process, track).key("args").begin_object();
    json_.field("sort_index", track);
    end();
  }
  void flush() {
    file_.write(json_.view());
    json_.clear();
  }

 private:
  FileWriter& file_;
  JsonText json_;
  std::int64_t num_events_ = 0;
};

class TraceWriter {
 public:
  TraceWriter(const RunRecord& record, const RunInfo& info, FileWriter& file, std::size_t max_bytes)
      : record_(record), info_(info), slices_(record), gaps_(record), events_(file) {
    stalls_ = gaps_.longest_gaps(kMaxStalls, 1);
    window_ =
        choose_window(record, slices_, stalls_.empty() ? 0 : stalls_.front().step_after, max_bytes);
    budget_ = token_budget_of(info.config);
    choose_tracks();
  }

  void write();

 private:
  struct DrawnRequest {
    std::size_t request = 0;
    TimeNs from = 0;
    TimeNs until = 0;
    std::int64_t track = 0;
  };
  bool has(std::int32_t step) const { return step >= window_.begin && step < window_.end; }

  void choose_tracks();
  void write_head();
  void write_names();
  void write_steps();
  void write_counters(std::int32_t step);
  void write_stalls();
  void write_request(const DrawnRequest& drawn);
  void write_slice(const RequestSlice& slice, const DrawnRequest& drawn);
  void write_arrow(const RequestSlice& slice, std::int64_t track);
  void write_idle(TimeNs time, TimeNs until);
  void write_counts(TimeNs time, std::int32_t num_running, std::int32_t num_waiting,
                    std::int32_t num_used_blocks);

  const RunRecord& record_;
  const RunInfo& info_;
  RequestSlices slices_;
  GapAnalysis gaps_;
  EventWriter events_;
  std::vector<TokenGap> stalls_;
  Window window_;
  Json budget_;
  std::vector<DrawnRequest> drawn_;  // by arrival
  bool has_lanes_ = false;
  std::int64_t num_lanes_ = 0;
  // The values that the counters show.
  std::int32_t num_running_ = -1;
  std::int32_t num_waiting_ = -1;
  std::int32_t num_used_blocks_ = -1;
  // Sorted arrivals and ends of all requests. The engine is empty when both counts are equal.
  std::vector<TimeNs> arrivals_;
  std::vector<TimeNs> ends_;
};

// A lane becomes free when its request has ended.
void TraceWriter::choose_tracks() {
  for (std::size_t i = 0; i < record_.requests.size(); ++i) {
    const RequestRecord& request = record_.requests[i];
    const TimeNs until = slices_.end_of(i);
    arrivals_.push_back(request.arrival);
    if (request.ended != kNoTime) ends_.push_back(request.ended);
    if (until < window_.from || request.arrival > window_.until) continue;
    drawn_.push_back(
        {i, std::max(request.arrival, window_.from), std::min(until, window_.until), 0});
  }
  std::sort(arrivals_.begin(), arrivals_.end());
  std::sort(ends_.begin(), ends_.end());
  has_lanes_ = drawn_.size() > kMaxRequestTracks;
  std::stable_sort(drawn_.begin(), drawn_.end(),
                   [](const auto& a, const auto& b) { return a.from < b.from; });
  using Busy = std::pair<TimeNs, std::int64_t>;  // end time, lane
  std::priority_queue<Busy, std::vector<Busy>, std::greater<>> busy;
  std::priority_queue<std::int64_t, std::vector<std::int64_t>, std::greater<>> free;
  for (DrawnRequest& drawn : drawn_) {
    if (!has_lanes_) {
      drawn.track = kBeforeRequests + 1 + static_cast<std::int64_t>(drawn.request);
      continue;
    }
    for (; !busy.empty() && busy.top().first <= drawn.from; busy.pop()) {
      free.push(busy.top().second);
    }
    if (free.empty()) free.push(++num_lanes_);
    const std::int64_t lane = free.top();
    free.pop();
    busy.push({drawn.until, lane});
    drawn.track = kBeforeRequests + lane;
  }
}

void TraceWriter::write_head() {
  JsonText& json = events_.json();
  json.begin_object();
  json.field("displayTimeUnit", "ms");
  json.key("otherData").begin_object();
  json.field("label", info_.label);
  json.field("backend", info_.backend);
  json.field("model", info_.model);
  json.field("hardware", info_.hardware);
  json.field("policy", info_.policy);
  json.key("seed");
  info_.seed ? json.value(*info_.seed) : json.null();
  json.field("digest", info_.digest);
  json.field("num_steps", record_.steps.size());
  json.field("num_requests", record_.requests.size());
  json.field("first_step", window_.begin);
  json.field("last_step", window_.end - 1);
  json.field("is_cut", window_.is_cut);
  json.field("decode_times_are_estimates", gaps_.is_estimated());
  json.end_object();
  json.key("traceEvents").begin_array();
}

void TraceWriter::write_names() {
  std::string steps = "GPU: " + info_.label;
  if (window_.is_cut) {
    steps +=
        fmt::format(", steps {} to {} of {}", window_.begin, window_.end - 1, record_.steps.size());
  }
  events_.name("process_name", kGpuProcess, kStepTrack, steps);
  events_.order("process_sort_index", kGpuProcess, kStepTrack);
  events_.name("thread_name", kGpuProcess, kStepTrack, "steps");
  events_.name("thread_name", kGpuProcess, kStallTrack, "longest stalls");
  events_.name("process_name", kRequestProcess, kBeforeRequests, "requests");
  events_.order("process_sort_index", kRequestProcess, kBeforeRequests);
  if (has_lanes_) {
    for (std::int64_t lane = 1; lane <= num_lanes_; ++lane) {
      const std::int64_t track = kBeforeRequests + lane;
      events_.name("thread_name", kRequestProcess, track, fmt::format("lane {}", lane));
      events_.order("thread_sort_index", kRequestProcess, track);
    }
    return;
  }
  for (const DrawnRequest& drawn : drawn_) {
    events_.name("thread_name", kRequestProcess, drawn.track,
                 fmt::format("request {}", drawn.request));
    events_.order("thread_sort_index", kRequestProcess, drawn.track);
  }
}

// Writes only the counts that changed.
void TraceWriter::write_counts(TimeNs time, std::int32_t num_running, std::int32_t num_waiting,
                               std::int32_t num_used_blocks) {
  if (num_running != num_running_ || num_waiting != num_waiting_) {
    JsonText& json = events_.begin("C", "requests", kGpuProcess, kStepTrack);
    json.key("ts").us(time);
    json.key("args").begin_object();
    json.field("running", num_running);
    json.field("waiting", num_waiting);
    events_.end();
  }
  if (num_used_blocks != num_used_blocks_ && info_.num_blocks > 0) {
    JsonText& json = events_.begin("C", "KV cache", kGpuProcess, kStepTrack);
    json.key("ts").us(time);
    json.key("args").begin_object();
    json.field("used %", 100.0 * num_used_blocks / static_cast<double>(info_.num_blocks));
    events_.end();
  }
  num_running_ = num_running;
  num_waiting_ = num_waiting;
  num_used_blocks_ = num_used_blocks;
}

// Counts hold until the next plan, except while the engine is empty.
void TraceWriter::write_idle(TimeNs time, TimeNs until) {
  if (time >= until) return;
  const auto num_before = [time](const std::vector<TimeNs>& times) {
    return std::upper_bound(times.begin(), times.end(), time) - times.begin();
  };
  if (num_before(arrivals_) > num_before(ends_)) return;
  write_counts(time, 0, 0, 0);
}

void TraceWriter::write_steps() {
  for (std::int32_t s = window_.begin; s < window_.end; ++s) {
    const StepEntry& step = record_.steps[to_index(s)];
    write_counts(step.planned_at, step.num_running, step.num_waiting, step.num_used_blocks);
    const char* name = step.failed != 0               ? "failed"
                       : step.num_prefill_tokens == 0 ? "decode"
                       : step.num_decode_tokens == 0  ? "prefill"
                                                      : "mixed";
    JsonText& json =
        events_.begin_slice(name, kGpuProcess, kStepTrack, slices_.began_at(s), step.finished_at);
    json.field("step", s);
    json.field("prefill_tokens", step.num_prefill_tokens);
    json.field("decode_tokens", step.num_decode_tokens);
    if (budget_.is_number()) json.key("token_budget").raw(budget_.dump());
    json.field("kv_blocks", step.num_used_blocks);
    json.field("preemptions", std::int64_t{step.num_preempted});
    if (step.num_prefill_chunks > 0) {
      json.key("decodes_alone_ms").ms(gaps_.decode_ns(s));
      json.key("chunks").begin_array();
      for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
        const PrefillChunk& chunk = record_.prefills[to_index(step.first_prefill_chunk + c)];
        json.value(fmt::format("r{} {}..{}", index(chunk.request), chunk.first_position,
                               chunk.end_position()));
      }
      json.end_array();
    }
    events_.end();
    const bool is_last = s + 1 == window_.end;
    if (is_last && window_.is_cut) continue;
    write_idle(step.finished_at, is_last ? kNever : record_.steps.planned_at(to_index(s) + 1));
  }
}

void TraceWriter::write_stalls() {
  for (const TokenGap& gap : stalls_) {
    if (!has(gap.step_before) || !has(gap.step_after)) continue;
    JsonText& json = events_.begin("i", "stall", kGpuProcess, kStallTrack);
    json.key("ts").us(record_.steps.finished_at(to_index(gap.step_before)));
    json.field("s", "t");
    json.key("args").begin_object();
    json.field("request", index(gap.request));
    json.key("gap_ms").ms(gap.gap_ns);
    json.field("step_before", gap.step_before);
    json.field("step_after", gap.step_after);
    const GapParts parts = gaps_.parts(gap);
    append_gap_parts(parts, json);
    if (const Culprit culprit = gaps_.worst_chunk(gap); culprit.chunk >= 0) {
      const PrefillChunk& chunk = record_.prefills[to_index(culprit.chunk)];
      json.field("culprit",
                 fmt::format("request {}, tokens {}..{} in step {}", index(chunk.request),
                             chunk.first_position, chunk.end_position(), culprit.step));
      json.key("culprit_ms").ms(culprit.added_ns);
    } else if (parts.preemption_ns > 0) {
      json.field("culprit", "the request itself was preempted");
    }
    events_.end();
  }
}

// The arrow is in the middle of both slices, so it belongs to them even if others begin or end
// there.
void TraceWriter::write_arrow(const RequestSlice& slice, std::int64_t track) {
  const TimeNs time = slice.begin + (slice.end - slice.begin) / 2;
  const auto write_end = [&](const char* phase, int process, std::int64_t thread) {
    JsonText& json = events_.begin(phase, "chunk", process, thread);
    json.key("ts").us(time);
    json.field("cat", "chunk");
    json.field("id", slice.chunk);
    if (*phase == 'f') json.field("bp", "e");
    json.end_object();
  };
  write_end("s", kRequestProcess, track);
  write_end("f", kGpuProcess, kStepTrack);
}

void TraceWriter::write_slice(const RequestSlice& slice, const DrawnRequest& drawn) {
  const TimeNs from = std::max(slice.begin, drawn.from);
  const TimeNs until = std::min(slice.end, drawn.until);
  if (from > until || (from == until && slice.begin < slice.end)) return;
  if (slice.chunk >= 0 && !has(slice.first_step)) return;
  if (slice.kind == SliceKind::Queue && slice.begin == slice.end) return;  // it did not wait
  std::string name(to_string(slice.kind));
  if (slice.kind == SliceKind::Prefill) name += fmt::format(" chunk {}", slice.number);
  JsonText& json = events_.begin_slice(name, kRequestProcess, drawn.track, from, until);
  if (slice.first_step >= 0) {
    json.field("step", slice.first_step);
    if (slice.last_step > slice.first_step) json.field("last_step", slice.last_step);
    json.field("output_tokens", slice.num_tokens);
  }
  if (slice.chunk >= 0) {
    const PrefillChunk& chunk = record_.prefills[to_index(slice.chunk)];
    json.field("first_position", chunk.first_position);
    json.field("prefill_tokens", chunk.num_tokens);
  }
  events_.end();
  if (slice.chunk >= 0) write_arrow(slice, drawn.track);
}

void TraceWriter::write_request(const DrawnRequest& drawn) {
  const RequestRecord& request = record_.requests[drawn.request];
  JsonText& json = events_.begin_slice(fmt::format("request {}", drawn.request), kRequestProcess,
                                       drawn.track, drawn.from, drawn.until);
  json.field("prompt_tokens", request.num_prompt_tokens);
  json.field("cached_tokens", request.num_prefix_hit_tokens);
  json.field("output_tokens", request.num_output_tokens);
  json.field("prefill_chunks", request.num_prefill_chunks);
  json.field("preemptions", request.num_preemptions);
  if (request.first_token != kNoTime) json.key("ttft_ms").ms(request.ttft_ns());
  if (request.has_itl()) json.key("max_itl_ms").ms(request.max_itl_ns);
  json.field("end", to_string(request.reason));
  events_.end();
  for (const RequestSlice& slice : slices_.of(drawn.request)) write_slice(slice, drawn);
}

void TraceWriter::write() {
  write_head();
  write_names();
  write_steps();
  write_stalls();
  for (const DrawnRequest& drawn : drawn_) write_request(drawn);
  events_.json().end_array();
  events_.json().end_object();
  events_.json().end_line();
  events_.flush();
}

}  // namespace

void write_trace_json(const RunRecord& record, const RunInfo& info, FileWriter& file,
                      std::size_t max_bytes) {
  TraceWriter(record, info, file, max_bytes).write();
}

}  // namespace metronome
