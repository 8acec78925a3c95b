// SPDX-License-Identifier: Apache-2.0
#include "core/workload/trace_rows.h"

#include <string>

#include "core/base/error.h"
#include "core/base/math.h"

namespace metronome {

void TraceRow::clear() {
  arrival = 0;
  num_prompt_tokens = 0;
  num_output_tokens = 0;
  ignores_eos.reset();
  hashes.clear();
  ids.clear();
  images.clear();
}

namespace {

TimeNs parse_time(const TraceLines& lines, std::string_view text, std::string_view name,
                  TimeUnit unit) {
  switch (unit) {
    case TimeUnit::Seconds:
      return parse_trace_time(lines, text, name, kMaxTraceSeconds, kNsPerSecond);
    case TimeUnit::Milliseconds:
      return parse_trace_time(lines, text, name, kMaxTraceSeconds * 1000, kNsPerMs);
    case TimeUnit::Nanoseconds:  // exact, also where a double is not
      return parse_trace_integer(lines, text, name, 0, kMaxTraceSeconds * kNsPerSecond);
    case TimeUnit::Date: return parse_trace_date(lines, text, name);
  }
  METRONOME_CHECK(false, "a unit of time");
}

}  // namespace

void set_trace_value(const TraceLines& lines, const TraceMapping& mapping, TraceField field,
                     std::string_view name, std::string_view text, TraceRow& row) {
  const auto tokens = [&](std::int64_t min) {
    return static_cast<std::int32_t>(parse_trace_integer(lines, text, name, min, kMaxLengthTokens));
  };
  switch (field) {
    case TraceField::Arrival: row.arrival = parse_time(lines, text, name, mapping.unit); return;
    case TraceField::Prompt: row.num_prompt_tokens = tokens(1); return;
    case TraceField::Output: row.num_output_tokens = tokens(mapping.skips_failed ? 0 : 1); return;
    case TraceField::IgnoresEos:
      if (text != "true" && text != "false") {
        lines.fail(name, "is " + quote_for_message(text) + "; allowed: true, false");
      }
      row.ignores_eos = text == "true";
      return;
    case TraceField::Hashes:
    case TraceField::Tokens:
    case TraceField::Images: break;
  }
  METRONOME_CHECK(false, "a list is no single value");
}

void TraceRequests::add(const TraceRow& row, const TraceLines& lines) {
  if (mapping_.find(TraceField::Hashes) != nullptr) add_hashes(row, lines);
  if (mapping_.find(TraceField::Tokens) != nullptr) add_ids(row, lines);
  if (mapping_.find(TraceField::Images) != nullptr) {
    workload_.image_begin.push_back(static_cast<std::uint32_t>(workload_.images.size()));
    add_trace_images(row.images, row.num_prompt_tokens, lines, workload_);
  }
  RequestSpec request;
  request.arrival = row.arrival;
  request.num_prompt_tokens = row.num_prompt_tokens;
  request.max_output_tokens = row.num_output_tokens;
  request.ignores_eos = row.ignores_eos;
  workload_.requests.push_back(request);
}

void TraceRequests::add_hashes(const TraceRow& row, const TraceLines& lines) {
  std::vector<PromptSegment>& segments = workload_.segments;
  const std::int64_t block = mapping_.block_tokens;
  const auto num_ids = static_cast<std::int64_t>(row.hashes.size());
  const std::int64_t num_blocks = ceil_div(std::int64_t{row.num_prompt_tokens}, block);
  if (num_ids != num_blocks) {
    lines.fail(mapping_.find(TraceField::Hashes)->name,
               std::to_string(num_ids) + " ids for " + std::to_string(row.num_prompt_tokens) +
                   " prompt tokens; allowed: one per " + std::to_string(block) + " tokens, " +
                   std::to_string(num_blocks));
  }
  workload_.segment_begin.push_back(static_cast<std::uint32_t>(segments.size()));
  for (const std::uint64_t id : row.hashes) {
    segments.push_back({content_id(ContentKind::TraceBlock, id), static_cast<std::int32_t>(block)});
  }
  segments.back().num_tokens -=
      static_cast<std::int32_t>(num_blocks * block - row.num_prompt_tokens);
}

void TraceRequests::add_ids(const TraceRow& row, const TraceLines& lines) {
  if (row.ids.size() != static_cast<std::size_t>(row.num_prompt_tokens)) {
    lines.fail(mapping_.find(TraceField::Tokens)->name,
               std::to_string(row.ids.size()) + " ids for " +
                   std::to_string(row.num_prompt_tokens) +
                   " prompt tokens; allowed: one per token");
  }
  workload_.token_begin.push_back(workload_.token_ids.size());
  workload_.token_ids.insert(workload_.token_ids.end(), row.ids.begin(), row.ids.end());
}

void TraceRequests::finish() {
  if (mapping_.find(TraceField::Hashes) != nullptr) {
    workload_.segment_begin.push_back(static_cast<std::uint32_t>(workload_.segments.size()));
  }
  if (mapping_.find(TraceField::Tokens) != nullptr) {
    workload_.token_begin.push_back(workload_.token_ids.size());
  }
  if (workload_.images.empty()) {
    workload_.image_begin.clear();
  } else {
    workload_.image_begin.push_back(static_cast<std::uint32_t>(workload_.images.size()));
  }
}

}  // namespace metronome
