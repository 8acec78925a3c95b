// SPDX-License-Identifier: Apache-2.0
// The part of Scheduler that commits the run of decodes, and takes steps of it together.
#include <algorithm>
#include <utility>

#include "core/base/error.h"
#include "core/engine/scheduler.h"

namespace metronome {

// Follows the run of the plan to commit. A run in which a request lost a token is listed in the
// plan, as are the later ones until the scheduler, who knows, has ended the run. Returns the number
// of the run's step, or kNoRunStep.
std::int32_t Scheduler::begin_run_commit(StepPlan& plan, const StepResult& result,
                                         CommitReport& report) {
  report.run = nullptr;
  report.left_run.clear();
  report.joined_run.clear();
  const auto leave = [&](std::size_t i) {
    if (sinks_follow_run_) report.left_run.push_back(committed_run_.all()[i].request);
  };
  const auto leave_all = [&] {
    for (std::size_t i = 0; i < committed_run_.all().size(); ++i) leave(i);
  };
  if (std::exchange(stepped_run_, false)) committed_run_.take_steps(1);
  for (const ScheduledChunk& chunk : joining_) {
    committed_run_.append(chunk.request, chunk.end_position(), chunk.generation);
  }
  joining_.clear();
  if (plan.run.has_ended) {
    leave_all();
    committed_run_.clear();
    sinks_follow_run_ = true;
  } else {
    for (const std::int32_t place : plan.run.left) leave(static_cast<std::size_t>(place));
    committed_run_.erase(plan.run.left);
  }
  for (const std::int32_t place : plan.run.joining) {
    joining_.push_back(plan.chunks[static_cast<std::size_t>(place)]);
  }
  const bool has_run = plan.run.num_decodes > 0;
  METRONOME_CHECK(!has_run || plan.run.num_decodes == committed_run_.size(),
                  "plans say who joins and leaves the run");
  METRONOME_CHECK(!has_run || result.sampled_tokens.empty(), "runs have lengths only");
  const std::int32_t step = has_run ? books_.run_.num_committed() : kNoRunStep;
  // Requests that ended or were preempted before they could join.
  const bool loses_joining =
      std::any_of(joining_.begin(), joining_.end(), [this](const ScheduledChunk& chunk) {
        return books_.requests_[chunk.request].generation != chunk.generation;
      });
  if (sinks_follow_run_ &&
      (result.failed || loses_joining || (has_run && step < books_.run_.num_lost_steps()))) {
    leave_all();
    sinks_follow_run_ = false;
  }
  if (has_run) stepped_run_ = true;
  if (has_run && sinks_follow_run_) {
    report.run = &committed_run_;
  } else if (has_run) {
    std::vector<ScheduledChunk> others;
    others.swap(plan.chunks);
    committed_run_.list(others, static_cast<std::size_t>(plan.run.place), false, plan.chunks);
    plan.run.num_decodes = 0;
    plan.run.members = nullptr;
  }
  if (sinks_follow_run_) {
    for (const ScheduledChunk& chunk : joining_) report.joined_run.push_back(chunk.request);
  }
  return step;
}

std::int32_t Scheduler::num_repeats() const {
  const bool admits =
      !waiting().empty() && running().size() < static_cast<std::size_t>(books_.max_num_seqs());
  return admits || !policy_->may_repeat() ? 0 : books_.run_.num_repeats();
}

void Scheduler::commit_repeats(std::int32_t num_steps) {
  books_.run_.commit_steps(num_steps);
  committed_run_.take_steps(num_steps);
}

// Every decode of the run gave its request a token, the last one for some.
void Scheduler::commit_run(const StepPlan& plan, CommitReport& report) {
  const bool hashes = books_.kv_cache_.hashes_runs_at_commit();
  for (const RequestId id : plan.run.attended) {
    Request& request = books_.requests_[id];
    if (hashes) books_.kv_cache_.commit(request, true);
    if (request.num_output_tokens() == request.max_output_tokens) {
      finish(request, EndReason::Length, report);
    }
  }
}

}  // namespace metronome
