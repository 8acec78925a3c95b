// A readable line per step, for people who want to watch the scheduler decide:
//
//   step 12  t=1.234 s  34.100 ms  35 tokens  [r7 prefill 128..256] [r9 prefill 0..42 -> token 1]
//       [r1 D] [r2 D] [r3 D]
//
// (one line in reality). Positions are half-open. What happens between steps has lines of its own.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "core/engine/event.h"

namespace metronome {

class StepLog final : public EventSink {
 public:
  // Of more than `max_decodes` decodes in a step the rest is only counted.
  explicit StepLog(std::ostream& out, std::int32_t max_decodes = 8);

  void on_event(const Event& event, const Request& request) override;
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

 private:
  std::ostream& out_;
  std::int32_t max_decodes_;
  std::vector<std::int32_t> num_tokens_;  // emitted so far, by request
};

}  // namespace metronome
