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
  // Set at commit: the request received a token. Stays false in the middle of a prompt, in a failed
  // step, and when the request ended while the step was in flight.
  bool emitted = false;
  std::uint8_t generation = 0;  // the request's at planning; differs if it was preempted or ended
                                // since

  std::int32_t end_position() const { return first_position + num_tokens; }
};
static_assert(sizeof(ScheduledChunk) == 16);

class RunMembers;

// A step's part of a run of decodes (core/engine/decode_run.h).
struct PlannedRun {
  std::int32_t num_decodes = 0;         // in this step: 0, or all members
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
  // The step's chunks are one for each decode of the run, then these.
  PlannedRun run;
  std::vector<ScheduledChunk> chunks;
  std::vector<ForwardPass> passes;   // in execution order; together they cover all chunks
  std::vector<RequestId> admitted;   // taken from the queue by this plan, in order
  std::vector<RequestId> preempted;  // moved back to the queue by this plan, in order
  std::vector<RequestId> refused;    // ended by this plan: never servable, or no room now
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;  // without drafts: the number of decode chunks
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
  std::span<const ScheduledChunk> chunks;
};
inline PassChunks chunks_of(const StepPlan& plan, const ForwardPass& pass) {
  const auto place = [&plan](std::int32_t i) {
    return static_cast<std::size_t>(std::max(i - plan.run.num_decodes, 0));
  };
  const bool has_run = plan.run.num_decodes > 0 && pass.begin == 0;
  return {has_run ? plan.run.members : nullptr,
          std::span(plan.chunks).subspan(place(pass.begin), place(pass.end) - place(pass.begin))};
}

// When a step was planned, began and ended, and the time of its decodes alone; see StepResult. Of a
// repeated step also the blocks in use.
struct StepTimes {
  TimeNs planned_at = 0;
  TimeNs started_at = 0;
  TimeNs finished_at = 0;
  TimeNs decode_only_ns = kNoTime;
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
  // Parallel to num_accepted, with one step in flight: the drafts proposed for the request's next
  // step, at most as many as the policy's settings say. Empty: exactly as many.
  std::vector<std::int32_t> num_proposed;
  // One per sampled token, without entries if its request asked for none; or empty.
  std::vector<std::vector<TokenLogprob>> logprobs;
  // Parallel to sampled_tokens. 1 for an end-of-text or stop token: the request ends with
  // EndReason::Stop, even at its last allowed token (vLLM's check_stop). Empty: no token ends its
  // request.
  std::vector<std::uint8_t> ends_request;
};

}  // namespace metronome
