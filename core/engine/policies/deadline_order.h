// Which of the prompts that wait can still give their first token in time, and who goes first.
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
  TimeNs work_ns = 0;        // time to compute what is left of the prompt
  bool is_late = false;      // set by mark_late()
};

// The requests of a queue by deadline, that is in order of submission, those apart whose deadline
// is lost: they would hide the others. Requests that ended in the queue are left out.
class DeadlineLine {
 public:
  void push(Request& request);
  void remove(const Request& request);  // requires that it is here
  // Those that arrived before `arrival` have lost their deadline.
  void set_lost_aside(TimeNs arrival);
  // Appends who may be served soon: the resumed, the first of those in time, the first of the lost.
  void list(std::vector<PromptJob>& jobs) const;

 private:
  using Line = std::deque<Request*>;  // by id
  static void insert(Line& line, Request& request);
  static bool erase(Line& line, const Request& request);

  Line resumed_;  // preempted in the middle of an answer
  Line timely_;
  Line lost_;
};

// One prompt is computed after the other, beginning at `now`. Marks as late those that should stand
// back so that as many of the others as possible meet their deadlines (Moore and Hodgson: in order
// of deadline, whenever one would miss it, the longest so far stands back). A job whose deadline
// has no time left for it is late by itself and takes no other's place. `jobs` are in order of
// deadline. Deterministic: of equal work the later submission stands back. O(n log n), O(n) when
// nobody is late.
class LateMarker {
 public:
  void mark_late(std::span<PromptJob> jobs, TimeNs now);

 private:
  std::vector<PromptJob*> kept_;  // a heap, the longest first
};

// In order of deadline the first tokens of short prompts wait for those of long ones. Moves a few
// short jobs to the front, each past jobs that have four times its work to spare, so that these
// are in time all the same. `jobs` are all in time, one after the other from `now` on. O(n).
void let_short_jobs_pass(std::span<PromptJob> jobs, TimeNs now);

}  // namespace metronome
