// SPDX-License-Identifier: Apache-2.0
#include "core/engine/decode_set.h"

#include <algorithm>
#include <utility>

#include "core/base/erase.h"
#include "core/base/error.h"

namespace metronome {

namespace {

std::size_t place_of(std::int32_t step) { return static_cast<std::size_t>(step) % 4; }

}  // namespace

// Enters the next step of a run at which the request may need or complete a block, or takes its
// last token. It decodes `position` in `step`.
inline void DecodeSet::enter_in_calendar(const RunCalendar::Entry& entry, std::int32_t position,
                                         std::int32_t step) {
  const Request& request = *entry.request;
  const std::int32_t num_to_end = request.num_final_tokens - 1 - position;
  const std::int32_t num_ready =
      request.has_blocks_in_reserve ? num_to_end : request.kv_ready_tokens - position;
  std::int32_t num_steps = std::min(num_ready, num_to_end);
  if (step == request.run_begin && kv_cache_.plans_unknown_tokens()) num_steps = 0;  // hash_late()
  calendar_.add(entry, step, std::max(num_steps, 0), num_to_end);
}

// The place in num_growing_ of the steps in which the request's position begins a block.
std::size_t DecodeSet::turn_of(const Request& request) const {
  const auto size = static_cast<std::int64_t>(num_growing_.size());
  const std::int64_t first = std::int64_t{request.run_begin} - request.computed_tokens;
  return static_cast<std::size_t>((first % size + size) % size);
}

// From the step after the one at hand on, if the next block that it takes is that behind the one
// which it is filling.
void DecodeSet::let_grow_together(Request& request) {
  const std::int32_t position = position_of(request) + 1;
  const bool is_ready = !num_growing_.empty() && !request.has_blocks_in_reserve &&
                        request.kv_ready_tokens - position < std::ssize(num_growing_);
  if (!is_ready) return;
  request.has_blocks_in_reserve = true;
  ++num_growing_[turn_of(request)];
}

// No member takes blocks together with others: the calendar has the next block of each.
void DecodeSet::look_at_each() {
  std::fill(num_growing_.begin(), num_growing_.end(), 0);
  calendar_.clear();
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    Request& request = *requests_[i];
    if (request.has_blocks_in_reserve) kv_cache_.take_from_reserve(request);
    enter_in_calendar({static_cast<std::int64_t>(i), &request}, position_of(request),
                      clock_.num_planned);
  }
}

void DecodeSet::begin_plan() {
  is_planning_ = true;
  if (std::exchange(has_ended_finishing_, false)) {
    std::erase_if(finishing_, [](const Request* request) { return request->has_ended(); });
  }
  takes_run_ = false;
  if (std::exchange(steps_run_, false)) members_.take_steps(1);
  for (auto i = static_cast<std::size_t>(members_.size()); i < requests_.size(); ++i) {
    const Request& request = *requests_[i];
    members_.append(request.id, request.num_computed_tokens(), request.generation);
  }
  if (last_decodes_.empty()) return;
  erase_each(requests_, std::span(last_decodes_), [this](std::size_t place) {
    const auto num_before = static_cast<std::int32_t>(changes_.left.size());
    changes_.left.push_back(static_cast<std::int32_t>(place) + num_before);
  });
  last_decodes_.clear();
  members_.erase(changes_.left);
}

std::size_t DecodeSet::plan(StepPlan& plan, bool needs_free_block) {
  takes_run_ = plans_runs_;
  needs_free_block_ = needs_free_block;
  plan.run.place = static_cast<std::int32_t>(plan.chunks.size());
  if (members_.empty()) return 0;
  const std::int32_t step = clock_.num_planned;
  const bool attends_commits = kv_cache_.hashes_runs_at_commit();
  num_committed_at_plan_[place_of(step)] = clock_.num_committed;
  const std::int64_t num_due = num_growing(step) + std::ssize(calendar_.due_unsorted(step));
  if (!takes_run_ || (needs_free_block && kv_cache_.num_free_blocks() <= num_due)) {
    end(&plan);
    return 0;
  }
  if (num_growing(step) > 0 && num_due > kv_cache_.num_free_blocks() &&
      num_blocks_due() > kv_cache_.num_free_blocks()) {
    look_at_each();  // those before a request without room take theirs
  }
  const bool has_room = kv_cache_.grow_together(num_growing(step));
  METRONOME_CHECK(has_room, "free blocks were counted before");
  for (const RunCalendar::Entry& entry : calendar_.due(step)) {
    Request& request = *entry.request;
    const std::int32_t num_computed = position_of(request) + 1;
    if (request.has_blocks_in_reserve || kv_cache_.grow_in_run(request, num_computed)) [[likely]] {
      if (request.run_begin == step) kv_cache_.hash_planned(request, num_computed);
      const bool is_last = num_computed == request.num_final_tokens;
      if (is_last || attends_commits) plan.run.attended.push_back(request.id);
      if (is_last) {
        if (request.has_blocks_in_reserve) --num_growing_[turn_of(request)];
        request.run_end = step + 1;
        last_decodes_.push_back(&request);
        finishing_.push_back(&request);
      } else {
        let_grow_together(request);
        enter_in_calendar(entry, num_computed, step + 1);
      }
      continue;
    }
    plan.run.attended.clear();
    // From here on the policy decides for each request. Those before have their decode.
    const auto it = std::find(requests_.begin(), requests_.end(), &request);
    list(static_cast<std::size_t>(it - requests_.begin()), plan);
    end(&plan);
    return static_cast<std::size_t>(std::find(running_.begin(), running_.end(), &request) -
                                    running_.begin());
  }
  calendar_.drop(step);
  ++clock_.num_planned;
  steps_run_ = true;
  plan.run.num_decodes = members_.size();
  plan.run.members = &members_;
  plan.num_decode_tokens += members_.size();
  return num_covered_;
}

std::int64_t DecodeSet::num_blocks_due() const {
  std::int64_t num_blocks = num_growing(clock_.num_planned);
  for (const RunCalendar::Entry& entry : calendar_.due_unsorted(clock_.num_planned)) {
    if (entry.request->has_blocks_in_reserve) continue;
    num_blocks += kv_cache_.num_missing_blocks(*entry.request, position_of(*entry.request) + 1);
  }
  return num_blocks;
}

// Lists the first `num_members` decodes of the run in the plan.
void DecodeSet::list(std::size_t num_members, StepPlan& plan) {
  std::vector<ScheduledChunk>& chunks = plan.chunks;
  const auto place = static_cast<std::size_t>(plan.run.place);
  chunks.insert(chunks.begin() + plan.run.place, num_members, ScheduledChunk{});
  for (std::size_t i = 0; i < num_members; ++i) {
    chunks[place + i] = members_.chunk(i);
    Request& request = *requests_[i];
    ++request.computed_tokens;
    if (request.has_blocks_in_reserve) kv_cache_.take_from_reserve(request);
    kv_cache_.hash_planned(request, request.num_computed_tokens());
  }
  plan.num_decode_tokens += static_cast<std::int32_t>(num_members);
}

void DecodeSet::end(StepPlan* plan) {
  has_only_run_ = false;
  num_covered_ = 0;
  covers_by_arrival_ = true;
  changes_.has_ended = true;
  changes_.left.clear();
  if (requests_.empty()) return;
  last_decodes_.clear();
  if (plan != nullptr && plan->run.num_decodes > 0) {
    --clock_.num_planned;
    steps_run_ = false;
    plan->num_decode_tokens -= plan->run.num_decodes;
    plan->run.num_decodes = 0;
    plan->run.members = nullptr;
    list(requests_.size(), *plan);
  }
  std::fill(num_growing_.begin(), num_growing_.end(), 0);
  for (Request* request : requests_) {
    if (request->has_blocks_in_reserve) kv_cache_.take_from_reserve(*request);
    hash_late(*request, false);
    request->run_end = clock_.num_planned;
  }
  members_.clear();
  requests_.clear();
  calendar_.clear();
}

void DecodeSet::end_plan(StepPlan& plan, const EncoderCache* encoder) {
  is_planning_ = false;
  if (takes_run_) extend(plan, encoder);
  if (!plan.empty()) {
    plan.run.has_ended = std::exchange(changes_.has_ended, false);
    plan.run.left.swap(changes_.left);
    plan.run.joining.swap(changes_.joining);
    changes_.left.clear();
    changes_.joining.clear();
  }
  has_only_run_ = plan.num_chunks() == running_.size() && plan.chunks.empty() &&
                  last_decodes_.empty() && plan.refused.empty();
}

void DecodeSet::extend(const StepPlan& plan, const EncoderCache* encoder) {
  // The decodes behind the run, and then prompts before it.
  auto next = static_cast<std::size_t>(plan.run.place);
  const std::vector<ScheduledChunk>& chunks = plan.chunks;
  for (; num_covered_ < running_.size(); ++num_covered_) {
    Request& request = *running_[num_covered_];
    if (request.state != RequestState::Decode) return;
    if (num_covered_ > 0 && request.id < running_[num_covered_ - 1]->id) covers_by_arrival_ = false;
    if (request.has_last_token_in_flight()) continue;
    const std::size_t before = next;
    while (next < chunks.size() && chunks[next].request != request.id) ++next;
    if (next == chunks.size()) next = 0;
    while (next < before && chunks[next].request != request.id) ++next;
    if (next == chunks.size() || chunks[next].request != request.id) return;
    // Each commit may release an image that ends its prompt.
    if (encoder != nullptr && encoder->is_held_by(request.id)) return;
    if (is_in_flight(request)) return;  // a step of an earlier run
    // It decodes in the step of its prompt, so a block may be full that has no hash yet.
    const bool is_early = request.num_computed_tokens() > request.num_tokens();
    if (is_early && kv_cache_.hashes_at_plan() && !kv_cache_.hashes_at_commit()) return;
    request.leave_run();
    request.run_clock = &clock_;
    request.run_begin = clock_.num_planned;
    request.run_end = INT32_MAX;
    requests_.push_back(&request);
    kv_cache_.join_run(request);
    enter_in_calendar({next_order_++, &request}, request.num_computed_tokens(), clock_.num_planned);
    changes_.joining.push_back(static_cast<std::int32_t>(next));
  }
}

// Hashes the blocks of a request that leaves the run, as they would be outside of it: up to the
// tokens that were known when its last step was planned, or that are cached by now.
void DecodeSet::hash_late(Request& request, bool has_ended) {
  if (!kv_cache_.is_in_run(request)) return;
  const std::int32_t last = std::min(request.run_end, clock_.num_planned) - 1;
  std::int32_t num_tokens = request.num_cached_tokens();
  // The first step's were hashed when it was planned, if a step could be in flight then.
  if (kv_cache_.hashes_at_plan() && last >= request.run_begin &&
      (last > request.run_begin || !kv_cache_.hashes_at_commit())) {
    const std::int32_t num_since = clock_.num_committed - num_committed_at_plan_[place_of(last)];
    const std::int32_t num_known = request.num_tokens() - num_since;
    num_tokens = std::max(num_tokens, std::min(request.num_computed_tokens(), num_known));
  }
  kv_cache_.leave_run(request, num_tokens, has_ended);
}

void DecodeSet::leave(Request& request, bool has_ended) {
  if (request.has_blocks_in_reserve) kv_cache_.take_from_reserve(request);
  if (kv_cache_.is_in_run(request)) {
    hash_late(request, has_ended);
  } else if (kv_cache_.hashes_runs_late() && kv_cache_.hashes_at_commit()) {
    kv_cache_.commit(request, true);  // steps of the run that were in flight when it ended
  }
  if (has_ended && !is_planning_) {
    has_ended_finishing_ = !finishing_.empty();  // many requests may end with one step
  } else if (!finishing_.empty()) {
    std::erase(finishing_, &request);
  }
  if (is_in_flight(request)) {
    num_lost_steps_ = std::max(num_lost_steps_, std::min(request.run_end, clock_.num_planned));
  }
  request.leave_run();
}

std::int32_t DecodeSet::num_repeats() const {
  if (!has_only_run_ || members_.empty()) return 0;
  // Blocks of decodes are taken on the way, as far as they suffice for sure.
  const std::int64_t num_free = kv_cache_.num_free_blocks() - (needs_free_block_ ? 1 : 0);
  const std::int64_t num_rounds = num_free / (members_.size() * kv_cache_.max_blocks_of_growth());
  if (num_rounds > 0 && !kv_cache_.hashes_runs_at_commit()) {
    const std::int64_t num_steps = calendar_.num_endless_steps(clock_.num_planned);
    return static_cast<std::int32_t>(std::min(num_steps, num_rounds * kv_cache_.block_size()));
  }
  if (num_free < 0) return 0;
  std::int32_t num_steps = calendar_.num_free_steps(clock_.num_planned);
  for (std::int32_t i = 0; i < std::min<std::int64_t>(num_steps, std::ssize(num_growing_)); ++i) {
    if (num_growing(clock_.num_planned + i) > 0) num_steps = i;
  }
  return num_steps;
}

void DecodeSet::plan_repeats(std::span<StepTimes> steps) {
  const std::int32_t num_committed = clock_.num_committed;
  auto num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
  for (StepTimes& times : steps) {
    const std::int32_t step = clock_.num_planned;
    const auto due = calendar_.due(step);
    if (!due.empty() || num_growing(step) > 0) {
      bool has_room = kv_cache_.grow_together(num_growing(step));
      for (const RunCalendar::Entry& entry : due) {
        Request& request = *entry.request;
        const std::int32_t num_computed = position_of(request) + 1;
        if (!request.has_blocks_in_reserve) {
          has_room = kv_cache_.grow_in_run(request, num_computed) && has_room;
          let_grow_together(request);
        }
        enter_in_calendar(entry, num_computed, step + 1);
      }
      METRONOME_CHECK(has_room, "free blocks were counted before");
      calendar_.drop(step);
      num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
    }
    times.num_used_blocks = num_used_blocks;
    num_committed_at_plan_[place_of(step)] = clock_.num_committed;
    ++clock_.num_planned;
    ++clock_.num_committed;
  }
  clock_.num_committed = num_committed;
  members_.take_steps(static_cast<std::int32_t>(steps.size()));
}

}  // namespace metronome
