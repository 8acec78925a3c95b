// A span of a run or a log in which decodes take far longer than those of as many requests did
// before: after a retraction, without the graph that they had, beside another process. It is no
// prompt that delays them, so no setting of the scheduler explains it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.h"

namespace metronome {

class JsonText;

// Decodes alone, without a prompt: one step, or the mean of several.
struct DecodeSample {
  std::int64_t where = 0;  // the step's number, or the line
  std::string time;        // as logged; empty: the line has none
  std::int64_t num_requests = 0;
  double cache_usage = 0;  // in any unit; 0: unknown
  TimeNs step_ns = 0;
  std::int64_t line = 0;  // of the log, if `where` is another number; 0: there is none
};

struct SlowDecodes {
  std::size_t first = 0, last = 0;  // indices into the samples
  std::int64_t first_where = 0, last_where = 0;
  std::int64_t first_line = 0, last_line = 0;  // 0: as DecodeSample::line
  std::string first_time, last_time;
  std::int64_t least_requests = 0, most_requests = 0;
  TimeNs step_ns = 0;    // the median
  TimeNs before_ns = 0;  // the median of at least as many requests, before
  bool is_to_the_end = false;

  bool contains(std::int64_t where) const { return where >= first_where && where <= last_where; }
  double ratio() const { return static_cast<double>(step_ns) / static_cast<double>(before_ns); }
};

// In the order of `samples`, which is that of time. At least `least_samples` in a row are slow.
std::vector<SlowDecodes> find_slow_decodes(const std::vector<DecodeSample>& samples,
                                           std::size_t least_samples);

// The span that has a place; nullptr: none.
const SlowDecodes* span_at(const std::vector<SlowDecodes>& spans, std::int64_t where);

// One note for each. `where_word` is "step", "iteration" or "line".
std::vector<std::string> slow_decode_notes(const std::vector<SlowDecodes>& spans,
                                           const std::string& where_word);
// Appends one JSON value.
void append_slow_decodes(const std::vector<SlowDecodes>& spans, JsonText& json);

}  // namespace metronome
