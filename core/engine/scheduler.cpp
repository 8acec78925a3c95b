// SPDX-License-Identifier: Apache-2.0
#include "core/engine/scheduler.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "core/base/erase.h"
#include "core/base/error.h"

namespace metronome {

Scheduler::Scheduler(const SchedulerContext& context)
    : config_(context.config),
      max_num_seqs_(context.max_num_seqs),
      max_model_len_(context.max_model_len),
      step_shape_(context.step_shape),
      kv_cache_(context.kv_cache),
      requests_(context.requests),
      waiting_(context.config.order),
      plans_runs_(context.plans_runs && kv_cache_.allows_runs()) {
  METRONOME_CHECK(step_shape_ != StepShape::Auto, "the step shape is resolved before");
  if (context.encoder.items != nullptr) encoder_.emplace(context.encoder);
}

void Scheduler::plan(StepPlan& plan, std::int64_t step_index, TimeNs now) {
  plan.step_index = step_index;
  plan.planned_at = now;
  plan.run.num_decodes = 0;
  plan.run.members = nullptr;
  plan.run.attended.clear();
  plan.chunks.clear();
  plan.passes.clear();
  plan.admitted.clear();
  plan.preempted.clear();
  plan.refused.clear();
  plan.freed_contents.clear();
  plan.encodings.clear();
  plan.num_prefill_tokens = 0;
  plan.num_decode_tokens = 0;
  plan.num_next_drafts = 0;
  plan_ = &plan;
  has_evicted_ = false;
  begin_run_plan();
  retire();
  kv_cache_.begin_plan();
  if (encoder_) encoder_->begin_plan();
  fill_plan();
  kv_cache_.end_plan();
  if (encoder_) encoder_->take_freed(plan.freed_contents);
  build_passes();
  if (takes_run_) extend_run();
  if (!plan.empty()) {
    plan.run.has_ended = std::exchange(run_changes_.has_ended, false);
    plan.run.left.swap(run_changes_.left);
    plan.run.joining.swap(run_changes_.joining);
    run_changes_.left.clear();
    run_changes_.joining.clear();
  }
  METRONOME_CHECK(plan.num_tokens() <= max_tokens_per_step(), "a step exceeds its token budget");
  METRONOME_CHECK(static_cast<std::int64_t>(running_.size()) <= max_running(),
                  "more requests run than max_num_seqs");
  has_only_run_ =
      plan.num_chunks() == running_.size() && plan.chunks.empty() && last_decodes_.empty();
  plan.num_running = static_cast<std::int32_t>(running_.size());
  plan.num_waiting = static_cast<std::int32_t>(waiting_.size());
  plan.num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
  plan_ = nullptr;
}

std::string Scheduler::refusal(const RequestSpec& spec) const {
  // The last token is sampled but never cached.
  const std::int64_t num_tokens = std::int64_t{spec.num_prompt_tokens} + spec.max_output_tokens - 1;
  const std::int64_t num_blocks = kv_cache_.max_blocks_of(num_tokens);
  if (num_blocks <= kv_cache_.num_blocks()) return {};
  return "that is " + std::to_string(num_blocks) + " KV blocks; the cache has " +
         std::to_string(kv_cache_.num_blocks()) +
         (kv_cache_.has_null_block() ? " besides the null block" : "");
}

void Scheduler::retire() {
  if (ended_running_.empty()) return;
  erase_each(running_, std::span(ended_running_), [this](std::size_t place) {
    if (place < num_covered_) --num_covered_;
  });
  ended_running_.clear();
}

// Behind the run a decode costs a few nanoseconds here and in commit(). Chunks are collected
// separately because preempt() may remove chunks from the plan. Victims come after the
// request that needs room, so none of them has a decode here yet.
void Scheduler::plan_decodes() {
  const std::size_t first = plan_run();
  std::size_t num_running = running_.size();
  decodes_.resize(num_running - first);
  ScheduledChunk* next = decodes_.data();
  for (std::size_t i = first; i < num_running; ++i) {
    Request& request = *running_[i];
    if (!request.is_decodable()) continue;
    const std::int32_t position = request.num_computed_tokens();
    if (!kv_cache_.grow(request, position + 1)) [[unlikely]] {
      if (!make_room(request, position + 1)) {
        preempt(request);  // all requests after it are already preempted
        break;
      }
      num_running = running_.size();
    }
    *next++ = {.request = request.id,
               .first_position = position,
               .num_tokens = 1,
               .kind = ChunkKind::Decode,
               .samples_token = true,
               .generation = request.generation};
    ++request.computed_tokens;
  }
  if (next == decodes_.data()) return;
  plan_->num_decode_tokens += static_cast<std::int32_t>(next - decodes_.data());
  plan_->chunks.insert(plan_->chunks.end(), decodes_.data(), next);
}

std::int32_t Scheduler::num_decodable() const {
  return static_cast<std::int32_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const Request* request) { return request->is_decodable(); }));
}

const std::vector<Request*>& Scheduler::unfinished_prefills() {
  ordered_prefills_.assign(prefilling_.begin(), prefilling_.end());
  if (config_.order != QueueOrder::Fcfs) {
    const auto before = [this](const Request* a, const Request* b) {
      const std::int64_t key_a = WaitingQueue::key_of(config_.order, *a);
      const std::int64_t key_b = WaitingQueue::key_of(config_.order, *b);
      return key_a != key_b ? key_a < key_b : a->id < b->id;
    };
    std::sort(ordered_prefills_.begin(), ordered_prefills_.end(), before);
  }
  return ordered_prefills_;
}

bool Scheduler::plan_prefill(Request& request, std::int32_t num_tokens) {
  const std::int32_t num_positions = request.num_computed_tokens() + num_tokens;
  METRONOME_CHECK(num_tokens >= 1 && num_tokens <= request.num_uncomputed_tokens(),
                  "a chunk covers uncomputed tokens only");
  if (!kv_cache_.grow(request, num_positions)) {
    if (!can_make_room(request, num_positions)) return false;
    const bool has_room = make_room(request, num_positions);
    METRONOME_CHECK(has_room, "preempting those behind gives the room that was counted");
  }
  add_chunk(request, num_tokens);
  return true;
}

void Scheduler::add_chunk(Request& request, std::int32_t num_tokens) {
  if (encoder_) plan_encodings(request, num_tokens);
  const bool is_decode = request.state == RequestState::Decode;
  const bool completes = is_decode || num_tokens == request.num_uncomputed_tokens();
  plan_->chunks.push_back({.request = request.id,
                           .first_position = request.num_computed_tokens(),
                           .num_tokens = num_tokens,
                           .kind = is_decode ? ChunkKind::Decode : ChunkKind::Prefill,
                           .samples_token = completes,
                           .generation = request.generation});
  request.computed_tokens += num_tokens;
  if (is_decode) {
    plan_->num_decode_tokens += num_tokens;
    return;
  }
  plan_->num_prefill_tokens += num_tokens;
  if (completes) begin_decode(request);
}

void Scheduler::begin_decode(Request& request) {
  request.transition_to(RequestState::Decode);
  std::erase(prefilling_, &request);
}

std::int32_t Scheduler::num_planned_tokens(const Request& request) const {
  for (const ScheduledChunk& chunk : plan_->chunks) {
    if (chunk.request == request.id) return chunk.num_tokens;
  }
  return plan_->run.num_decodes > 0 && request.run_end >= run_clock_.num_planned ? 1 : 0;
}

Request* Scheduler::next_waiting() {
  if (running_.size() >= static_cast<std::size_t>(max_num_seqs_)) return nullptr;
  if (has_evicted_) return nullptr;
  return waiting_.front();
}

bool Scheduler::admit(Request& request, std::int32_t num_tokens) {
  METRONOME_CHECK(request.state == RequestState::Waiting, "only a waiting request is admitted");
  // Blocks that unfinished prefills still need are kept for them. A newcomer that took them would
  // be preempted again. With an empty running list the watermark protects no request, and the
  // request would wait forever.
  std::int64_t num_kept = running_.empty() ? 0 : kv_cache_.watermark_blocks();
  for (const Request* begun : prefilling_) num_kept += kv_cache_.num_missing_blocks(*begun);
  if (!kv_cache_.admit(request, num_tokens, num_kept)) return false;
  join(request, config_.order == QueueOrder::Priority);
  const bool planned = plan_prefill(request, num_tokens);
  METRONOME_CHECK(planned, "an admitted request has room for its first chunk");
  return true;
}

void Scheduler::start(Request& request, const PrefixHit& hit, std::int32_t num_positions) {
  if (request.num_preemptions == 0) request.num_prefix_hit_tokens = hit.num_tokens;
  kv_cache_.take(request, hit, num_positions);
  join(request, false);
}

// Moves a request that has its blocks from the queue to the running list.
void Scheduler::join(Request& request, bool by_priority) {
  if (waiting_.front() == &request) {
    waiting_.pop();
  } else {
    waiting_.remove(request);
  }
  request.transition_to(RequestState::Prefill);
  auto position = running_.end();
  if (by_priority) {
    position = std::upper_bound(
        running_.begin(), running_.end(), &request, [](const Request* a, const Request* b) {
          return a->priority != b->priority ? a->priority < b->priority : a->id < b->id;
        });
  }
  if (position - running_.begin() < static_cast<std::ptrdiff_t>(num_covered_)) end_run();
  running_.insert(position, &request);
  prefilling_.push_back(&request);
  plan_->admitted.push_back(request.id);
}

void Scheduler::refuse(Request& request) {
  METRONOME_CHECK(&request == waiting_.front(), "only the head of the queue is refused");
  waiting_.pop();
  close(request, RequestState::Failed, EndReason::NeverFits);
  plan_->refused.push_back(request.id);
}

void Scheduler::give_up(Request& request) {
  leave_running(request);
  close(request, RequestState::Failed, EndReason::StepFailed);
  std::erase(plan_->admitted, request.id);  // if this plan admitted it, it never ran
  plan_->refused.push_back(request.id);
}

// Whether preempting all requests after `request` would give it room. If not, none of them should
// lose its computed tokens in vain.
bool Scheduler::can_make_room(const Request& request, std::int32_t num_positions) const {
  std::int64_t num_available =
      kv_cache_.num_free_blocks() + static_cast<std::int64_t>(request.block_table.size());
  for (auto it = running_.rbegin(); *it != &request; ++it) {
    num_available += static_cast<std::int64_t>((*it)->block_table.size());
  }
  return num_available >= kv_cache_.blocks_for(num_positions);
}

// Preempts from the end of the running list until `request` has room or is the last one.
bool Scheduler::make_room(Request& request, std::int32_t num_positions) {
  while (running_.back() != &request) {
    preempt(*running_.back());
    if (kv_cache_.grow(request, num_positions)) return true;
  }
  return false;
}

void Scheduler::preempt(Request& victim) {
  leave_running(victim);
  leave_run(victim);
  release_encoded(victim);
  kv_cache_.release(victim);
  victim.computed_tokens = 0;
  victim.cached_tokens = 0;
  victim.num_draft_tokens = 0;
  ++victim.generation;
  victim.transition_to(RequestState::Waiting);
  requeue(victim);
  has_evicted_ = true;
  // This plan admitted it, so it has lost nothing and just stays queued.
  if (std::erase(plan_->admitted, victim.id) > 0) return;
  ++victim.num_preemptions;
  plan_->preempted.push_back(victim.id);
}

// Removes a running request from the running list and from the current plan.
void Scheduler::leave_running(Request& request) {
  const auto place = std::find(running_.rbegin(), running_.rend(), &request);  // usually the last
                                                                               // one
  METRONOME_CHECK(place != running_.rend(), "the request runs");
  const auto base = std::next(place).base();
  if (base - running_.begin() < static_cast<std::ptrdiff_t>(num_covered_)) end_run();
  unschedule(request);
  if (request.state == RequestState::Prefill) std::erase(prefilling_, &request);
  running_.erase(base);
}

// Removes the chunks of `request` from the current plan.
void Scheduler::unschedule(Request& request) {
  if (encoder_) encoder_->unplan(request.id, plan_->encodings);
  std::erase_if(plan_->chunks, [&](const ScheduledChunk& chunk) {
    if (chunk.request != request.id) return false;
    kv_cache_.unplan(request, chunk.first_position);
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    (is_decode ? plan_->num_decode_tokens : plan_->num_prefill_tokens) -= chunk.num_tokens;
    return true;
  });
}

void Scheduler::build_passes() {
  const auto num_chunks = static_cast<std::int32_t>(plan_->num_chunks());
  if (num_chunks == 0) return;
  std::int32_t begin = 0;
  if (step_shape_ == StepShape::Separate) {
    const auto is_decode = [](const ScheduledChunk& chunk) {
      return chunk.kind == ChunkKind::Decode;
    };
    std::vector<ScheduledChunk>& chunks = plan_->chunks;
    const bool decodes_first = plan_->run.num_decodes > 0 || is_decode(chunks.front());
    auto boundary = std::find_if(chunks.begin(), chunks.end(), [&](const ScheduledChunk& chunk) {
      return is_decode(chunk) != decodes_first;
    });
    // Most policies plan all decodes and all prefills as contiguous groups. If a policy mixes them,
    // the decodes come first.
    const bool is_mixed = std::any_of(boundary, chunks.end(), [&](const ScheduledChunk& chunk) {
      return is_decode(chunk) == decodes_first;
    });
    if (is_mixed) boundary = std::stable_partition(chunks.begin(), chunks.end(), is_decode);
    begin = plan_->run.num_decodes + static_cast<std::int32_t>(boundary - chunks.begin());
    plan_->passes.push_back({0, begin});
  }
  if (begin < num_chunks) plan_->passes.push_back({begin, num_chunks});
}

void Scheduler::commit(StepPlan& plan, const StepResult& result, CommitReport& report) {
  report.first_tokens.clear();
  report.ended.clear();
  const std::int32_t run_step = begin_run_commit(plan, result, report);
  if (result.failed) fail(plan, report);  // before the run's step counts
  if (run_step != kNoRunStep) ++run_clock_.num_committed;
  if (!result.failed) commit_outputs(plan, result, run_step, report);
  on_commit(plan, result, report);
}

void Scheduler::commit_outputs(StepPlan& plan, const StepResult& result, std::int32_t run_step,
                               CommitReport& report) {
  if (report.run != nullptr) commit_run(plan, report);
  if (kv_cache_.verifies_drafts()) {
    commit_drafts(plan, result, report);
  } else if (result.sampled_tokens.empty()) {
    commit_chunks(
        plan, [](Request&) { return false; }, [] {}, run_step, report);
  } else {
    commit_tokens(plan, result, report);
  }
}

void Scheduler::commit_tokens(StepPlan& plan, const StepResult& result, CommitReport& report) {
  const std::vector<TokenId>& tokens = result.sampled_tokens;
  const std::vector<std::uint8_t>& ends = result.ends_request;
  METRONOME_CHECK(ends.empty() || ends.size() == tokens.size(), "one mark for each token, or none");
  std::size_t next = 0;
  const auto take = [&](Request& request) {
    METRONOME_CHECK(next < tokens.size(), "the executor returned too few tokens");
    request.output_token_ids.push_back(tokens[next]);
    const bool is_stop = !ends.empty() && ends[next] != 0;
    ++next;
    return is_stop;
  };
  commit_chunks(
      plan, take, [&next] { ++next; }, kNoRunStep, report);
  METRONOME_CHECK(next == tokens.size(), "the executor returned too many tokens");
}

// Calls `take_token` for every token that counts; it returns whether the token ends the request.
// Calls `drop_token` for every other token.
template <class TakeToken, class DropToken>
void Scheduler::commit_chunks(StepPlan& plan, const TakeToken& take_token,
                              const DropToken& drop_token, std::int32_t run_step,
                              CommitReport& report) {
  const bool hashes_at_commit = kv_cache_.hashes_at_commit();
  for (ScheduledChunk& chunk : plan.chunks) {
    Request& request = requests_[chunk.request];
    // The run's clock has counted its token.
    const bool is_counted = request.run_begin <= run_step && run_step < request.run_end;
    if (is_counted) [[unlikely]] {
      if (hashes_at_commit) kv_cache_.commit(request, true);
    } else if (chunk.generation == request.generation) [[likely]] {
      METRONOME_CHECK(request.num_cached_tokens() == chunk.first_position,
                      "chunks of a request are computed without gaps");
      if (encoder_) [[unlikely]]
        release_computed_items(request);
      request.cached_tokens += chunk.num_tokens;
      if (hashes_at_commit) [[unlikely]]
        kv_cache_.commit(request, chunk.samples_token);
    } else if (request.has_ended()) {
      if (chunk.samples_token) drop_token();
      continue;
    } else {  // preempted since planning: it lost its KV but gets its token
      METRONOME_CHECK(request.state == RequestState::Waiting, "admitted with a chunk in flight");
      if (!takes_token_of_preempted()) {
        if (chunk.samples_token) drop_token();
        continue;
      }
    }
    if (!chunk.samples_token) continue;
    chunk.num_emitted = 1;
    if (!is_counted) [[likely]]
      ++request.output_tokens;
    const bool is_stop = take_token(request);
    const bool is_first = request.num_output_tokens() == 1;
    const bool is_last = request.num_output_tokens() == request.max_output_tokens;
    if (is_first) [[unlikely]]
      report.first_tokens.push_back(request.id);
    if (is_stop) [[unlikely]]
      finish(request, EndReason::Stop, report);
    else if (is_last) [[unlikely]]
      finish(request, EndReason::Length, report);
    else if (chunk.kind == ChunkKind::Prefill) [[unlikely]]
      on_prompt_committed(request, chunk);
  }
}

void Scheduler::fail(const StepPlan& plan, CommitReport& report) {
  end_run();
  std::vector<BlockId> invalid;
  const auto fail_one = [&](Request& request) {
    const auto unfilled = kv_cache_.forget_from(request, request.num_cached_tokens());
    invalid.insert(invalid.end(), unfilled.begin(), unfilled.end());
    end(request, RequestState::Failed, EndReason::StepFailed);
    report.ended.push_back(request.id);
  };
  for (const ScheduledChunk& chunk : plan.chunks) {
    Request& request = requests_[chunk.request];
    if (!request.has_ended()) fail_one(request);
  }
  if (encoder_) fail_encodings(plan, fail_one);
  kv_cache_.forget_free_blocks();
  if (invalid.empty()) return;
  // The step in flight may use blocks that the failed step should have filled.
  const auto has_invalid = [&](const BlockTable& blocks) {
    return std::find_first_of(blocks.begin(), blocks.end(), invalid.begin(), invalid.end()) !=
           blocks.end();
  };
  bool has_freed = false;
  for (Request* request : running_) {
    if (request->has_ended()) continue;
    const std::vector<BlockTable>& groups = request->group_tables;
    if (has_invalid(request->block_table) ||
        std::any_of(groups.begin(), groups.end(), has_invalid)) {
      fail_one(*request);
      has_freed = true;
    }
  }
  // These requests kept the blocks in the radix tree until now.
  if (has_freed) kv_cache_.forget_free_blocks();
}

// The step in flight may use embeddings that the failed step should have made.
template <class FailOne>
void Scheduler::fail_encodings(const StepPlan& plan, const FailOne& fail_one) {
  if (plan.encodings.empty()) return;
  for (Request* request : running_) {
    if (!request->has_ended() && encoder_->holds_any(request->id, plan.encodings)) {
      fail_one(*request);
    }
  }
  encoder_->forget(plan.encodings);
}

void Scheduler::finish(Request& request, EndReason reason, CommitReport& report) {
  METRONOME_CHECK(request.state == RequestState::Waiting ||
                      request.num_cached_tokens() == request.num_tokens() - 1,
                  "a finished request has all tokens but its last one cached");
  end(request, RequestState::Finished, reason);
  report.ended.push_back(request.id);
}

void Scheduler::abort(Request& request) {
  if (request.run_end > run_clock_.num_committed) end_run();
  // Forgets unfilled blocks now: if the step in flight fails, fail() skips ended requests.
  kv_cache_.unplan(request, request.num_cached_tokens());
  end(request, RequestState::Failed, EndReason::Aborted);
}

void Scheduler::end(Request& request, RequestState state, EndReason reason) {
  METRONOME_CHECK(plan_ == nullptr, "requests end between plans");
  if (request.state == RequestState::Waiting) {
    waiting_.remove(request);
  } else {
    if (request.state == RequestState::Prefill) std::erase(prefilling_, &request);
    ended_running_.push_back(&request);
  }
  close(request, state, reason);
}

void Scheduler::close(Request& request, RequestState state, EndReason reason) {
  leave_run(request);
  on_end(request, reason);
  release_encoded(request);
  kv_cache_.release_ended(request);
  ++request.generation;
  request.transition_to(state);
  request.end_reason = reason;
}

}  // namespace metronome
