// SPDX-License-Identifier: Apache-2.0
// The contents of one engine step: the contract between scheduler and executor.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/engine/sampling.h"

namespace metronome {

enum class ChunkKind : std::uint8_t { Prefill, Decode };

// Consecutive tokens of one request, computed in one forward pass: positions
// [first_position, first_position + num_tokens). A decode is a chunk of one token, and of the draft
// tokens that it verifies.
struct ScheduledChunk {
  RequestId request;
  // With drafts in flight this counts all of them as accepted; commit() corrects it.
  std::int32_t first_position;
  std::int32_t num_tokens;
  ChunkKind kind;
  bool samples_token;  // the chunk ends at the request's last known token, so logits are needed
  // Set at commit: tokens that the request received, more than one if drafts were accepted. Stays 0
  // in the middle of a prompt, in a failed step, and when the request ended while the step was in
  // flight.
  std::uint8_t num_emitted = 0;
  std::uint8_t generation = 0;  // the request's at planning; differs if it was preempted or ended
                                // since

  std::int32_t end_position() const { return first_position + num_tokens; }
  // Draft tokens that it verifies.
  std::int32_t num_drafts() const { return kind == ChunkKind::Decode ? num_tokens - 1 : 0; }
  // Rows of logits that it needs: one for each token of a decode, as every draft is verified.
  std::int32_t num_rows() const {
    if (!samples_token) return 0;
    return kind == ChunkKind::Decode ? num_tokens : 1;
  }
};
static_assert(sizeof(ScheduledChunk) == 16);

// The most drafts of a decode: with one token more, they are counted in num_emitted.
constexpr std::int32_t kMaxDrafts = 254;

class RunMembers;

// A step's part of a run of decodes (core/engine/decode_run.h).
struct PlannedRun {
  std::int32_t num_decodes = 0;         // in this step: 0, or all members
  std::int32_t place = 0;               // so many of `chunks` come before these decodes
  const RunMembers* members = nullptr;  // valid during launch()
  // Changes since the run of the last step that was launched. First all or some members leave.
  bool has_ended = false;
  std::vector<std::int32_t> left;  // places of members, ascending
  // Places in `chunks`: these requests are members from the next step on, behind the others.
  std::vector<std::int32_t> joining;
  // Members that take their last token in this step, in service order. Those that may complete a
  // block, too, where blocks are hashed at commit.
  std::vector<RequestId> attended;
};

// An item of a request (PromptSource::encoder_items) that a step encodes.
struct PlannedEncoding {
  RequestId request;
  std::int32_t item;
  std::int32_t num_embeddings;

  bool operator==(const PlannedEncoding&) const = default;
};

// A forward pass over chunks [begin, end) of the plan, with those of the run.
struct ForwardPass {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// Maximum number of launched steps that are not committed yet: one running and one planned ahead.
constexpr std::int64_t kMaxInFlight = 2;
// Results that an executor keeps: of the steps in flight and the last one returned.
constexpr std::int64_t kNumResults = kMaxInFlight + 1;

struct StepPlan {
  std::int64_t step_index = 0;
  TimeNs planned_at = 0;
  // The step's chunks: these, and in their midst, at run.place, one for each decode of the run.
  PlannedRun run;
  std::vector<ScheduledChunk> chunks;
  std::vector<ForwardPass> passes;   // in execution order; together they cover all chunks
  std::vector<RequestId> admitted;   // taken from the queue by this plan, in order
  std::vector<RequestId> preempted;  // moved back to the queue by this plan, in order
  std::vector<RequestId> refused;    // ended by this plan: never servable, or no room now
  // Images and the like (encoder_cache.h). The step first drops the embeddings of these contents,
  // then encodes these items, and then computes its chunks. Embeddings are kept until dropped.
  std::vector<std::uint64_t> freed_contents;
  std::vector<PlannedEncoding> encodings;
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;  // without drafts: the number of decode chunks
  // Drafts that a drafter proposes for the next decode of each request that samples in this step;
  // 0: none can use any. A lookup in texts may find fewer.
  std::int32_t num_next_drafts = 0;
  // Only for plans of a drafter's own passes: logits of each chunk's last token alone, so that a
  // chunk that samples has one row. False: ScheduledChunk::num_rows().
  bool has_last_rows_only = false;
  // State right after planning, for the step record.
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  std::int32_t num_used_blocks = 0;
  std::int32_t num_preempted = 0;  // by this plan and by empty plans since the last step

  bool empty() const { return num_chunks() == 0; }
  std::size_t num_chunks() const {
    return chunks.size() + static_cast<std::size_t>(run.num_decodes);
  }
  std::int32_t num_tokens() const { return num_prefill_tokens + num_decode_tokens; }
};

// The chunks of one pass: those of the run, if there is one, and others.
struct PassChunks {
  const RunMembers* run = nullptr;
  std::size_t run_place = 0;  // so many of `chunks` come before those of the run
  std::span<const ScheduledChunk> chunks;
  bool has_last_rows_only = false;  // StepPlan's

  // Rows of logits of one of the chunks.
  std::int32_t num_rows(const ScheduledChunk& chunk) const {
    return has_last_rows_only ? (chunk.samples_token ? 1 : 0) : chunk.num_rows();
  }
};
inline PassChunks chunks_of(const StepPlan& plan, const ForwardPass& pass) {
  const std::int32_t place = plan.run.num_decodes > 0 ? plan.run.place : 0;
  const auto in_chunks = [&](std::int32_t i) {
    return static_cast<std::size_t>(i <= place ? i : std::max(i - plan.run.num_decodes, place));
  };
  const bool has_run = plan.run.num_decodes > 0 && pass.begin <= place && place < pass.end;
  const std::size_t begin = in_chunks(pass.begin);
  return {.run = has_run ? plan.run.members : nullptr,
          .run_place = has_run ? static_cast<std::size_t>(place) - begin : 0,
          .chunks = std::span(plan.chunks).subspan(begin, in_chunks(pass.end) - begin),
          .has_last_rows_only = plan.has_last_rows_only};
}

// When a step was planned, began and ended, and the time of its decodes alone; see StepResult. Of a
// repeated step also the blocks in use.
struct StepTimes {
  TimeNs planned_at = 0;
  TimeNs started_at = 0;
  TimeNs finished_at = 0;
  TimeNs decode_only_ns = kNoTime;
  TimeNs draft_ns = 0;
  TimeNs encode_ns = 0;
  bool is_extrapolated = false;
  std::int32_t num_used_blocks = 0;  // StepPlan::num_used_blocks, if repeated
};

struct StepResult {
  std::int64_t step_index = 0;
  TimeNs started_at = 0;   // the device began; the host gap is before it
  TimeNs finished_at = 0;  // tokens are available; >= started_at
  // The step's time with its decodes alone. Equals finished_at - started_at without a prefill
  // chunk; kNoTime where the executor does not know.
  TimeNs decode_only_ns = kNoTime;
  // The part of decode_only_ns that drafts added: to be verified, and to be proposed for the next
  // step. 0 without drafts.
  TimeNs draft_ns = 0;
  // The part of the step's time that encodes images; no part of decode_only_ns. 0: none, or
  // unknown.
  TimeNs encode_ns = 0;
  // A cost model predicted the times outside the range of its measurements.
  bool is_extrapolated = false;
  bool failed = false;  // the requests of the plan get no tokens and end as Failed
  std::string error;    // the reason, if failed
  // One per chunk with samples_token, in plan order. Empty when the executor produces lengths
  // only (simulation): a request then ends at max_output_tokens.
  std::vector<TokenId> sampled_tokens;
  // Where the policy plans drafts, one per chunk with samples_token: the drafts that its
  // verification accepted, 0 for a chunk without. The chunk has so many more sampled tokens.
  std::vector<std::int32_t> num_accepted;
  // Parallel to num_accepted: the chunk's drafts without padding, which is always rejected. Empty:
  // none has padding.
  std::vector<std::int32_t> num_verified;
  // Parallel to num_accepted, with one step in flight: the drafts proposed for the request's next
  // step, at most as many as the policy's settings say. Empty: exactly as many.
  std::vector<std::int32_t> num_proposed;
  // One per sampled token, without entries if its request asked for none; or empty.
  std::vector<std::vector<TokenLogprob>> logprobs;
  // Parallel to sampled_tokens. 1 for an end-of-text or stop token: the request ends with
  // EndReason::Stop, even at its last allowed token (vLLM's check_stop). Empty: no token ends its
  // request.
  std::vector<std::uint8_t> ends_request;

  // Forgets the tokens and what is parallel to them, in the memory that they have.
  void clear_tokens() {
    sampled_tokens.clear();
    num_accepted.clear();
    num_verified.clear();
    num_proposed.clear();
    logprobs.clear();
    ends_request.clear();
  }
  // The tokens of the i-th chunk that samples.
  std::size_t num_sampled(std::size_t i) const {
    return num_accepted.empty() ? 1 : 1 + static_cast<std::size_t>(num_accepted[i]);
  }
};

// Calls visit(chunk, i) for every token i of `result.sampled_tokens` that a request received.
// Tokens behind a request's end, and those of requests that had ended, are passed over.
template <class Visit>
void for_each_token(std::span<const ScheduledChunk> chunks, const StepResult& result,
                    const Visit& visit) {
  std::size_t num_samples = 0;
  std::size_t first = 0;
  for (const ScheduledChunk& chunk : chunks) {
    if (!chunk.samples_token) continue;
    for (std::size_t i = 0; i < chunk.num_emitted; ++i) visit(chunk, first + i);
    first += result.num_sampled(num_samples++);
  }
}

}  // namespace metronome
