// SPDX-License-Identifier: Apache-2.0
#include "core/engine/books.h"

#include <algorithm>
#include <fmt/core.h>
#include <string>

#include "core/base/erase.h"
#include "core/base/error.h"
#include "core/engine/policy.h"

namespace metronome {

Books::Books(const BooksSetup& setup, const PolicyContext& context, Policy& policy)
    : policy_(policy),
      max_num_seqs_(context.max_num_seqs),
      max_model_len_(context.max_model_len),
      step_shape_(context.step_shape),
      order_(policy.order(context.config)),
      kv_cache_(setup.kv_cache),
      requests_(setup.requests),
      waiting_(order_),
      run_(setup.kv_cache, running_, setup.plans_runs) {
  METRONOME_CHECK(step_shape_ != StepShape::Auto, "the step shape is resolved before");
  if (setup.encoder.items != nullptr) encoder_.emplace(setup.encoder);
}

void Books::begin(StepPlan& plan, std::int64_t step_index, TimeNs now) {
  plan.step_index = step_index;
  plan.planned_at = now;
  plan.run.num_decodes = 0;
  plan.run.place = 0;
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
  run_.begin_plan();
  retire();
  kv_cache_.begin_plan();
  if (encoder_) encoder_->begin_plan();
}

void Books::finish() {
  StepPlan& plan = *plan_;
  kv_cache_.end_plan();
  if (encoder_) encoder_->drain_freed(plan.freed_contents);
  build_passes();
  run_.end_plan(plan, encoder_ ? &*encoder_ : nullptr);
  plan.num_running = static_cast<std::int32_t>(running_.size());
  plan.num_waiting = static_cast<std::int32_t>(waiting_.size());
  plan.num_used_blocks = static_cast<std::int32_t>(kv_cache_.num_used_blocks());
  plan_ = nullptr;
}

std::string Books::refusal(const RequestSpec& spec) const {
  // The last token is sampled but never cached.
  const std::int64_t num_tokens = std::int64_t{spec.num_prompt_tokens} + spec.max_output_tokens - 1;
  const std::int64_t num_blocks = kv_cache_.max_blocks_of(num_tokens);
  if (num_blocks <= kv_cache_.num_blocks()) return {};
  return fmt::format("that is {} KV blocks; the cache has {}{}", num_blocks, kv_cache_.num_blocks(),
                     kv_cache_.has_null_block() ? " besides the null block" : "");
}

void Books::retire() {
  if (ended_running_.empty()) return;
  erase_each(running_, std::span(ended_running_),
             [this](std::size_t place) { run_.forget_place(place); });
  ended_running_.clear();
}

// Behind the run a decode costs a few nanoseconds here and in commit(). Chunks are collected
// separately because preempt() may remove chunks from the plan. Victims come after the
// request that needs room, so none of them has a decode here yet.
void Books::plan_decodes() {
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
    run_.note_planned(request);
  }
  if (next == decodes_.data()) return;
  plan_->num_decode_tokens += static_cast<std::int32_t>(next - decodes_.data());
  plan_->chunks.insert(plan_->chunks.end(), decodes_.data(), next);
}

std::int32_t Books::num_decodable() const {
  return static_cast<std::int32_t>(
      std::count_if(running_.begin(), running_.end(),
                    [](const Request* request) { return request->is_decodable(); }));
}

const std::vector<Request*>& Books::unfinished_prefills() {
  ordered_prefills_.assign(prefilling_.begin(), prefilling_.end());
  if (order_ != QueueOrder::Fcfs) {
    const auto before = [this](const Request* a, const Request* b) {
      const std::int64_t key_a = WaitingQueue::key_of(order_, *a);
      const std::int64_t key_b = WaitingQueue::key_of(order_, *b);
      return key_a != key_b ? key_a < key_b : a->id < b->id;
    };
    std::sort(ordered_prefills_.begin(), ordered_prefills_.end(), before);
  }
  return ordered_prefills_;
}

bool Books::plan_prefill(Request& request, std::int32_t num_tokens) {
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

// The items that a chunk needs are encoded in its step. A policy that calls fit_to_encoder() has
// cut the chunk before.
void Books::plan_encodings(const Request& request, std::int32_t num_tokens) {
  if (!encoder_->is_fitted(request.id)) {
    if (request.state == RequestState::Decode) return;  // items are in prompts
    const std::int32_t num_fitting =
        encoder_->fit(request.id, request.num_computed_tokens(), num_tokens, 0);
    METRONOME_CHECK(num_fitting == num_tokens,
                    "policies without encoder limits compute every chunk that they plan");
  }
  encoder_->take(request.id, plan_->encodings);
}

void Books::add_chunk(Request& request, std::int32_t num_tokens) {
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
  } else {
    plan_->num_prefill_tokens += num_tokens;
    if (completes) begin_decode(request);
  }
  run_.note_planned(request);
}

void Books::begin_decode(Request& request) {
  request.transition_to(RequestState::Decode);
  std::erase(prefilling_, &request);
}

std::int32_t Books::num_planned_tokens(const Request& request) const {
  for (const ScheduledChunk& chunk : plan_->chunks) {
    if (chunk.request == request.id) return chunk.num_tokens;
  }
  return run_.plans(*plan_, request) ? 1 : 0;
}

Request* Books::next_waiting() {
  if (running_.size() >= static_cast<std::size_t>(max_num_seqs_)) return nullptr;
  if (has_evicted_) return nullptr;
  return waiting_.front();
}

bool Books::admit(Request& request, std::int32_t num_tokens) {
  METRONOME_CHECK(request.state == RequestState::Waiting, "only a waiting request is admitted");
  // Blocks that unfinished prefills still need are kept for them. A newcomer that took them would
  // be preempted again. With an empty running list the watermark protects no request, and the
  // request would wait forever.
  std::int64_t num_kept = running_.empty() ? 0 : kv_cache_.watermark_blocks();
  for (const Request* begun : prefilling_) num_kept += kv_cache_.num_missing_blocks(*begun);
  const PrefixHit& hit = kv_cache_.find_prefix(request);
  if (!kv_cache_.admit(request, hit, num_tokens, num_kept)) return false;
  note_hit(request, hit);
  join(request, order_ == QueueOrder::Priority);
  const bool planned = plan_prefill(request, num_tokens);
  METRONOME_CHECK(planned, "an admitted request has room for its first chunk");
  return true;
}

void Books::start(Request& request, const PrefixHit& hit, std::int32_t num_positions) {
  note_hit(request, hit);
  kv_cache_.take(request, hit, num_positions);
  join(request, false);
}

void Books::note_hit(Request& request, const PrefixHit& hit) {
  if (request.num_preemptions > 0) return;
  request.num_prefix_hit_tokens = kv_cache_.num_cached_tokens(hit);
}

// Moves a request that has its blocks from the queue to the running list.
void Books::join(Request& request, bool by_priority) {
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
  if (position - running_.begin() < static_cast<std::ptrdiff_t>(run_.num_covered()))
    run_.end(plan_);
  running_.insert(position, &request);
  prefilling_.push_back(&request);
  plan_->admitted.push_back(request.id);
}

void Books::refuse(Request& request) {
  METRONOME_CHECK(&request == waiting_.front(), "only the head of the queue is refused");
  waiting_.pop();
  close(request, RequestState::Failed, EndReason::NeverFits);
  plan_->refused.push_back(request.id);
}

void Books::give_up(Request& request) {
  leave_running(request);
  close(request, RequestState::Failed, EndReason::StepFailed);
  std::erase(plan_->admitted, request.id);  // if this plan admitted it, it never ran
  plan_->refused.push_back(request.id);
}

// Whether preempting all requests after `request` would give it room. If not, none of them should
// lose its computed tokens in vain.
bool Books::can_make_room(const Request& request, std::int32_t num_positions) const {
  return kv_cache_.num_free_blocks() + num_blocks_behind(request) >=
         kv_cache_.num_missing_blocks(request, num_positions);
}

// Blocks that are free once all requests after `request` are preempted.
std::int64_t Books::num_blocks_behind(const Request& request) const {
  std::int64_t num_blocks = 0;
  std::vector<BlockId> shared;
  for (auto it = running_.rbegin(); *it != &request; ++it) {
    const BlockTable& blocks = (*it)->block_table;
    num_blocks += kv_cache_.num_blocks_of(**it);
    if (kv_cache_.caches_prefixes()) shared.insert(shared.end(), blocks.begin(), blocks.end());
  }
  if (shared.empty()) return num_blocks;
  // A block counts once, if nobody else refers to it.
  std::sort(shared.begin(), shared.end());
  num_blocks -= std::ssize(shared);
  for (auto it = shared.begin(); it != shared.end();) {
    const auto end = std::upper_bound(it, shared.end(), *it);
    num_blocks += kv_cache_.pool().ref_count(*it) == end - it ? 1 : 0;
    it = end;
  }
  return num_blocks;
}

// Preempts from the end of the running list until `request` has room or is the last one.
bool Books::make_room(Request& request, std::int32_t num_positions) {
  while (running_.back() != &request) {
    preempt(*running_.back());
    if (kv_cache_.grow(request, num_positions)) return true;
  }
  return false;
}

void Books::preempt(Request& victim) {
  leave_running(victim);
  run_.leave(victim, false);
  release_encoded(victim);
  // If this plan admitted it, it has lost nothing and just stays queued. Nor has it received yet.
  const bool is_new = std::erase(plan_->admitted, victim.id) > 0;
  if (is_new && victim.num_received_tokens > 0) kv_cache_.unplan(victim, 0);
  kv_cache_.release(victim);
  victim.computed_tokens = 0;
  victim.cached_tokens = 0;
  victim.num_draft_tokens = 0;
  ++victim.generation;
  victim.transition_to(RequestState::Waiting);
  policy_.requeue(*this, victim);
  has_evicted_ = true;
  if (is_new) return;
  ++victim.num_preemptions;
  plan_->preempted.push_back(victim.id);
}

// Removes a running request from the running list and from the current plan.
void Books::leave_running(Request& request) {
  const auto place = std::find(running_.rbegin(), running_.rend(), &request);  // usually the last
                                                                               // one
  METRONOME_CHECK(place != running_.rend(), "the request runs");
  const auto base = std::next(place).base();
  if (base - running_.begin() < static_cast<std::ptrdiff_t>(run_.num_covered())) run_.end(plan_);
  unschedule(request);
  if (request.state == RequestState::Prefill) std::erase(prefilling_, &request);
  running_.erase(base);
}

// Removes the chunks of `request` from the current plan.
void Books::unschedule(Request& request) {
  if (encoder_) encoder_->unplan(request.id, plan_->encodings);
  std::int32_t i = 0;
  const std::int32_t place = plan_->run.place;
  std::erase_if(plan_->chunks, [&](const ScheduledChunk& chunk) {
    const bool is_before_run = i++ < place;
    if (chunk.request != request.id) return false;
    plan_->run.place -= is_before_run ? 1 : 0;
    kv_cache_.unplan(request, chunk.first_position);
    const bool is_decode = chunk.kind == ChunkKind::Decode;
    (is_decode ? plan_->num_decode_tokens : plan_->num_prefill_tokens) -= chunk.num_tokens;
    return true;
  });
}

void Books::sort_running_by_arrival() {
  const auto is_earlier = [](const Request* a, const Request* b) { return a->id < b->id; };
  const std::span<Request*> behind = running_behind_run();
  std::sort(behind.begin(), behind.end(), is_earlier);
  const std::size_t num_covered = run_.num_covered();
  const bool is_sorted =
      num_covered == 0 || behind.empty() || is_earlier(running_[num_covered - 1], behind.front());
  if (is_sorted && run_.covers_by_arrival()) return;
  std::vector<Request*>& all = running_list();
  std::sort(all.begin(), all.end(), is_earlier);
}

void Books::build_passes() {
  const auto num_chunks = static_cast<std::int32_t>(plan_->num_chunks());
  if (num_chunks == 0) return;
  std::int32_t begin = 0;
  if (step_shape_ == StepShape::Separate) {
    const auto is_decode = [](const ScheduledChunk& chunk) {
      return chunk.kind == ChunkKind::Decode;
    };
    std::vector<ScheduledChunk>& chunks = plan_->chunks;
    PlannedRun& run = plan_->run;
    const bool has_run = run.num_decodes > 0;
    const bool decodes_first = (has_run && run.place == 0) || is_decode(chunks.front());
    auto boundary = std::find_if(chunks.begin(), chunks.end(), [&](const ScheduledChunk& chunk) {
      return is_decode(chunk) != decodes_first;
    });
    // Most policies plan all decodes and all prefills as contiguous groups. If a policy mixes them,
    // the decodes come first.
    const auto run_at = chunks.begin() + run.place;
    const bool is_mixed = (has_run && (decodes_first ? run_at > boundary : run_at < boundary)) ||
                          std::any_of(boundary, chunks.end(), [&](const ScheduledChunk& chunk) {
                            return is_decode(chunk) == decodes_first;
                          });
    if (is_mixed) {
      run.place = static_cast<std::int32_t>(std::count_if(chunks.begin(), run_at, is_decode));
      boundary = std::stable_partition(chunks.begin(), chunks.end(), is_decode);
    }
    begin = static_cast<std::int32_t>(boundary - chunks.begin()) +
            (decodes_first || is_mixed ? run.num_decodes : 0);
    plan_->passes.push_back({0, begin});
  }
  if (begin < num_chunks) plan_->passes.push_back({begin, num_chunks});
}

void Books::end(Request& request, RequestState state, EndReason reason) {
  METRONOME_CHECK(plan_ == nullptr, "requests end between plans");
  if (request.state == RequestState::Waiting) {
    waiting_.remove(request);
  } else {
    if (request.state == RequestState::Prefill) std::erase(prefilling_, &request);
    ended_running_.push_back(&request);
  }
  close(request, state, reason);
}

void Books::close(Request& request, RequestState state, EndReason reason) {
  run_.leave(request, true);
  policy_.on_end(*this, request, reason);
  release_encoded(request);
  if (reason != EndReason::HandedOver) kv_cache_.release_ended(request);
  ++request.generation;
  request.transition_to(state);
  request.end_reason = reason;
}

}  // namespace metronome
