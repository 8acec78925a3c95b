// SPDX-License-Identifier: Apache-2.0
#include "core/engine/policies/deadline_order.h"

#include <algorithm>

#include "core/base/error.h"

namespace metronome {
namespace {

bool is_shorter(const PromptJob* a, const PromptJob* b) {
  return a->work_ns != b->work_ns ? a->work_ns < b->work_ns : a->request->id < b->request->id;
}

bool is_earlier(const Request* a, const Request* b) { return a->id < b->id; }

// Later requests cannot run in this step and cannot become late because of the others.
constexpr std::size_t kMaxTimelySeen = 256;
constexpr std::size_t kMaxLostSeen = 16;

}  // namespace

void DeadlineLine::push(Request& request) {
  insert(request.num_output_tokens() > 0 ? resumed_ : timely_, request);
}

void DeadlineLine::insert(Line& line, Request& request) {
  const bool is_last = line.empty() || line.back()->id < request.id;
  const auto place =
      is_last ? line.end() : std::lower_bound(line.begin(), line.end(), &request, is_earlier);
  line.insert(place, &request);
}

bool DeadlineLine::erase(Line& line, const Request& request) {
  const auto place = std::lower_bound(line.begin(), line.end(), &request, is_earlier);
  if (place == line.end() || *place != &request) return false;
  line.erase(place);
  return true;
}

void DeadlineLine::remove(const Request& request) {
  const bool was_here =
      erase(timely_, request) || erase(lost_, request) || erase(resumed_, request);
  METRONOME_CHECK(was_here, "the request waits");
}

void DeadlineLine::set_lost_aside(TimeNs arrival) {
  while (!timely_.empty() && timely_.front()->arrival < arrival) {
    insert(lost_, *timely_.front());
    timely_.pop_front();
  }
  while (!lost_.empty() && lost_.front()->has_ended()) lost_.pop_front();
}

void DeadlineLine::list(std::vector<PromptJob>& jobs) const {
  const auto add = [&jobs](const Line& line, std::size_t num_most) {
    for (Request* request : line) {
      if (request->has_ended()) continue;
      if (num_most-- == 0) return;
      jobs.push_back({.request = request});
    }
  };
  add(resumed_, resumed_.size());
  add(timely_, kMaxTimelySeen);
  add(lost_, kMaxLostSeen);
}

void LateMarker::mark_late(std::span<PromptJob> jobs, TimeNs now) {
  kept_.clear();
  TimeNs end = now;
  for (PromptJob& job : jobs) {
    job.is_late = job.deadline != kNever && now + job.work_ns > job.deadline;
    if (job.is_late) continue;
    end += job.work_ns;
    kept_.push_back(&job);
    std::push_heap(kept_.begin(), kept_.end(), is_shorter);
    if (end <= job.deadline) continue;
    std::pop_heap(kept_.begin(), kept_.end(), is_shorter);
    kept_.back()->is_late = true;
    end -= kept_.back()->work_ns;
    kept_.pop_back();
  }
}

void let_short_jobs_pass(std::span<PromptJob> jobs, TimeNs now) {
  // Passing does not guarantee service in this step, which has room for few.
  constexpr std::size_t kMaxPasses = 4;
  constexpr TimeNs kSpareShare = 4;
  for (std::size_t first = 0; first < std::min(jobs.size(), kMaxPasses); ++first) {
    TimeNs end = now;
    TimeNs spare = kNever;  // of the jobs that would be passed
    std::size_t chosen = first;
    for (std::size_t i = first; i < jobs.size(); ++i) {
      const bool may_pass = jobs[i].work_ns <= spare / kSpareShare;
      if (may_pass && jobs[i].work_ns < jobs[chosen].work_ns) chosen = i;
      end += jobs[i].work_ns;
      spare = std::min(spare, jobs[i].deadline - end);
    }
    const auto begin = jobs.begin() + static_cast<std::ptrdiff_t>(first);
    const auto place = jobs.begin() + static_cast<std::ptrdiff_t>(chosen);
    std::rotate(begin, place, place + 1);
    now += jobs[first].work_ns;
  }
}

}  // namespace metronome
