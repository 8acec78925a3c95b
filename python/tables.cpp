// SPDX-License-Identifier: Apache-2.0
#include "python/tables.h"

#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <string_view>

#include "core/metrics/gap_analysis.h"
#include "core/metrics/summary.h"
#include "python/arrays.h"

namespace metronome::python {

namespace nb = nanobind;

namespace {

// Makes a column of `size` rows; `value_of(i)` is that of row i.
template <class ValueOf>
auto column(std::size_t size, const ValueOf& value_of) {
  using Value = std::remove_cvref_t<decltype(value_of(std::size_t{0}))>;
  std::vector<Value> values(size);
  for (std::size_t i = 0; i < size; ++i) values[i] = value_of(i);
  return values;
}

double ms_or_nan(bool exists, TimeNs ns) {
  constexpr double kNsPerMs = 1e6;
  return exists ? static_cast<double>(ns) / kNsPerMs : std::numeric_limits<double>::quiet_NaN();
}

// -1 for none.
std::int64_t number_of(RequestId id) {
  return id == kNoRequest ? -1 : static_cast<std::int64_t>(index(id));
}

void add_classes(const RunRecord& record, nb::dict& table) {
  if (record.class_names.empty()) return;
  std::vector<std::string> words = {""};
  words.insert(words.end(), record.class_names.begin(), record.class_names.end());
  table["class"] =
      coded_column(column(record.requests.size(),
                          [&](std::size_t i) { return record.requests[i].class_number; }),
                   words);
}

}  // namespace

nb::dict requests_table(const RunRecord& record) {
  const std::vector<RequestRecord>& requests = record.requests;
  nb::dict table;
  const auto add = [&](const char* name, const auto& value_of) {
    table[name] = numpy_array(
        column(requests.size(), [&](std::size_t i) { return value_of(requests[i], i); }));
  };
  using R = const RequestRecord&;
  add("request", [](R, std::size_t i) { return static_cast<std::int64_t>(i); });
  std::array<std::string_view, kNumEndReasons> ends;
  for (std::size_t i = 0; i < ends.size(); ++i) ends[i] = to_string(static_cast<EndReason>(i));
  table["end"] = coded_column(
      column(requests.size(),
             [&](std::size_t i) { return static_cast<std::uint8_t>(requests[i].reason); }),
      ends);
  if (!record.replicas.empty()) {
    add("replica", [&](R, std::size_t i) { return record.replica_of[i]; });
  }
  add("priority", [](R r, std::size_t) { return r.priority; });
  add_classes(record, table);
  add("prompt_tokens", [](R r, std::size_t) { return r.num_prompt_tokens; });
  add("cached_tokens", [](R r, std::size_t) { return r.num_prefix_hit_tokens; });
  add("max_tokens", [](R r, std::size_t) { return r.max_output_tokens; });
  add("output_tokens", [](R r, std::size_t) { return r.num_output_tokens; });
  add("prefill_chunks", [](R r, std::size_t) { return r.num_prefill_chunks; });
  add("preemptions", [](R r, std::size_t) { return r.num_preemptions; });
  add("arrival_ns", [](R r, std::size_t) { return r.arrival; });
  add("first_scheduled_ns", [](R r, std::size_t) { return r.first_scheduled; });
  add("last_scheduled_ns", [](R r, std::size_t) { return r.last_scheduled; });
  add("first_token_ns", [](R r, std::size_t) { return r.first_token; });
  add("last_token_ns", [](R r, std::size_t) { return r.last_token; });
  add("ended_ns", [](R r, std::size_t) { return r.ended; });
  if (!record.handed_over.empty()) {
    add("handed_over_ns", [&](R, std::size_t i) { return record.handed_over[i]; });
  }
  add("queue_ms", [&](R r, std::size_t i) {
    return ms_or_nan(r.first_scheduled != kNoTime, record.queue_ns(i));
  });
  add("ttft_ms", [](R r, std::size_t) { return ms_or_nan(r.first_token != kNoTime, r.ttft_ns()); });
  add("e2el_ms", [](R r, std::size_t) { return ms_or_nan(r.first_token != kNoTime, r.e2el_ns()); });
  add("tpot_ms", [](R r, std::size_t) {
    return ms_or_nan(r.has_itl(), r.has_itl() ? std::llround(r.tpot_ns()) : 0);
  });
  const auto has_gap = [](R r) { return r.has_itl() && r.max_itl_step >= 0; };
  add("min_itl_ms", [&](R r, std::size_t) { return ms_or_nan(has_gap(r), r.min_itl_ns); });
  add("max_itl_ms", [&](R r, std::size_t) { return ms_or_nan(has_gap(r), r.max_itl_ns); });
  add("max_itl_step",
      [](R r, std::size_t) { return r.has_itl() ? r.max_itl_step : std::int32_t{-1}; });
  return table;
}

nb::dict steps_table(const RunRecord& record) {
  std::vector<StepEntry> steps;
  steps.reserve(record.steps.size());
  for (const StepEntry& step : record.steps) steps.push_back(step);
  nb::dict table;
  const auto add = [&](const char* name, const auto& value_of) {
    table[name] =
        numpy_array(column(steps.size(), [&](std::size_t i) { return value_of(steps[i]); }));
  };
  using S = const StepEntry&;
  table["step"] =
      numpy_array(column(steps.size(), [](std::size_t i) { return static_cast<std::int64_t>(i); }));
  if (!record.replicas.empty()) {
    std::vector<std::int32_t> replicas;
    for (std::int32_t replica = 0; replica < std::ssize(record.replicas); ++replica) {
      replicas.resize(record.replicas[static_cast<std::size_t>(replica)].end_step(), replica);
    }
    table["replica"] = numpy_array(std::move(replicas));
  }
  add("planned_ns", [](S s) { return s.planned_at; });
  add("started_ns", [](S s) { return s.started_at; });
  add("finished_ns", [](S s) { return s.finished_at; });
  add("prefill_tokens", [](S s) { return s.num_prefill_tokens; });
  add("decode_tokens", [](S s) { return s.num_decode_tokens; });
  add("emitted", [](S s) { return s.num_emitted; });
  add("running", [](S s) { return s.num_running; });
  add("waiting", [](S s) { return s.num_waiting; });
  add("used_blocks", [](S s) { return s.num_used_blocks; });
  add("preempted", [](S s) { return s.num_preempted; });
  add("failed", [](S s) { return static_cast<std::uint8_t>(s.failed); });
  add("extrapolated", [](S s) { return static_cast<std::uint8_t>(s.extrapolated); });
  add("decode_only_ns", [](S s) { return s.decode_only_ns; });
  if (record.drafts.num_drafts > 0) {
    add("draft_ns", [](S s) { return s.draft_ns; });
    add("draft_tokens", [](S s) { return s.num_draft_tokens; });
    add("accepted_tokens", [](S s) { return s.num_accepted_tokens; });
  }
  if (record.has_encodings) add("encode_ns", [](S s) { return s.encode_ns; });
  return table;
}

nb::dict prefills_table(const RunRecord& record) {
  std::vector<std::int64_t> step, request;
  std::vector<std::int32_t> first_position, num_tokens;
  std::int64_t position = 0;
  for (const StepEntry& entry : record.steps) {
    for (std::int32_t i = 0; i < entry.num_prefill_chunks; ++i) {
      const PrefillChunk& chunk =
          record.prefills[static_cast<std::size_t>(entry.first_prefill_chunk + i)];
      step.push_back(position);
      request.push_back(number_of(chunk.request));
      first_position.push_back(chunk.first_position);
      num_tokens.push_back(chunk.num_tokens);
    }
    ++position;
  }
  nb::dict table;
  table["step"] = numpy_array(std::move(step));
  table["request"] = numpy_array(std::move(request));
  table["first_position"] = numpy_array(std::move(first_position));
  table["tokens"] = numpy_array(std::move(num_tokens));
  return table;
}

nb::dict preemptions_table(const RunRecord& record) {
  const std::vector<PreemptionRecord>& all = record.preemptions;
  nb::dict table;
  table["time_ns"] = numpy_array(column(all.size(), [&](std::size_t i) { return all[i].time; }));
  table["request"] =
      numpy_array(column(all.size(), [&](std::size_t i) { return number_of(all[i].request); }));
  return table;
}

namespace {

// Every gap between the tokens of the requests, by request and time.
std::vector<TokenGap> gaps_of(const RunRecord& record) {
  std::vector<TokenGap> gaps;
  const auto add = [&](std::size_t request, std::int32_t before, std::int32_t after) {
    const TimeNs began = record.steps.finished_at(static_cast<std::size_t>(before));
    const TimeNs ended = record.steps.finished_at(static_cast<std::size_t>(after));
    gaps.push_back({static_cast<RequestId>(request), before, after, ended - began});
  };
  for (std::size_t i = 0; i < record.requests.size(); ++i) {
    std::int32_t last = -1;
    for (const TokenRun& run : record.runs_of(i)) {
      for (std::int32_t step = run.first_step; step <= run.last_step(); ++step) {
        if (last >= 0) add(i, last, step);
        last = step;
      }
    }
  }
  return gaps;
}

// The rows of gaps_table(), which may be computed without the interpreter's lock.
struct GapRows {
  std::vector<Stall> stalls;
  std::vector<GapParts> parts;
};

GapRows explained_gaps(const RunRecord& record) {
  GapRows rows;
  if (record.steps.empty()) return rows;
  const GapCauses causes(record, 0, static_cast<std::int32_t>(record.steps.size()) - 1);
  const std::vector<TokenGap> gaps = gaps_of(record);
  rows.stalls.reserve(gaps.size());
  rows.parts.reserve(gaps.size());
  for (const TokenGap& gap : gaps) {
    rows.stalls.push_back(explain_gap(record, causes, gap));
    rows.parts.push_back(causes.parts(gap));
  }
  return rows;
}

}  // namespace

nb::dict gaps_table(const RunRecord& record) {
  GapRows rows;
  {
    const nb::gil_scoped_release released;
    rows = explained_gaps(record);
  }
  nb::dict table;
  const auto add = [&](const char* name, const auto& value_of) {
    table[name] = numpy_array(
        column(rows.stalls.size(), [&](std::size_t i) { return value_of(rows.stalls[i]); }));
  };
  const auto add_part = [&](const char* name, TimeNs GapParts::*part) {
    table[name] =
        numpy_array(column(rows.parts.size(), [&](std::size_t i) { return rows.parts[i].*part; }));
  };
  using S = const Stall&;
  add("request", [](S s) { return number_of(s.request); });
  add("step_before", [](S s) { return s.step_before; });
  add("step_after", [](S s) { return s.step_after; });
  add("began_ns", [](S s) { return s.began_at; });
  add("gap_ns", [](S s) { return s.gap_ns; });
  add_part("decode_ns", &GapParts::decode_ns);
  add_part("draft_ns", &GapParts::draft_ns);
  add_part("encode_ns", &GapParts::encode_ns);
  add_part("prefill_ns", &GapParts::prefill_ns);
  add_part("host_ns", &GapParts::host_ns);
  add_part("waiting_ns", &GapParts::waiting_ns);
  add_part("preemption_ns", &GapParts::preemption_ns);
  table["cause"] = coded_column(
      column(rows.stalls.size(),
             [&](std::size_t i) { return static_cast<std::uint8_t>(rows.stalls[i].cause); }),
      kStallCauses);
  add("prefill_tokens_in_gap", [](S s) { return s.num_prefill_tokens; });
  add("chunk_request", [](S s) { return number_of(s.prefill_request); });
  add("chunk_position", [](S s) { return s.prefill_position; });
  add("chunk_tokens", [](S s) { return s.prefill_tokens; });
  add("chunk_step", [](S s) { return s.prefill_step; });
  return table;
}

}  // namespace metronome::python
