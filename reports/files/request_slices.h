// SPDX-License-Identifier: Apache-2.0
// The timeline of each request as consecutive slices, for drawing.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/types.h"
#include "core/metrics/run_record.h"

namespace metronome {

enum class SliceKind : std::uint8_t {
  FrontEnd,   // from arrival until the engine could see it
  Queue,      // from then until a plan first schedules it
  Prefill,    // a chunk, for the duration of its step
  Decode,     // consecutive steps in which it decoded
  Waiting,    // steps that did not include it
  Preempted,  // evicted, until a chunk of it is recomputed
};
std::string_view to_string(SliceKind kind);

struct RequestSlice {
  SliceKind kind = SliceKind::Queue;
  TimeNs begin = 0;
  TimeNs end = 0;                // >= begin
  std::int32_t first_step = -1;  // Prefill, Decode
  std::int32_t last_step = -1;
  std::int32_t num_tokens = 0;  // output tokens produced by these steps
  std::int32_t chunk = -1;      // Prefill: index into RunRecord::prefills
  std::int32_t number = 0;      // Prefill: 1 for the request's first chunk
};

class RequestSlices {
 public:
  // Keeps a reference to the record.
  explicit RequestSlices(const RunRecord& record);

  // When the device began a step. A step launched early begins after the previous one.
  TimeNs began_at(std::int32_t step) const;
  // From a request's arrival until both the request and its last step have ended.
  TimeNs end_of(std::size_t request) const;
  // Request i's slices in order of time, without overlap.
  std::vector<RequestSlice> of(std::size_t request) const;

 private:
  const RunRecord& record_;
  TimeNs end_of_run_ = 0;  // when the last step or request ended
  std::vector<std::int32_t> step_of_chunk_;
  std::vector<std::int32_t> chunks_;           // by request, in order of time
  std::vector<std::uint32_t> first_chunk_;     // each request's first in chunks_, and the end
  std::vector<PreemptionRecord> preemptions_;  // by request, then time
};

}  // namespace metronome
