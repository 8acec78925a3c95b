// SPDX-License-Identifier: Apache-2.0
// The part of Scheduler that plans and commits the run of decodes.
#include <algorithm>
#include <span>
#include <utility>

#include "core/base/erase.h"
#include "core/base/error.h"
#include "core/engine/scheduler.h"

namespace metronome {

// Enters the next step of a run at which the request may need or complete a block, or takes its
// last token. It decodes `position` in `step`.
inline void Scheduler::enter_in_calendar(const RunCalendar::Entry& entry, std::int32_t position,
                                         std::int32_t step) {
  const Request& request = *entry.request;
  const std::int32_t num_to_end = request.num_final_tokens - 1 - position;
  const std::int32_t num_steps = std::min(request.kv_ready_tokens - position, num_to_end);
  calendar_.add(entry, step, std::max(num_steps, 0), num_to_end);
}

// Called before a step is planned.
void Scheduler::begin_run_plan() {
  takes_run_ = false;
  if (std::exchange(steps_run_, false)) run_.take_steps(1);
  for (auto i = static_cast<std::size_t>(run_.size()); i < run_requests_.size(); ++i) {
    const Request& request = *run_requests_[i];
    run_.append(request.id, request.num_computed_tokens(), request.generation);
  }
  if (last_decodes_.empty()) return;
  erase_each(run_requests_, std::span(last_decodes_), [this](std::size_t place) {
    const auto num_before = static_cast<std::int32_t>(run_changes_.left.size());
    run_changes_.left.push_back(static_cast<std::int32_t>(place) + num_before);
  });
  last_decodes_.clear();
  run_.erase(run_changes_.left);
}

std::size_t Scheduler::plan_run(bool needs_free_block) {
  takes_run_ = plans_runs_ && plan_->chunks.empty();
  needs_free_block_ = needs_free_block;
  if (run_.empty()) return 0;
  const std::int32_t step = run_clock_.num_planned;
  const std::span<const RunCalendar::Entry> due = calendar_.due(step);
  const bool hashes_at_commit = kv_cache_.hashes_at_commit();
  const auto num_due = static_cast<std::int64_t>(due.size());
  if (!takes_run_ || (needs_free_block && kv_cache_.num_free_blocks() <= num_due)) {
    end_run();
    return 0;
  }
  for (const RunCalendar::Entry& entry : due) {
    Request& request = *entry.request;
    const std::int32_t num_computed = position_in_run(request) + 1;
    if (kv_cache_.grow(request, num_computed)) [[likely]] {
      const bool is_last = num_computed == request.num_final_tokens;
      if (is_last || hashes_at_commit) plan_->run.attended.push_back(request.id);
      if (is_last) {
        request.run_end = step + 1;
        last_decodes_.push_back(&request);
      } else {
        enter_in_calendar(entry, num_computed, step + 1);
      }
      continue;
    }
    plan_->run.attended.clear();
    // From here on the policy decides for each request. Those before have their decode.
    const auto it = std::find(run_requests_.begin(), run_requests_.end(), &request);
    write_run(static_cast<std::size_t>(it - run_requests_.begin()));
    end_run();
    return static_cast<std::size_t>(std::find(running_.begin(), running_.end(), &request) -
                                    running_.begin());
  }
  calendar_.drop(step);
  ++run_clock_.num_planned;
  steps_run_ = true;
  plan_->run.num_decodes = run_.size();
  plan_->run.members = &run_;
  plan_->num_decode_tokens += run_.size();
  return num_covered_;
}

// Lists the first `num_members` decodes of the run in the plan.
void Scheduler::write_run(std::size_t num_members) {
  std::vector<ScheduledChunk>& chunks = plan_->chunks;
  chunks.insert(chunks.begin(), num_members, ScheduledChunk{});
  for (std::size_t i = 0; i < num_members; ++i) {
    chunks[i] = run_.chunk(i);
    ++run_requests_[i]->computed_tokens;
  }
  plan_->num_decode_tokens += static_cast<std::int32_t>(num_members);
}

// All requests leave the run. Decodes of it in the current plan become chunks.
void Scheduler::end_run() {
  has_only_run_ = false;
  num_covered_ = 0;
  covers_by_arrival_ = true;
  run_changes_.has_ended = true;
  run_changes_.left.clear();
  if (run_requests_.empty()) return;
  last_decodes_.clear();
  if (plan_ != nullptr && plan_->run.num_decodes > 0) {
    --run_clock_.num_planned;
    steps_run_ = false;
    plan_->num_decode_tokens -= plan_->run.num_decodes;
    plan_->run.num_decodes = 0;
    plan_->run.members = nullptr;
    write_run(run_requests_.size());
  }
  for (Request* request : run_requests_) {
    request->run_end = run_clock_.num_planned;
  }
  run_.clear();
  run_requests_.clear();
  calendar_.clear();
}

// The requests behind the run in service order that decode join it with the next plan.
void Scheduler::extend_run() {
  std::size_t next = 0;
  const std::vector<ScheduledChunk>& chunks = plan_->chunks;
  for (; num_covered_ < running_.size(); ++num_covered_) {
    Request& request = *running_[num_covered_];
    if (request.state != RequestState::Decode) return;
    if (num_covered_ > 0 && request.id < running_[num_covered_ - 1]->id) covers_by_arrival_ = false;
    if (request.has_last_token_in_flight()) continue;
    while (next < chunks.size() && chunks[next].request != request.id) ++next;
    if (next == chunks.size()) return;
    // Each commit may release an image that ends its prompt.
    if (encoder_ && encoder_->is_held_by(request.id)) return;
    // A step of an earlier run is in flight.
    if (request.run_end > run_clock_.num_committed) return;
    request.leave_run();
    request.run_clock = &run_clock_;
    request.run_begin = run_clock_.num_planned;
    request.run_end = INT32_MAX;
    run_requests_.push_back(&request);
    enter_in_calendar({next_run_order_++, &request}, request.num_computed_tokens(),
                      run_clock_.num_planned);
    run_changes_.joining.push_back(static_cast<std::int32_t>(next));
  }
}

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
  const std::int32_t step = has_run ? run_clock_.num_committed : kNoRunStep;
  // Requests that ended or were preempted before they could join.
  const bool loses_joining =
      std::any_of(joining_.begin(), joining_.end(), [this](const ScheduledChunk& chunk) {
        return requests_[chunk.request].generation != chunk.generation;
      });
  if (sinks_follow_run_ &&
      (result.failed || loses_joining || (has_run && step < num_lost_steps_))) {
    leave_all();
    sinks_follow_run_ = false;
  }
  if (has_run) stepped_run_ = true;
  if (has_run && sinks_follow_run_) {
    report.run = &committed_run_;
  } else if (has_run) {
    std::vector<ScheduledChunk> others;
    others.swap(plan.chunks);
    committed_run_.list(others, false, plan.chunks);
    plan.run.num_decodes = 0;
    plan.run.members = nullptr;
  }
  if (sinks_follow_run_) {
    for (const ScheduledChunk& chunk : joining_) report.joined_run.push_back(chunk.request);
  }
  return step;
}

void Scheduler::sort_running_by_arrival() {
  const auto is_earlier = [](const Request* a, const Request* b) { return a->id < b->id; };
  const std::span<Request*> behind = running_behind_run();
  std::sort(behind.begin(), behind.end(), is_earlier);
  const bool is_sorted =
      num_covered_ == 0 || behind.empty() || is_earlier(running_[num_covered_ - 1], behind.front());
  if (is_sorted && covers_by_arrival_) return;
  std::vector<Request*>& all = running_list();
  std::sort(all.begin(), all.end(), is_earlier);
}

std::int32_t Scheduler::num_repeats() const {
  const bool admits =
      !waiting_.empty() && running_.size() < static_cast<std::size_t>(max_num_seqs_);
  if (!has_only_run_ || run_.empty() || admits) return 0;
  // Blocks of decodes are taken on the way, as far as they suffice for sure.
  const std::int64_t num_free = kv_cache_.num_free_blocks() - (needs_free_block_ ? 1 : 0);
  const std::int64_t num_rounds = num_free / (run_.size() * kv_cache_.max_blocks_of_growth());
  if (num_rounds > 0 && !kv_cache_.hashes_at_commit()) {
    const std::int64_t num_steps = calendar_.num_endless_steps(run_clock_.num_planned);
    return static_cast<std::int32_t>(std::min(num_steps, num_rounds * kv_cache_.block_size()));
  }
  return num_free < 0 ? 0 : calendar_.num_free_steps(run_clock_.num_planned);
}

void Scheduler::plan_repeats(std::span<StepTimes> steps) {
  const std::int32_t num_committed = run_clock_.num_committed;
  auto num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
  for (StepTimes& times : steps) {
    const std::int32_t step = run_clock_.num_planned;
    if (const auto due = calendar_.due(step); !due.empty()) {
      for (const RunCalendar::Entry& entry : due) {
        const std::int32_t num_computed = position_in_run(*entry.request) + 1;
        const bool has_room = kv_cache_.grow(*entry.request, num_computed);
        METRONOME_CHECK(has_room, "free blocks were counted before");
        enter_in_calendar(entry, num_computed, step + 1);
      }
      calendar_.drop(step);
      num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
    }
    times.num_used_blocks = num_used_blocks;
    ++run_clock_.num_planned;
    ++run_clock_.num_committed;
  }
  run_clock_.num_committed = num_committed;
  run_.take_steps(static_cast<std::int32_t>(steps.size()));
}

void Scheduler::commit_repeats(std::int32_t num_steps) {
  run_clock_.num_committed += num_steps;
  committed_run_.take_steps(num_steps);
}

// Every decode of the run gave its request a token, the last one for some.
void Scheduler::commit_run(const StepPlan& plan, CommitReport& report) {
  const bool hashes_at_commit = kv_cache_.hashes_at_commit();
  for (const RequestId id : plan.run.attended) {
    Request& request = requests_[id];
    if (hashes_at_commit) kv_cache_.commit(request, true);
    if (request.num_output_tokens() == request.max_output_tokens) {
      finish(request, EndReason::Length, report);
    }
  }
}

// Before a request is preempted or ends: it loses the tokens of the run's steps in flight.
void Scheduler::leave_run(Request& request) {
  if (request.run_end > run_clock_.num_committed) {
    num_lost_steps_ = std::max(num_lost_steps_, std::min(request.run_end, run_clock_.num_planned));
  }
  request.leave_run();
}

}  // namespace metronome
