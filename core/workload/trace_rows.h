// SPDX-License-Identifier: Apache-2.0
// The rows of a trace, read by a mapping, and the requests that are made of them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/workload/trace_mapping.h"
#include "core/workload/trace_sessions.h"
#include "core/workload/workload.h"
#include "core/workload/workload_trace_parse.h"

namespace metronome {

// The values that a row of a trace gives for its request.
struct TraceRow {
  std::optional<TimeNs> arrival;
  std::optional<TimeNs> delay;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t num_output_tokens = 0;
  std::int32_t limit = 0;         // 0: not said
  std::int32_t block_tokens = 0;  // 0: the mapping's
  std::int32_t priority = 0;
  std::optional<bool> ignores_eos;
  std::optional<std::int64_t> turn;
  bool is_request = true;   // not of another kind, and not failed
  bool has_hashes = false;  // the list is there
  std::string session, parent, class_name, salt;
  std::vector<std::uint64_t> hashes;  // ids below 2^56
  std::vector<TokenId> ids;
  std::vector<TraceImage> images;

  void clear();
};

// Sets the part of the row that a number or a word gives. `name` is that of messages. Text may be
// quoted.
void set_trace_value(const TraceLines& lines, const TraceMapping& mapping, TraceField field,
                     std::string_view name, std::string_view text, TraceRow& row);

// The id of a block, below 2^56.
std::uint64_t parse_hash_id(const TraceLines& lines, const TraceMapping& mapping,
                            std::string_view name, std::string_view text);

// Appends the request of one row after the other to a workload.
class TraceRequests {
 public:
  // Both must outlive this.
  TraceRequests(const TraceMapping& mapping, Workload& workload)
      : mapping_(mapping), workload_(workload) {}

  // Leaves out a row that is no request. Throws ConfigError for counts that contradict each other.
  // `lines` is at the row.
  void add(const TraceRow& row, const TraceLines& lines);
  // Notes a field that the mapping does not use.
  void note_unused(std::string_view name);
  // A turn for each request, or none where no row says anything about sessions. Throws ConfigError
  // for a request without an arrival that waits for no other.
  std::vector<TraceTurn> finish(const TraceLines& lines);

 private:
  void add_hashes(const TraceRow& row, const TraceLines& lines);
  void add_ids(const TraceRow& row, const TraceLines& lines);
  void add_turn(const TraceRow& row, const TraceLines& lines);
  std::uint16_t class_of(const std::string& name, const TraceLines& lines);
  void check_arrivals(const TraceLines& lines);

  const TraceMapping& mapping_;
  Workload& workload_;
  bool has_hashes_ = false;
  bool has_sessions_ = false;
  std::vector<TraceTurn> turns_;  // by request
  std::map<std::string, std::uint32_t> sessions_;
};

// Append every row. `lines` must be before the first line.
void read_csv_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests);
void read_json_rows(TraceLines& lines, const TraceMapping& mapping, TraceRequests& requests);

}  // namespace metronome
