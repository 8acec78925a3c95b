// SPDX-License-Identifier: Apache-2.0
#include "core/engine/scheduler.h"

#include <algorithm>
#include <utility>

#include "core/base/error.h"

namespace metronome {

Scheduler::Scheduler(const BooksSetup& setup, const PolicyContext& context,
                     std::unique_ptr<Policy> policy)
    : policy_(std::move(policy)), books_(setup, context, *policy_) {}

void Scheduler::plan(StepPlan& plan, std::int64_t step_index, TimeNs now) {
  books_.begin(plan, step_index, now);
  policy_->fill(books_);
  books_.finish();
  METRONOME_CHECK(plan.num_tokens() <= policy_->max_tokens_per_step(),
                  "a step exceeds its token budget");
  METRONOME_CHECK(static_cast<std::int64_t>(running().size()) <= policy_->max_running(books_),
                  "more requests run than max_num_seqs");
}

void Scheduler::commit(StepPlan& plan, const StepResult& result, CommitReport& report) {
  report.first_tokens.clear();
  report.ended.clear();
  const std::int32_t run_step = begin_run_commit(plan, result, report);
  if (result.failed) fail(plan, report);  // before the run's step counts
  if (run_step != kNoRunStep) books_.run_.commit_steps(1);
  if (!result.failed) commit_outputs(plan, result, run_step, report);
  policy_->on_commit(books_, plan, result, report);
}

void Scheduler::commit_outputs(StepPlan& plan, const StepResult& result, std::int32_t run_step,
                               CommitReport& report) {
  if (books_.kv_cache_.verifies_drafts()) return commit_drafts(plan, result, report);
  if (!result.sampled_tokens.empty()) return commit_tokens(plan, result, report);
  const auto commit_part = [&](std::span<ScheduledChunk> chunks) {
    commit_chunks(
        chunks, [](Request&) { return false; }, [] {}, run_step, report);
  };
  const std::span<ScheduledChunk> chunks(plan.chunks);
  if (report.run == nullptr) return commit_part(chunks);
  const auto place = static_cast<std::size_t>(plan.run.place);
  commit_part(chunks.first(place));
  commit_run(plan, report);
  commit_part(chunks.subspan(place));
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
      plan.chunks, take, [&next] { ++next; }, kNoRunStep, report);
  METRONOME_CHECK(next == tokens.size(), "the executor returned too many tokens");
}

// Calls `accept_token` for every token that counts; it returns whether the token ends the request.
// Calls `drop_token` for every other token.
template <class AcceptToken, class DropToken>
void Scheduler::commit_chunks(std::span<ScheduledChunk> chunks, const AcceptToken& accept_token,
                              const DropToken& drop_token, std::int32_t run_step,
                              CommitReport& report) {
  const bool hashes_at_commit = books_.kv_cache_.hashes_at_commit();
  for (ScheduledChunk& chunk : chunks) {
    Request& request = books_.requests_[chunk.request];
    // The run's clock has counted its token.
    const bool is_counted = request.run_begin <= run_step && run_step < request.run_end;
    if (is_counted) [[unlikely]] {
      // In the run, its blocks are hashed when it leaves.
      const bool hashes = hashes_at_commit && !books_.kv_cache_.is_in_run(request);
      if (hashes) books_.kv_cache_.commit(request, true);
    } else if (chunk.generation == request.generation) [[likely]] {
      METRONOME_CHECK(request.num_cached_tokens() == chunk.first_position,
                      "chunks of a request are computed without gaps");
      if (books_.encoder_) [[unlikely]]
        release_computed_items(request);
      request.cached_tokens += chunk.num_tokens;
      if (hashes_at_commit) [[unlikely]]
        books_.kv_cache_.commit(request, chunk.samples_token);
    } else if (request.has_ended()) {
      if (chunk.samples_token) drop_token();
      continue;
    } else {  // preempted since planning: it lost its KV but gets its token
      METRONOME_CHECK(request.state == RequestState::Waiting, "admitted with a chunk in flight");
      if (!policy_->takes_token_of_preempted()) {
        if (chunk.samples_token) drop_token();
        continue;
      }
    }
    if (!chunk.samples_token) continue;
    chunk.num_emitted = 1;
    if (!is_counted) [[likely]]
      ++request.output_tokens;
    const bool is_stop = accept_token(request);
    const bool is_first = request.num_output_tokens() == 1;
    const bool is_last = request.num_output_tokens() == request.max_output_tokens;
    if (is_first) [[unlikely]]
      report.first_tokens.push_back(request.id);
    if (is_stop) [[unlikely]]
      finish(request, EndReason::Stop, report);
    else if (is_last) [[unlikely]]
      finish(request, EndReason::Length, report);
    else if (chunk.kind == ChunkKind::Prefill) [[unlikely]]
      policy_->on_prompt_committed(books_, request, chunk);
  }
}

void Scheduler::fail(const StepPlan& plan, CommitReport& report) {
  books_.run_.end(nullptr);
  std::vector<BlockId> invalid;
  const auto fail_one = [&](Request& request) {
    const auto unfilled = books_.kv_cache_.forget_from(request, request.num_cached_tokens());
    invalid.insert(invalid.end(), unfilled.begin(), unfilled.end());
    books_.end(request, RequestState::Failed, EndReason::StepFailed);
    report.ended.push_back(request.id);
  };
  for (const ScheduledChunk& chunk : plan.chunks) {
    Request& request = books_.requests_[chunk.request];
    if (!request.has_ended()) fail_one(request);
  }
  if (books_.encoder_) fail_encodings(plan, fail_one);
  books_.kv_cache_.forget_free_blocks();
  if (invalid.empty()) return;
  // The step in flight may use blocks that the failed step should have filled.
  const auto has_invalid = [&](const BlockTable& blocks) {
    return std::find_first_of(blocks.begin(), blocks.end(), invalid.begin(), invalid.end()) !=
           blocks.end();
  };
  bool has_freed = false;
  for (Request* request : books_.running_) {
    if (request->has_ended()) continue;
    const std::vector<BlockTable>& groups = request->group_tables;
    if (has_invalid(request->block_table) ||
        std::any_of(groups.begin(), groups.end(), has_invalid)) {
      fail_one(*request);
      has_freed = true;
    }
  }
  // These requests kept the blocks in the radix tree until now.
  if (has_freed) books_.kv_cache_.forget_free_blocks();
}

// The step in flight may use embeddings that the failed step should have made.
template <class FailOne>
void Scheduler::fail_encodings(const StepPlan& plan, const FailOne& fail_one) {
  if (plan.encodings.empty()) return;
  for (Request* request : books_.running_) {
    if (!request->has_ended() && books_.encoder_->holds_any(request->id, plan.encodings)) {
      fail_one(*request);
    }
  }
  books_.encoder_->forget(plan.encodings);
}

void Scheduler::finish(Request& request, EndReason reason, CommitReport& report) {
  METRONOME_CHECK(request.state == RequestState::Waiting ||
                      request.num_cached_tokens() == request.num_tokens() - 1,
                  "a finished request has all tokens but its last one cached");
  if (reason == EndReason::Length && request.hands_over) reason = EndReason::HandedOver;
  books_.end(request, RequestState::Finished, reason);
  report.ended.push_back(request.id);
}

void Scheduler::abort(Request& request) {
  if (books_.run_.is_in_flight(request)) books_.run_.end(nullptr);
  // Forgets unfilled blocks now: if the step in flight fails, fail() skips ended requests.
  books_.kv_cache_.unplan(request, request.num_cached_tokens());
  books_.end(request, RequestState::Failed, EndReason::Aborted);
}

// Called before the chunk's tokens are appended. With a step in flight vLLM compares with the
// computed tokens less the tokens that are still to come, so an item at a prompt's end is held for
// one step more.
void Scheduler::release_computed_items(const Request& request) {
  const bool counts_known =
      books_.encoder_->setup().plans_ahead && request.state == RequestState::Decode;
  books_.encoder_->release_computed(
      request.id, counts_known ? request.num_tokens() - 1 : request.num_computed_tokens());
}

void Scheduler::check_encoder() const {
  if (!books_.encoder_) return;
  books_.encoder_->check_integrity();
  books_.encoder_->visit_holders([this](RequestId id) {
    METRONOME_CHECK(!books_.requests_[id].has_ended(), "an ended request holds no encoder entry");
  });
}

}  // namespace metronome
