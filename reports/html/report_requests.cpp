// SPDX-License-Identifier: Apache-2.0
// The report data about requests: stalls and their causes, request bars, and what first tokens
// waited for.
#include <algorithm>
#include <vector>

#include "core/base/distribution.h"
#include "core/metrics/gap_analysis.h"
#include "reports/html/report_columns.h"

namespace metronome {
namespace {

constexpr std::size_t kMaxCulprits = 10;
constexpr std::size_t kTtftGroups = 60;
// Used without an ITL limit in the SLO: the colour threshold of vLLM's request timeline.
constexpr double kLateGapMs = 25;

std::int64_t number(RequestId request) { return static_cast<std::int64_t>(index(request)); }
std::size_t at(std::int32_t position) { return static_cast<std::size_t>(position); }

void append_parts(const GapParts& parts, JsonText& json) {
  json.begin_object();
  json.field("decode", to_us(parts.decode_ns));
  if (parts.draft_ns > 0) json.field("drafts", to_us(parts.draft_ns));
  if (parts.encode_ns > 0) json.field("encode", to_us(parts.encode_ns));
  json.field("prefill", to_us(parts.prefill_ns));
  json.field("host", to_us(parts.host_ns));
  json.field("waiting", to_us(parts.waiting_ns));
  json.field("preemption", to_us(parts.preemption_ns));
  json.end_object();
}

// The cause of the gap, and the tokens prefilled during it.
void append_cause(const RunRecord& record, const GapAnalysis& analysis, const TokenGap& gap,
                  JsonText& json) {
  json.field("prefill_tokens", analysis.num_prefill_tokens(gap));
  json.key("chunk");
  const Culprit worst = analysis.worst_chunk(gap);
  if (worst.chunk < 0) return json.null();
  const PrefillChunk& chunk = record.prefills[at(worst.chunk)];
  json.begin_object();
  json.field("request", number(chunk.request));
  json.field("first_position", chunk.first_position);
  json.field("tokens", chunk.num_tokens);
  json.field("step", worst.step);
  json.end_object();
}

void append_culprit(const RunRecord& record, const Culprit& culprit, JsonText& json) {
  const PrefillChunk& chunk = record.prefills[at(culprit.chunk)];
  json.begin_object();
  json.field("request", number(chunk.request));
  json.field("first_position", chunk.first_position);
  json.field("tokens", chunk.num_tokens);
  json.field("step", culprit.step);
  json.field("end", to_us(record.steps.finished_at(at(culprit.step))));
  json.field("added", to_us(culprit.added_ns));
  json.field("delayed", culprit.num_delayed);
  json.field("total", to_us(culprit.stall_ns()));
  json.end_object();
}

// The time between a stall and the processing of a request: 0 if they overlap. Negative for the
// stalled request and for requests whose prompts were computed during the stall.
class StallDistance {
 public:
  StallDistance(const RunRecord& record, const TokenGap& stall)
      : record_(record),
        stalled_(index(stall.request)),
        began_(record.steps.finished_at(at(stall.step_before))),
        ended_(record.steps.finished_at(at(stall.step_after))),
        is_prefilled_(record.requests.size()) {
    for (std::int32_t s = stall.step_before + 1; s <= stall.step_after; ++s) {
      const StepEntry& step = record.steps[at(s)];
      for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
        is_prefilled_[index(record.prefills[at(step.first_prefill_chunk + c)].request)] = true;
      }
    }
  }

  TimeNs operator()(std::size_t i) const {
    if (i == stalled_) return -2;
    if (is_prefilled_[i]) return -1;
    const RequestRecord& request = record_.requests[i];
    const TimeNs from =
        request.first_scheduled == kNoTime ? request.arrival : request.first_scheduled;
    const TimeNs until = request.ended == kNoTime ? ended_ : request.ended;
    return std::max<TimeNs>({0, from - ended_, began_ - until});
  }

 private:
  const RunRecord& record_;
  std::size_t stalled_;
  TimeNs began_;
  TimeNs ended_;
  std::vector<bool> is_prefilled_;
};

// The requests drawn individually: all that arrived, or the nearest to the longest stall. Without
// any stall, the first ones.
std::vector<std::size_t> drawn_requests(const RunRecord& record, const GapAnalysis& analysis,
                                        std::size_t max_requests) {
  std::vector<std::size_t> drawn;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    if (record.requests[i].num_prompt_tokens > 0) drawn.push_back(i);
  }
  if (drawn.size() <= max_requests) return drawn;
  const std::vector<TokenGap> longest = analysis.longest_gaps(1, 1);
  if (!longest.empty()) {
    const StallDistance distance(record, longest.front());
    std::stable_sort(drawn.begin(), drawn.end(),
                     [&](std::size_t a, std::size_t b) { return distance(a) < distance(b); });
  }
  drawn.resize(max_requests);
  std::sort(drawn.begin(), drawn.end());
  return drawn;
}

// A mark drawn into a request's bar.
struct Mark {
  std::size_t row = 0;
  std::int32_t step = 0;
  std::int64_t length = 0;  // tokens of a chunk; nanoseconds of a gap
};

// The longest `max_marks`, by row and step.
std::vector<Mark> longest_marks(std::vector<Mark> marks, std::size_t max_marks) {
  if (marks.size() > max_marks) {
    std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
      if (a.length != b.length) return a.length > b.length;
      return a.row != b.row ? a.row < b.row : a.step < b.step;
    });
    marks.resize(max_marks);
  }
  std::sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) {
    return a.row != b.row ? a.row < b.row : a.step < b.step;
  });
  return marks;
}

std::vector<Mark> late_gaps(const RunRecord& record, const std::vector<std::size_t>& drawn,
                            TimeNs late_ns) {
  std::vector<Mark> gaps;
  const auto look_at = [&](std::size_t row, std::int32_t before, std::int32_t after) {
    const TimeNs gap = record.steps.finished_at(at(after)) - record.steps.finished_at(at(before));
    if (gap > late_ns) gaps.push_back({row, after, gap});
  };
  for (std::size_t row = 0; row < drawn.size(); ++row) {
    std::int32_t last = -1;
    for (const TokenRun& run : record.runs_of(drawn[row])) {
      if (last >= 0) look_at(row, last, run.first_step);
      for (last = run.first_step; last < run.last_step(); ++last) look_at(row, last, last + 1);
    }
  }
  return gaps;
}

std::vector<Mark> chunk_marks(const RunRecord& record, const std::vector<std::size_t>& drawn) {
  constexpr std::size_t kNotDrawn = static_cast<std::size_t>(-1);
  std::vector<std::size_t> row_of(record.requests.size(), kNotDrawn);
  for (std::size_t row = 0; row < drawn.size(); ++row) row_of[drawn[row]] = row;
  std::vector<Mark> marks;
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const StepEntry& step = record.steps[s];
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const PrefillChunk& chunk = record.prefills[at(step.first_prefill_chunk + c)];
      const std::size_t row = row_of[index(chunk.request)];
      if (row == kNotDrawn) continue;
      marks.push_back({row, static_cast<std::int32_t>(s), chunk.num_tokens});
    }
  }
  return marks;
}

void append_marks(const char* name, const RunRecord& record, const std::vector<TimeNs>& times,
                  const std::vector<Mark>& marks, bool is_chunk, JsonText& json) {
  VlqText row, end, time, tokens;
  for (const Mark& mark : marks) {
    row.append_delta(static_cast<std::int64_t>(mark.row));
    end.append_delta(to_us(record.steps.finished_at(at(mark.step))));
    time.append(to_us(is_chunk ? times[at(mark.step)] : mark.length));
    tokens.append(mark.length);
  }
  json.key(name);
  json.begin_object();
  json.field("row", row.text());
  json.field("end", end.text());
  json.field("time", time.text());
  if (is_chunk) json.field("tokens", tokens.text());
  json.end_object();
}

// The time since arrival plus 1; 0 if the event never happened.
std::int64_t since_arrival(const RequestRecord& request, TimeNs time) {
  return time == kNoTime ? 0 : to_us(time) - to_us(request.arrival) + 1;
}

void append_request_columns(const RunRecord& record, const std::vector<std::size_t>& drawn,
                            JsonText& json) {
  VlqText id, arrival, scheduled, first, last, ended, prompt, cached, output, chunks, preempted;
  VlqText reason, max_gap;
  for (const std::size_t i : drawn) {
    const RequestRecord& request = record.requests[i];
    id.append_delta(static_cast<std::int64_t>(i));
    arrival.append_delta(to_us(request.arrival));
    scheduled.append(since_arrival(request, request.first_scheduled));
    first.append(since_arrival(request, request.first_token));
    last.append(since_arrival(request, request.last_token));
    ended.append(since_arrival(request, request.ended));
    prompt.append(request.num_prompt_tokens);
    cached.append(request.num_prefix_hit_tokens);
    output.append(request.num_output_tokens);
    chunks.append(request.num_prefill_chunks);
    preempted.append(request.num_preemptions);
    reason.append(static_cast<int>(request.reason));
    max_gap.append(request.has_itl() ? to_us(request.max_itl_ns) : 0);
  }
  json.field("id", id.text());
  json.field("arrival", arrival.text());
  json.field("scheduled", scheduled.text());
  json.field("first", first.text());
  json.field("last", last.text());
  json.field("ended", ended.text());
  json.field("prompt", prompt.text());
  json.field("cached", cached.text());
  json.field("output", output.text());
  json.field("chunks", chunks.text());
  json.field("preempted", preempted.text());
  json.field("reason", reason.text());
  json.field("max_gap", max_gap.text());
}

struct TtftParts {
  RequestId request = kNoRequest;
  TimeNs ttft_ns = 0;
  TimeNs front_end_ns = 0;
  TimeNs queue_ns = 0;
  TimeNs own_ns = 0;  // the steps that computed its chunks
};

// Of completed requests, shortest TTFT first.
std::vector<TtftParts> ttft_parts(const RunRecord& record) {
  if (!record.has_steps()) return {};
  const std::vector<TimeNs> times = device_times(record);
  std::vector<TimeNs> own(record.requests.size());
  for (std::size_t s = 0; s < record.steps.size(); ++s) {
    const StepEntry& step = record.steps[s];
    for (std::int32_t c = 0; c < step.num_prefill_chunks; ++c) {
      const auto i = index(record.prefills[at(step.first_prefill_chunk + c)].request);
      if (step.finished_at <= record.requests[i].first_token) own[i] += times[s];
    }
  }
  std::vector<TtftParts> all;
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    const RequestRecord& request = record.requests[i];
    if (!request.completed() || request.first_token == kNoTime) continue;
    const TimeNs front_end_ns = record.front_end_ns(i);
    const TimeNs queue_ns = std::max<TimeNs>(0, record.queue_ns(i));
    all.push_back({static_cast<RequestId>(i), request.ttft_ns(), front_end_ns, queue_ns,
                   std::min(own[i], request.ttft_ns() - front_end_ns - queue_ns)});
  }
  std::sort(all.begin(), all.end(), [](const TtftParts& a, const TtftParts& b) {
    return a.ttft_ns != b.ttft_ns ? a.ttft_ns < b.ttft_ns : a.request < b.request;
  });
  return all;
}

// The gaps to report, longest first. The requests hit by one stall receive their next tokens in one
// step. A client sees them at several instants, so only the longest of overlapping gaps counts.
std::vector<TokenGap> told_gaps(const RunRecord& record, const GapAnalysis& analysis,
                                std::size_t max_gaps) {
  if (record.has_steps()) return analysis.longest_gaps(max_gaps, 1);
  constexpr std::size_t kMoreToLookAt = 1024;
  std::vector<TokenGap> told;
  for (const TokenGap& gap : analysis.longest_gaps(max_gaps + kMoreToLookAt, 1)) {
    const auto overlaps = [&](const TokenGap& other) {
      return gap.step_before < other.step_after && other.step_before < gap.step_after;
    };
    if (told.size() == max_gaps) break;
    if (std::none_of(told.begin(), told.end(), overlaps)) told.push_back(gap);
  }
  return told;
}

}  // namespace

void append_stalls(const RunRecord& record, const GapAnalysis& analysis, const ReportLimits& limits,
                   JsonText& json) {
  json.key("stalls");
  json.begin_array();
  for (const TokenGap& gap : told_gaps(record, analysis, limits.max_stalls)) {
    json.begin_object();
    json.field("request", number(gap.request));
    json.field("began", to_us(record.steps.finished_at(at(gap.step_before))));
    json.field("gap", to_us(gap.gap_ns));
    json.field("delayed", analysis.num_waiting(gap));
    json.key("parts");
    append_parts(analysis.parts(gap), json);
    append_cause(record, analysis, gap, json);
    json.end_object();
  }
  json.end_array();
  json.key("culprits");
  json.begin_array();
  for (const Culprit& culprit : analysis.culprits(kMaxCulprits)) {
    append_culprit(record, culprit, json);
  }
  json.end_array();
  json.key("culprit_requests");
  json.begin_array();
  for (const CulpritRequest& culprit : analysis.culprit_requests(kMaxCulprits)) {
    json.begin_object();
    json.field("request", number(culprit.request));
    json.field("prompt_tokens", record.requests[index(culprit.request)].num_prompt_tokens);
    json.field("chunks", culprit.num_chunks);
    json.field("max_delayed", culprit.max_delayed);
    json.field("total", to_us(culprit.stall_ns));
    json.end_object();
  }
  json.end_array();
  json.key("total_parts");
  append_parts(analysis.total(), json);
}

void append_requests(const RunRecord& record, const GapAnalysis& analysis, const SloConfig& slo,
                     const ReportLimits& limits, JsonText& json) {
  const std::vector<std::size_t> drawn = drawn_requests(record, analysis, limits.max_requests);
  const std::vector<TimeNs> times = device_times(record);
  const double late_ms = slo.itl_ms.value_or(kLateGapMs);
  const std::vector<Mark> gaps = late_gaps(record, drawn, longest_within(late_ms));
  const std::vector<Mark> chunks = chunk_marks(record, drawn);
  json.key("requests");
  json.begin_object();
  json.field("num_requests", record.requests.size());
  json.field("num_drawn", drawn.size());
  json.field("num_chunks", chunks.size());
  json.field("num_late", gaps.size());
  json.field("late_ms", late_ms);
  append_request_columns(record, drawn, json);
  append_marks("prefills", record, times, longest_marks(chunks, limits.max_request_marks), true,
               json);
  append_marks("late", record, times, longest_marks(gaps, limits.max_request_marks), false, json);
  json.end_object();
}

void append_ttft_parts(const RunRecord& record, JsonText& json) {
  const std::vector<TtftParts> all = ttft_parts(record);
  const std::size_t num_groups = std::min(kTtftGroups, all.size());
  VlqText size, ttft, front_end, queue, own;
  for (std::size_t g = 0; g < num_groups; ++g) {
    const std::size_t begin = g * all.size() / num_groups;
    const std::size_t end = (g + 1) * all.size() / num_groups;
    TtftParts sum;
    for (std::size_t i = begin; i < end; ++i) {
      sum.ttft_ns += all[i].ttft_ns;
      sum.front_end_ns += all[i].front_end_ns;
      sum.queue_ns += all[i].queue_ns;
      sum.own_ns += all[i].own_ns;
    }
    size.append(static_cast<std::int64_t>(end - begin));
    ttft.append(to_us(sum.ttft_ns));
    front_end.append(to_us(sum.front_end_ns));
    queue.append(to_us(sum.queue_ns));
    own.append(to_us(sum.own_ns));
  }
  json.key("ttft_parts");
  json.begin_object();
  json.field("size", size.text());
  json.field("ttft", ttft.text());  // sums over the group
  json.field("front_end", front_end.text());
  json.field("queue", queue.text());
  json.field("own", own.text());
  json.end_object();
}

}  // namespace metronome
