// SPDX-License-Identifier: Apache-2.0
#include "reports/terminal/diagnosis.h"

#include <algorithm>
#include <fmt/core.h>
#include <numeric>
#include <utility>

#include "core/base/count_text.h"
#include "core/base/json_text.h"
#include "core/base/number_text.h"
#include "core/base/text_table.h"
#include "reports/files/gap_parts_json.h"
#include "reports/terminal/log_gaps.h"

namespace metronome {
namespace {

std::size_t index_of(std::int32_t position) { return static_cast<std::size_t>(position); }

// Rows for all gaps, gaps above the p99, and gaps above the limit; `beyond` returns the sum,
// `slow` that of its decodes in slow spans.
template <class Beyond, class Slow>
std::vector<GapRow> make_rows(const Distribution& itl, std::optional<double> itl_limit_ms,
                              const Beyond& beyond, const Slow& slow) {
  std::vector<GapRow> rows = {{"all", std::nullopt, beyond(-1), slow(-1)}};
  const auto add = [&](const char* name, double limit_ms) {
    const TimeNs limit = longest_within(limit_ms);
    rows.push_back({name, limit_ms, beyond(limit), slow(limit)});
  };
  if (itl.count > 0) add(kOverP99, itl.p99_ms);
  if (itl_limit_ms) add("over the limit", *itl_limit_ms);
  return rows;
}

Blame blame_of(const RunRecord& record, const Culprit& culprit) {
  const PrefillChunk& chunk = record.prefills[index_of(culprit.chunk)];
  return {culprit.step,
          static_cast<std::int64_t>(index(chunk.request)),
          chunk.first_position,
          chunk.num_tokens,
          1,
          culprit.added_ns,
          culprit.num_delayed};
}

// Steps of decodes alone that take far longer than before.
std::vector<SlowDecodes> slow_steps(const RunRecord& record) {
  constexpr std::size_t kLeastSteps = 3;
  std::vector<DecodeSample> samples;
  TimeNs device_free_at = 0;
  std::int64_t number = 0;
  for (const StepEntry& step : record.steps) {
    const TimeNs duration = step.finished_at - std::max(step.started_at, device_free_at);
    device_free_at = step.finished_at;
    const std::int64_t place = number++;
    if (step.num_prefill_tokens > 0 || step.num_decode_tokens == 0 || step.failed) continue;
    samples.push_back({place, "", std::int64_t{step.num_decode_tokens} - step.num_draft_tokens,
                       static_cast<double>(step.num_used_blocks), duration - step.draft_ns});
  }
  return find_slow_decodes(samples, kLeastSteps);
}

// Time that requests waited in gaps longer than `limit` for decodes of slow spans.
TimeNs slow_beyond(const RunRecord& record, const std::vector<SlowDecodes>& spans, TimeNs limit) {
  TimeNs sum = 0;
  for (const SlowDecodes& span : spans) {
    for (std::int64_t s = std::max<std::int64_t>(span.first_where, 1); s <= span.last_where; ++s) {
      const auto i = static_cast<std::size_t>(s);
      const StepEntry step = record.steps[i];
      const TimeNs before = record.steps.finished_at(i - 1);
      if (step.num_prefill_tokens > 0 || step.finished_at - before <= limit) continue;
      sum += step.num_continued * (step.finished_at - std::max(step.started_at, before));
    }
  }
  return sum;
}

// Gaps of a log, as a diagnosis takes them.
class LogView {
 public:
  explicit LogView(const LogGaps& log) : gaps_(log.gaps), slow_(log.slow) {}

  TimeNs slow_beyond(TimeNs limit) const {
    TimeNs sum = 0;
    for (const LoggedGap& gap : gaps_) {
      if (gap.gap_ns <= limit || span_at(slow_, gap.place()) == nullptr) continue;
      sum += gap.num_gaps * gap.decode_ns;
    }
    return sum;
  }

  Distribution distribution() const {
    std::vector<WeightedTime> sample;
    for (const LoggedGap& gap : gaps_) sample.push_back({gap.gap_ns, gap.num_gaps});
    return describe(sample);
  }
  static GapParts parts(const LoggedGap& gap) {
    return {.decode_ns = gap.decode_ns, .prefill_ns = gap.gap_ns - gap.decode_ns};
  }
  GapSum beyond(TimeNs limit) const {
    GapSum sum;
    for (const LoggedGap& gap : gaps_) {
      if (gap.gap_ns <= limit) continue;
      sum.num_gaps += gap.num_gaps;
      sum.parts.decode_ns += gap.num_gaps * parts(gap).decode_ns;
      sum.parts.prefill_ns += gap.num_gaps * parts(gap).prefill_ns;
    }
    return sum;
  }
  static Blame blame(const LoggedGap& gap) {
    return {gap.where,
            std::nullopt,
            0,
            static_cast<std::int32_t>(gap.num_prefill_tokens),
            static_cast<std::int32_t>(gap.num_prefill_batches),
            parts(gap).prefill_ns,
            static_cast<std::int32_t>(gap.num_waiting)};
  }
  static DiagnosedStall stall(const LoggedGap& gap) {
    DiagnosedStall stall;
    stall.gap_ns = gap.gap_ns;
    stall.parts = parts(gap);
    stall.num_waiting = static_cast<std::int32_t>(gap.num_waiting);
    stall.step = gap.where;
    stall.line = gap.line;
    stall.rank = gap.rank;
    if (gap.num_prefill_tokens > 0) stall.worst = blame(gap);
    return stall;
  }
  // Gaps of waiting requests, greatest `figure(gap)` first.
  template <class Figure>
  std::vector<LoggedGap> greatest(std::size_t max_entries, const Figure& figure) const {
    std::vector<LoggedGap> order;
    std::copy_if(gaps_.begin(), gaps_.end(), std::back_inserter(order),
                 [](const LoggedGap& gap) { return gap.num_gaps > 0; });
    std::stable_sort(order.begin(), order.end(),
                     [&](const LoggedGap& a, const LoggedGap& b) { return figure(a) > figure(b); });
    if (order.size() > max_entries) order.resize(max_entries);
    return order;
  }

 private:
  const std::vector<LoggedGap>& gaps_;
  const std::vector<SlowDecodes>& slow_;
};

// ---- text ----

std::string ms(TimeNs ns) { return ms_text(to_ms(ns)); }

std::string blame_text(const Blame& blame) {
  const std::string tokens = count_text(std::int64_t{blame.num_tokens}, "token");
  if (!blame.request && blame.num_batches > 1) {
    return fmt::format("{} in {} batches", tokens, blame.num_batches);
  }
  if (!blame.request) return tokens;
  const std::string who = fmt::format("request {}, ", *blame.request);
  return who + tokens + " from " + grouped_text(std::int64_t{blame.first_position});
}

std::string share_text(TimeNs part, TimeNs total) {
  if (total == 0) return "-";
  return fixed_text(100 * static_cast<double>(part) / static_cast<double>(total), 1);
}

constexpr std::ptrdiff_t kDraftColumn = 3;  // behind the decodes

bool has_part(const Diagnosis& diagnosis, TimeNs GapParts::*part) {
  return std::any_of(diagnosis.rows.begin(), diagnosis.rows.end(),
                     [part](const GapRow& row) { return row.sum.parts.*part > 0; });
}

TextBlock rows_block(const Diagnosis& diagnosis) {
  const bool has_drafts = has_part(diagnosis, &GapParts::draft_ns);
  const bool has_images = has_part(diagnosis, &GapParts::encode_ns);
  std::vector<std::string> header = {"",       "gaps",      "decode %",   "prefill %",
                                     "host %", "waiting %", "preempted %"};
  const bool is_slow = !diagnosis.slow.empty();
  if (has_images) header.insert(header.begin() + kDraftColumn, "encoding %");
  if (has_drafts) header.insert(header.begin() + kDraftColumn, "drafts %");
  if (is_slow) header.insert(header.begin() + kDraftColumn, "slow decode %");
  TextTable table(header, 0);
  for (const GapRow& row : diagnosis.rows) {
    const GapParts& parts = row.sum.parts;
    const auto share = [&parts](TimeNs part) { return share_text(part, parts.total_ns()); };
    const std::string limit = row.limit_ms ? ", " + ms_text(*row.limit_ms) + " ms" : std::string();
    std::vector<std::string> cells = {row.name + limit,
                                      grouped_text(row.sum.num_gaps),
                                      share(parts.decode_ns - row.slow_ns),
                                      share(parts.prefill_ns),
                                      share(parts.host_ns),
                                      share(parts.waiting_ns),
                                      share(parts.preemption_ns)};
    if (has_images) cells.insert(cells.begin() + kDraftColumn, share(parts.encode_ns));
    if (has_drafts) cells.insert(cells.begin() + kDraftColumn, share(parts.draft_ns));
    if (is_slow) cells.insert(cells.begin() + kDraftColumn, share(row.slow_ns));
    table.row(std::move(cells));
  }
  return {.title = "parts of the inter-token latency", .table = std::move(table)};
}

TextBlock stalls_block(const Diagnosis& diagnosis) {
  if (diagnosis.stalls.empty()) return {};
  constexpr std::size_t kNumStallParts = 5;  // of each gap; columns of zeros are left out
  std::vector<std::string> header = {"gap ms",  "decode",    "prefill", "host",
                                     "waiting", "preempted", "at s"};
  const bool has_drafts =
      std::any_of(diagnosis.stalls.begin(), diagnosis.stalls.end(),
                  [](const DiagnosedStall& stall) { return stall.parts.draft_ns > 0; });
  constexpr std::ptrdiff_t kBehindDecodes = 2;
  const bool has_images =
      std::any_of(diagnosis.stalls.begin(), diagnosis.stalls.end(),
                  [](const DiagnosedStall& stall) { return stall.parts.encode_ns > 0; });
  if (has_images) header.insert(header.begin() + kBehindDecodes, "encoding");
  if (has_drafts) header.insert(header.begin() + kBehindDecodes, "drafts");
  header.push_back("rank");
  header.push_back(diagnosis.step_word);
  header.push_back("requests");
  header.push_back("caused by");
  TextTable table(header, header.size() - 1);
  for (const DiagnosedStall& stall : diagnosis.stalls) {
    const GapParts& parts = stall.parts;
    std::string cause = "no prefill";
    if (const SlowDecodes* span = span_at(diagnosis.slow, {stall.step, stall.line, stall.rank})) {
      cause = fmt::format("slow decodes since {} {}", diagnosis.step_word, span->first_where);
    }
    if (stall.worst) cause = blame_text(*stall.worst) + " (" + ms(stall.worst->added_ns) + ")";
    if (parts.is_of_images()) {
      cause = "encoding of images, " + cause;
    } else if (parts.encode_ns > 0) {
      cause += ", encoding of images (" + ms(parts.encode_ns) + ")";
    }
    if (parts.preemption_ns > 0) {
      cause = fmt::format("request {} was preempted", *stall.request);
    }
    std::vector<std::string> cells = {
        ms(stall.gap_ns),
        ms(parts.decode_ns),
        ms(parts.prefill_ns),
        ms(parts.host_ns),
        ms(parts.waiting_ns),
        ms(parts.preemption_ns),
        stall.began_at ? grouped_text(to_seconds(*stall.began_at), 2) : "",
        diagnosis.has_ranks ? std::to_string(stall.rank) : "",
        std::to_string(stall.step),
        grouped_text(std::int64_t{stall.num_waiting}),
        cause};
    if (has_images) cells.insert(cells.begin() + kBehindDecodes, ms(parts.encode_ns));
    if (has_drafts) cells.insert(cells.begin() + kBehindDecodes, ms(parts.draft_ns));
    table.row(std::move(cells));
  }
  table.drop_columns_of("");
  table.drop_columns_of("0", 1, 1 + kNumStallParts + (has_images ? 1 : 0) + (has_drafts ? 1 : 0));
  return {.title = fmt::format("longest stalls, one per {}; milliseconds", diagnosis.step_word),
          .table = std::move(table)};
}

std::vector<TextBlock> chunk_blocks(const Diagnosis& diagnosis) {
  if (diagnosis.chunks.empty()) return {};
  TextTable table({"stall ms", "added ms", "delayed", diagnosis.step_word, "prefill"}, 4);
  for (const Blame& blame : diagnosis.chunks) {
    table.row({ms(blame.stall_ns()), ms(blame.added_ns),
               grouped_text(std::int64_t{blame.num_delayed}), std::to_string(blame.step),
               blame_text(blame)});
  }
  std::vector<TextBlock> blocks = {
      {.title = "head-of-line blocking by prefill: stall ms = added ms x delayed requests",
       .table = std::move(table)}};
  const bool is_chunked =
      std::any_of(diagnosis.requests.begin(), diagnosis.requests.end(),
                  [](const CulpritRequest& request) { return request.num_chunks > 1; });
  if (!is_chunked) return blocks;  // the rest would only repeat it
  TextTable requests({"stall ms", "chunks", "delayed", "all chunks of"}, 3);
  for (const CulpritRequest& request : diagnosis.requests) {
    requests.row({ms(request.stall_ns), grouped_text(std::int64_t{request.num_chunks}),
                  grouped_text(std::int64_t{request.max_delayed}),
                  fmt::format("request {}", index(request.request))});
  }
  blocks.push_back({.table = std::move(requests)});
  return blocks;
}

// ---- JSON ----

void append_blame(const Blame& blame, const std::string& step_word, JsonText& json) {
  json.begin_object();
  json.key(step_word).value(blame.step);
  if (blame.request) {
    json.field("request", *blame.request);
    json.field("first_position", blame.first_position);
  }
  json.field("prefill_tokens", blame.num_tokens);
  if (blame.num_batches > 1) json.field("prefill_batches", blame.num_batches);
  json.key("added_ms").ms(blame.added_ns);
  json.field("delayed", blame.num_delayed);
  json.key("stall_ms").ms(blame.stall_ns());
  json.end_object();
}

void append_stall(const DiagnosedStall& stall, const Diagnosis& diagnosis, JsonText& json) {
  const std::string& step_word = diagnosis.step_word;
  json.begin_object();
  json.key("gap_ms").ms(stall.gap_ns);
  append_gap_parts(stall.parts, json);
  if (stall.request) json.field("request", *stall.request);
  if (stall.began_at) json.key("began_at_ms").ms(*stall.began_at);
  if (diagnosis.has_ranks) json.field("rank", stall.rank);
  json.key(step_word).value(stall.step);
  json.field("requests", stall.num_waiting);
  json.key("largest_prefill");
  if (stall.worst) {
    append_blame(*stall.worst, step_word, json);
  } else {
    json.null();
  }
  json.end_object();
}

}  // namespace

Diagnosis diagnose(const RunRecord& record, const Distribution& itl, const DiagnosisLimits& limits,
                   std::size_t max_entries) {
  const GapAnalysis gaps(record);
  Diagnosis diagnosis;
  diagnosis.is_estimated = gaps.is_estimated();
  diagnosis.slow = slow_steps(record);
  diagnosis.rows = make_rows(
      itl, limits.itl_ms, [&gaps](TimeNs limit) { return gaps.beyond(limit); },
      [&](TimeNs limit) { return slow_beyond(record, diagnosis.slow, limit); });
  for (const TokenGap& gap : gaps.longest_gaps(max_entries, 1)) {
    DiagnosedStall stall;
    stall.gap_ns = gap.gap_ns;
    stall.parts = gaps.parts(gap);
    stall.request = static_cast<std::int64_t>(index(gap.request));
    stall.num_waiting = gaps.num_waiting(gap);
    stall.began_at = record.steps.finished_at(index_of(gap.step_before));
    stall.step = gap.step_after;
    const Culprit worst = gaps.worst_chunk(gap);
    if (worst.chunk >= 0) stall.worst = blame_of(record, worst);
    diagnosis.stalls.push_back(stall);
  }
  for (const Culprit& culprit : gaps.culprits(max_entries)) {
    diagnosis.chunks.push_back(blame_of(record, culprit));
  }
  diagnosis.requests = gaps.culprit_requests(max_entries);
  if (record.has_steps()) {
    diagnosis.late = find_late_tokens(record, limits.engine, limits.ttft_ms, max_entries);
  }
  return diagnosis;
}

Diagnosis diagnose(const LogGaps& log, std::optional<double> itl_limit_ms, std::size_t max_entries,
                   Distribution& itl) {
  const LogView view(log);
  itl = view.distribution();
  Diagnosis diagnosis;
  diagnosis.step_word = log.where_word;
  diagnosis.has_ranks = log.has_ranks;
  diagnosis.is_estimated = true;
  if (log.gaps.empty()) return diagnosis;
  diagnosis.slow = log.slow;
  diagnosis.rows = make_rows(
      itl, itl_limit_ms, [&view](TimeNs limit) { return view.beyond(limit); },
      [&view](TimeNs limit) { return view.slow_beyond(limit); });
  const auto length = [](const LoggedGap& gap) { return gap.gap_ns; };
  for (const LoggedGap& gap : view.greatest(max_entries, length)) {
    diagnosis.stalls.push_back(LogView::stall(gap));
  }
  const auto stall_ns = [](const LoggedGap& gap) { return LogView::blame(gap).stall_ns(); };
  for (const LoggedGap& gap : view.greatest(max_entries, stall_ns)) {
    if (stall_ns(gap) > 0) diagnosis.chunks.push_back(LogView::blame(gap));
  }
  return diagnosis;
}

std::vector<TextBlock> diagnosis_blocks(const Diagnosis& diagnosis) {
  if (diagnosis.rows.empty()) return {};
  std::vector<TextBlock> blocks;
  append_blocks({rows_block(diagnosis), stalls_block(diagnosis)}, blocks);
  append_blocks(chunk_blocks(diagnosis), blocks);
  if (diagnosis.late) append_blocks(late_token_blocks(*diagnosis.late), blocks);
  return blocks;
}

void append_diagnosis(const Diagnosis& diagnosis, JsonText& json) {
  json.field("is_estimated", diagnosis.is_estimated);
  json.key("gaps").begin_array();
  for (const GapRow& row : diagnosis.rows) {
    json.begin_object();
    json.field("which", row.name);
    if (row.limit_ms) json.field("limit_ms", *row.limit_ms);
    json.field("gaps", row.sum.num_gaps);
    append_gap_parts(row.sum.parts, json);
    json.key("slow_decode_ms").ms(row.slow_ns);
    json.end_object();
  }
  json.end_array();
  json.key("slow_decodes");
  append_slow_decodes(diagnosis.slow, diagnosis.has_ranks, json);
  json.key("stalls").begin_array();
  for (const DiagnosedStall& stall : diagnosis.stalls) {
    append_stall(stall, diagnosis, json);
  }
  json.end_array();
  json.key("chunks").begin_array();
  for (const Blame& blame : diagnosis.chunks) append_blame(blame, diagnosis.step_word, json);
  json.end_array();
  json.key("first_tokens");
  if (diagnosis.late) {
    append_late_tokens(*diagnosis.late, json);
  } else {
    json.null();
  }
  json.key("requests").begin_array();
  for (const CulpritRequest& request : diagnosis.requests) {
    json.begin_object();
    json.field("request", index(request.request));
    json.key("stall_ms").ms(request.stall_ns);
    json.field("chunks", request.num_chunks);
    json.field("max_delayed", request.max_delayed);
    json.end_object();
  }
  json.end_array();
}

}  // namespace metronome
