// SPDX-License-Identifier: Apache-2.0
// Commits steps that verified drafts (speculative decoding). Rejected drafts give their positions
// back, and tokens behind the one that ends a request are dropped. This follows
// Scheduler.update_from_output of vLLM 0.33 (vllm/v1/core/sched/scheduler.py).
#include <algorithm>

#include "core/base/error.h"
#include "core/engine/scheduler.h"

namespace metronome {

// The output of a step for one of its chunks.
struct Scheduler::ChunkOutput {
  std::int32_t num_tokens = 0;         // sampled; 0 in the middle of a prompt
  const TokenId* ids = nullptr;        // [num_tokens]; nullptr: lengths only
  const std::uint8_t* ends = nullptr;  // [num_tokens]; nullptr: none ends the request
  std::int32_t num_proposed = -1;      // drafts for the next step; -1: as planned
};

void Scheduler::commit_drafts(StepPlan& plan, const StepResult& result, CommitReport& report) {
  METRONOME_CHECK(
      result.num_verified.empty() || result.num_verified.size() == result.num_accepted.size(),
      "verified drafts are those of the chunks that sample");
  METRONOME_CHECK(
      result.num_proposed.empty() || result.num_proposed.size() == result.num_accepted.size(),
      "proposed drafts are those of the chunks that sample");
  METRONOME_CHECK(
      result.ends_request.empty() || result.ends_request.size() == result.sampled_tokens.size(),
      "one mark for each token, or none");
  std::size_t next_chunk = 0;  // of those that sample
  std::size_t next_token = 0;
  for (ScheduledChunk& chunk : plan.chunks) {
    ChunkOutput output;
    if (chunk.samples_token) {
      METRONOME_CHECK(next_chunk < result.num_accepted.size(),
                      "the executor returned the drafts of too few chunks");
      output.num_tokens = 1 + result.num_accepted[next_chunk];
      METRONOME_CHECK(output.num_tokens >= 1 && output.num_tokens <= chunk.num_tokens,
                      "a step accepts drafts that it verified");
      if (!result.num_proposed.empty()) output.num_proposed = result.num_proposed[next_chunk];
      if (!result.sampled_tokens.empty()) output.ids = result.sampled_tokens.data() + next_token;
      if (!result.ends_request.empty()) output.ends = result.ends_request.data() + next_token;
      ++next_chunk;
      next_token += static_cast<std::size_t>(output.num_tokens);
      METRONOME_CHECK(output.ids == nullptr || next_token <= result.sampled_tokens.size(),
                      "the executor returned too few tokens");
    }
    Request& request = books_.requests_[chunk.request];
    if (!request.has_ended()) commit_output(request, chunk, output, report);
  }
  METRONOME_CHECK(next_chunk == result.num_accepted.size(),
                  "the executor returned the drafts of too many chunks");
  METRONOME_CHECK(result.sampled_tokens.empty() || next_token == result.sampled_tokens.size(),
                  "the executor returned too many tokens");
}

void Scheduler::commit_output(Request& request, ScheduledChunk& chunk, const ChunkOutput& output,
                              CommitReport& report) {
  // A request that was preempted since lost its KV, but gets its tokens.
  const bool holds_kv = chunk.generation == request.generation;
  METRONOME_CHECK(holds_kv || request.state == RequestState::Waiting,
                  "admitted with a chunk in flight");
  if (books_.encoder_ && holds_kv) release_computed_items(request);
  const std::int32_t num_before = request.num_output_tokens();
  const std::int32_t num_allowed =
      std::min(output.num_tokens, request.max_output_tokens - num_before);
  bool is_stop = false;
  while (!is_stop && request.num_output_tokens() < num_before + num_allowed) {
    const std::int32_t i = request.num_output_tokens() - num_before;
    if (output.ids != nullptr) request.output_token_ids.push_back(output.ids[i]);
    is_stop = output.ends != nullptr && output.ends[i] != 0;
    ++request.output_tokens;
  }
  if (holds_kv) {
    const std::int32_t num_taken = request.num_output_tokens() - num_before;
    // Rejected drafts and tokens behind the end do not count.
    const std::int32_t num_kept =
        output.num_tokens == 0 || chunk.kind == ChunkKind::Prefill ? chunk.num_tokens : num_taken;
    chunk.first_position = request.num_cached_tokens();  // steps in flight may have moved it
    request.cached_tokens += num_kept;
    request.computed_tokens -= chunk.num_tokens - num_kept;
    if (output.num_proposed >= 0) request.num_draft_tokens = output.num_proposed;
    if (books_.kv_cache_.hashes_at_commit()) {
      books_.kv_cache_.commit(request, output.num_tokens > 0);
    }
  }
  if (output.num_tokens == 0) return;
  chunk.num_emitted = static_cast<std::uint8_t>(request.num_output_tokens() - num_before);
  if (num_before == 0) report.first_tokens.push_back(request.id);
  if (is_stop) {
    finish(request, EndReason::Stop, report);
  } else if (request.num_output_tokens() == request.max_output_tokens) {
    finish(request, EndReason::Length, report);
  } else if (chunk.kind == ChunkKind::Prefill) {
    policy_->on_prompt_committed(books_, request, chunk);
  }
}

}  // namespace metronome
