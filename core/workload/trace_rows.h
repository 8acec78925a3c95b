// SPDX-License-Identifier: Apache-2.0
// The rows of a trace, read by a mapping, and the requests that are made of them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/workload/trace_mapping.h"
#include "core/workload/workload.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

// What a row says about its request.
struct TraceRow {
  TimeNs arrival = 0;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;
  std::optional<bool> ignores_eos;
  std::vector<std::uint64_t> hashes;  // ids below 2^56
  std::vector<TokenId> ids;
  std::vector<TraceImage> images;

  void clear();
};

// Sets the part of the row that a number or a word gives. `name` is that of messages.
void set_trace_value(const TraceLines& lines, const TraceMapping& mapping, TraceField field,
                     std::string_view name, std::string_view text, TraceRow& row);

// Appends the request of one row after the other to a workload.
class TraceRequests {
 public:
  // Both must outlive this.
  TraceRequests(const TraceMapping& mapping, Workload& workload)
      : mapping_(mapping), workload_(workload) {}

  // Throws ConfigError for counts that contradict each other. `lines` is at the row.
  void add(const TraceRow& row, const TraceLines& lines);
  void skip() { ++workload_.num_skipped; }  // a row with a failed request
  void finish();

 private:
  void add_hashes(const TraceRow& row, const TraceLines& lines);
  void add_ids(const TraceRow& row, const TraceLines& lines);

  const TraceMapping& mapping_;
  Workload& workload_;
};

// Append every row. `lines` must be before the first line.
void read_csv_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests);
void read_json_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests);

}  // namespace metronome
