// SPDX-License-Identifier: Apache-2.0
// A readable line per step, to follow the scheduler's decisions:
//
//   step 12  t=1.234 s  34.100 ms  35 tokens  [r7 prefill 128..256] [r9 prefill 0..42 -> token 1]
//       [r1 D] [r2 D] [r3 D]
//
// (one line in reality). Positions are half-open. Events between steps have their own lines.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

#include "core/engine/event.h"

namespace metronome {

class StepLog final : public EventSink {
 public:
  // Shows at most `max_decodes` decodes per step and counts the rest.
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
