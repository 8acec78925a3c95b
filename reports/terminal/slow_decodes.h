// SPDX-License-Identifier: Apache-2.0
// A span of a run or a log in which decodes take far longer than those of as many requests did
// before, or than those of fewer explain: after a retraction, without the graph that they had,
// beside another process. It is no prompt that delays them, so no setting of the scheduler explains
// it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace metronome {

class JsonText;

// Decodes alone, without a prompt: one step, or the mean of several. With `is_least` there were
// prompts, and the decodes took at least so long: enough to be slow, but no measure for others.
struct DecodeSample {
  std::int64_t where = 0;  // the step's number, or the line
  std::string time;        // as logged; empty: the line has none
  std::int64_t num_requests = 0;
  double cache_usage = 0;  // in any unit; 0: unknown
  TimeNs step_ns = 0;
  std::int64_t line = 0;  // of the log, if `where` is another number; 0: there is none
  std::int32_t rank = 0;  // data-parallel
  bool is_least = false;
};

// A step of a run or a log. Numbers of steps repeat in a log: each rank has its own, and they begin
// again with a restart. Lines do not.
struct DecodePlace {
  std::int64_t where = 0;  // these three as DecodeSample's
  std::int64_t line = 0;
  std::int32_t rank = 0;
};

struct SlowDecodes {
  std::size_t first = 0, last = 0;  // indices into the samples
  std::int64_t first_where = 0, last_where = 0;
  std::int64_t first_line = 0, last_line = 0;  // 0: as DecodeSample::line
  std::int32_t rank = 0;
  std::string first_time, last_time;
  std::int64_t least_requests = 0, most_requests = 0;
  TimeNs step_ns = 0;      // the median, of those without a prompt if there are any
  TimeNs before_ns = 0;    // the median of at least as many requests, before
  bool is_scaled = false;  // of fewer too: then in proportion to requests and cache
  bool is_least = false;   // all had prompts, and took at least `step_ns`
  bool is_to_the_end = false;

  bool contains(const DecodePlace& place) const {
    if (place.rank != rank) return false;
    if (place.line > 0) return place.line >= first_line && place.line <= last_line;
    return place.where >= first_where && place.where <= last_where;
  }
  double ratio() const { return static_cast<double>(step_ns) / static_cast<double>(before_ns); }
};

// In the order of `samples`, which are of one rank in the order of time. At least `least_samples`
// in a row are slow, or fewer if one takes `alone` times as long as those before it explain.
std::vector<SlowDecodes> find_slow_decodes(const std::vector<DecodeSample>& samples,
                                           std::size_t least_samples,
                                           std::optional<double> alone = std::nullopt);

// The span that has a place; nullptr: none.
const SlowDecodes* span_at(const std::vector<SlowDecodes>& spans, const DecodePlace& place);

// One note for each. `where_word` is "step", "iteration" or "line"; `has_ranks`: there are several,
// so notes name theirs.
std::vector<std::string> slow_decode_notes(const std::vector<SlowDecodes>& spans,
                                           const std::string& where_word, bool has_ranks);
// Appends one JSON value.
void append_slow_decodes(const std::vector<SlowDecodes>& spans, bool has_ranks, JsonText& json);

}  // namespace metronome
