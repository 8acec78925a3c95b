// What one engine step computes: the contract between scheduler and executor.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/types.h"
#include "core/engine/sampling.h"

namespace metronome {

enum class ChunkKind : std::uint8_t { Prefill, Decode };

// Consecutive tokens of one request, computed in one forward pass: positions
// [first_position, first_position + num_tokens). A decode is a chunk of one token.
struct ScheduledChunk {
  RequestId request;
  std::int32_t first_position;
  std::int32_t num_tokens;
  ChunkKind kind;
  bool samples_token;  // the chunk ends at the request's last known token, so logits are needed
  // Set when the step is committed: the request got a token. Stays false in the middle of a prompt,
  // in a failed step, and when the request ended while the step was in flight.
  bool emitted = false;
  std::uint8_t generation = 0;  // of the request when planned: it differs if that was preempted or
                                // ended since

  std::int32_t end_position() const { return first_position + num_tokens; }
};
static_assert(sizeof(ScheduledChunk) == 16);

// A forward pass over chunks [begin, end) of the plan.
struct ForwardPass {
  std::int32_t begin = 0;
  std::int32_t end = 0;
};

// Steps that an engine has launched and not committed yet, at most: one that runs and one planned
// meanwhile.
constexpr std::int64_t kMaxInFlight = 2;
// Results that an executor keeps: of the steps in flight, and the one handed out last.
constexpr std::int64_t kNumResults = kMaxInFlight + 1;

struct StepPlan {
  std::int64_t step_index = 0;
  TimeNs planned_at = 0;
  std::vector<ScheduledChunk> chunks;
  std::vector<ForwardPass> passes;   // in execution order; together they cover all chunks
  std::vector<RequestId> admitted;   // taken from the queue by this plan, in order
  std::vector<RequestId> preempted;  // sent back to the queue by this plan, in order
  std::vector<RequestId> refused;    // ended by this plan: they can never be served, or not now
  std::int32_t num_prefill_tokens = 0;
  std::int32_t num_decode_tokens = 0;  // equals the number of decode chunks
  // State right after planning, for the step record.
  std::int32_t num_running = 0;
  std::int32_t num_waiting = 0;
  std::int32_t num_used_blocks = 0;
  std::int32_t num_preempted = 0;  // by this plan and by empty ones since the step before

  bool empty() const { return chunks.empty(); }
  std::int32_t num_tokens() const { return num_prefill_tokens + num_decode_tokens; }
};

struct StepResult {
  std::int64_t step_index = 0;
  TimeNs started_at = 0;   // the device began; the host gap lies before it
  TimeNs finished_at = 0;  // tokens are available; >= started_at
  // What the step would have taken with its decodes alone; finished_at - started_at where it has no
  // prefill chunk, kNoTime where the executor does not know.
  TimeNs decode_only_ns = kNoTime;
  // The times are a prediction of a cost model for more than what it was measured with.
  bool is_extrapolated = false;
  bool failed = false;  // the requests of the plan get no tokens and end as Failed
  std::string error;    // why, when failed
  // One per chunk with samples_token, in plan order. Empty when the executor produces lengths
  // only (simulation): a request then ends at max_output_tokens.
  std::vector<TokenId> sampled_tokens;
  // One per sampled token, of no entries where its request asked for none; or empty.
  std::vector<std::vector<TokenLogprob>> logprobs;
  // Parallel to sampled_tokens: 1 where the token is an end-of-text or a stop token and its request
  // ends with it, as EndReason::Stop also where it is the last that was asked for (vLLM's
  // check_stop). Empty: none does.
  std::vector<std::uint8_t> ends_request;
};

}  // namespace metronome
