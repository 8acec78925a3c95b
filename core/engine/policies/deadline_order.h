// SPDX-License-Identifier: Apache-2.0
// Orders waiting prompts by deadline and finds those that can still give their first token in time.
#pragma once

#include <deque>
#include <span>
#include <vector>

#include "core/base/types.h"
#include "core/engine/request.h"

namespace metronome {

struct PromptJob {
  Request* request = nullptr;
  TimeNs deadline = kNever;  // of the first token
  TimeNs work_ns = 0;        // time to compute the rest of the prompt
  bool is_late = false;      // set by mark_late()
};

// The requests of a queue by deadline, which is submission order. Requests with a lost deadline are
// kept apart, because they would hide the others. Requests that ended in the queue are skipped.
class DeadlineLine {
 public:
  void push(Request& request);
  void remove(const Request& request);  // requires that it is in the line
  // Moves requests that arrived before `arrival` to the lost ones: they missed their deadlines.
  void set_lost_aside(TimeNs arrival);
  // Appends the next candidates: all resumed requests, the first timely ones, the first lost ones.
  void list(std::vector<PromptJob>& jobs) const;

 private:
  using Line = std::deque<Request*>;  // by id
  static void insert(Line& line, Request& request);
  static bool erase(Line& line, const Request& request);

  Line resumed_;  // preempted after their first output token
  Line timely_;
  Line lost_;
};

// Assumes that prompts are computed one after another from `now` on. Marks as late the jobs that
// should yield, so that as many others as possible meet their deadlines. (Moore and Hodgson: in
// order of deadline, whenever a job would miss it, the longest so far yields.) A job that cannot
// meet its deadline even alone is late and displaces no other. `jobs` are in order of deadline.
// Deterministic: of equal work the later submission yields. O(n log n), O(n) when no job is late.
class LateMarker {
 public:
  void mark_late(std::span<PromptJob> jobs, TimeNs now);

 private:
  std::vector<PromptJob*> kept_;  // a heap, longest first
};

// In deadline order the first tokens of short prompts wait for those of long ones. This moves a few
// short jobs to the front. Each passes only jobs whose spare time is at least four times its work,
// so those stay in time. `jobs` are all in time, computed one after another from `now` on. O(n).
void let_short_jobs_pass(std::span<PromptJob> jobs, TimeNs now);

}  // namespace metronome
