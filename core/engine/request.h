// SPDX-License-Identifier: Apache-2.0
// A request: the client's input, its progress, and its states.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {

// The client's input for a request.
struct RequestSpec {
  TimeNs arrival = 0;
  std::int32_t num_prompt_tokens = 0;  // >= 1
  std::int32_t max_output_tokens = 0;  // >= 1
  std::int32_t priority = 0;           // lower values are served first under `priority`
  // See Request::ignores_eos, which policy sglang looks at; nullopt: EngineSetup::ignores_eos.
  std::optional<bool> ignores_eos = {};
  // The KV of so many first prompt tokens comes from another engine when the request is admitted:
  // they take blocks and cost no compute. A preemption loses them. Less than num_prompt_tokens,
  // because the last one gives the first output token.
  std::int32_t num_received_tokens = 0;
  // Having max_output_tokens, it ends as HandedOver.
  bool hands_over = false;
  // The client's max_tokens, which the engine knows in advance, unlike where the answer ends. 0:
  // equals max_output_tokens.
  std::int32_t output_limit = 0;
  std::uint16_t class_number = 0;  // of Workload::class_names, from 1; 0: none

  std::int32_t limit_tokens() const { return std::max(output_limit, max_output_tokens); }
};

// A label for users. The scheduler advances num_computed_tokens towards num_tokens.
enum class RequestState : std::uint8_t { Waiting, Prefill, Decode, Finished, Failed };

enum class EndReason : std::uint8_t {
  None,        // has not ended
  Length,      // Finished: max_output_tokens reached
  Stop,        // Finished: an end-of-sequence or stop token
  Aborted,     // Failed: the client disconnected
  QueueFull,   // Failed at submission: max_waiting_requests
  NeverFits,   // Failed at submission: longer than max_model_len or the whole KV cache
  StepFailed,  // Failed: a step that computed it failed
  Errored,     // Failed: a server returned an error or stopped responding
  // Finished: another engine goes on, and Engine::release() frees the blocks. There are none if the
  // request was preempted while its last token was in flight.
  HandedOver,
};
constexpr std::size_t kNumEndReasons = 9;

std::string_view to_string(RequestState state);
std::string_view to_string(EndReason reason);

// The transition table.
bool may_follow(RequestState from, RequestState to);

// The physical blocks of one request, in order of position.
using BlockTable = std::vector<BlockId>;

// Counts the steps of a run of decodes; see core/engine/decode_run.h.
struct RunClock {
  std::int32_t num_planned = 0;
  std::int32_t num_committed = 0;
};
inline constexpr RunClock kNoRun;

// The counts come first, so planning a decode touches one cache line.
struct alignas(64) Request {
  RequestId id = kNoRequest;
  RequestState state = RequestState::Waiting;
  EndReason end_reason = EndReason::None;
  // Changes when the request is preempted or ends. It separates old chunks from later ones.
  std::uint8_t generation = 0;
  bool ignores_eos = false;  // runs to max_output_tokens, and the scheduler knows
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_output_tokens = 0;
  std::int32_t priority = 0;
  // Tokens cached when the request finishes. Its last token is sampled but never computed.
  std::int32_t num_final_tokens = 0;

  // Steps [run_begin, run_end) of a run compute a token each of this request.
  const RunClock* run_clock = &kNoRun;
  std::int32_t run_begin = 0;
  std::int32_t run_end = 0;
  // Without the tokens of the run's steps; see the functions of these names.
  std::int32_t computed_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t output_tokens = 0;
  // Positions it may compute before it must ask the KV cache; never more than its blocks hold.
  std::int32_t kv_ready_tokens = 0;
  std::int32_t num_preemptions = 0;
  // Draft tokens that its next decode verifies (speculative decoding).
  std::int32_t num_draft_tokens = 0;

  TimeNs arrival = 0;
  // Prompt tokens found in the cache at the first admission (OpenAI's cached_tokens).
  std::int32_t num_prefix_hit_tokens = 0;
  std::int32_t num_received_tokens = 0;  // see RequestSpec
  BlockTable block_table;
  // Of the further groups of a hybrid model's layers, each with blocks of its own: null blocks
  // where a group needs none. Empty for other models.
  std::vector<BlockTable> group_tables;
  std::vector<TokenId> output_token_ids;  // empty when the executor returns lengths only
  bool hands_over = false;                // see RequestSpec
  bool has_blocks_in_reserve = false;     // see KvCacheManager::grow_together()
  std::uint16_t class_number = 0;         // see RequestSpec
  std::int32_t output_limit = 0;          // see limit_tokens()

  // The most output tokens that an engine must expect: the client's limit.
  std::int32_t limit_tokens() const { return std::max(output_limit, max_output_tokens); }
  // Tokens whose KV a launched step computes or has computed. It advances at planning, so a decode
  // can be planned while its input token is still in flight.
  std::int32_t num_computed_tokens() const {
    return computed_tokens + num_run_tokens(run_clock->num_planned);
  }
  // Tokens whose KV collected steps have written. Equals num_computed_tokens() when no step in
  // flight computes the request.
  std::int32_t num_cached_tokens() const {
    return cached_tokens + num_run_tokens(run_clock->num_committed);
  }
  // Returned by collected steps.
  std::int32_t num_output_tokens() const {
    return output_tokens + num_run_tokens(run_clock->num_committed);
  }

  std::int32_t num_tokens() const { return num_prompt_tokens + num_output_tokens(); }
  // The tokens still to compute: of the prompt, or after a preemption of prompt and output.
  std::int32_t num_uncomputed_tokens() const { return num_tokens() - num_computed_tokens(); }
  // The prompt is computed, and the last token is neither known nor in flight.
  bool is_decodable() const {
    return state == RequestState::Decode && num_computed_tokens() < num_final_tokens;
  }
  bool has_last_token_in_flight() const {
    return state == RequestState::Decode && num_computed_tokens() == num_final_tokens;
  }
  bool has_ended() const {
    return state == RequestState::Finished || state == RequestState::Failed;
  }

  // Of `num_steps` steps of the run.
  std::int32_t num_run_tokens(std::int32_t num_steps) const {
    return std::clamp(num_steps, run_begin, run_end) - run_begin;
  }
  // Adds the tokens of the run to the counts, and leaves the run.
  void leave_run();

  // Lowers max_output_tokens. Requires that the request has no output yet.
  void limit_output(std::int32_t num_tokens);
  // Requires may_follow(state, next).
  void transition_to(RequestState next);
};

// Every request of a run, by id. References stay valid as the table grows.
class RequestTable {
 public:
  Request& add(const RequestSpec& spec);
  Request& operator[](RequestId id) { return requests_[index(id)]; }
  const Request& operator[](RequestId id) const { return requests_[index(id)]; }
  std::size_t size() const { return requests_.size(); }  // including forgotten ones

  // In runs without end, old ended requests are forgotten in groups of consecutive ids. Code that
  // keeps state by request id frees the same groups.
  static constexpr std::size_t kGroupSize = ChunkedVector<Request>::kElementsPerChunk;
  void forget_group(std::size_t group) { requests_.forget_chunk(group); }
  bool has_group(std::size_t group) const { return requests_.has_chunk(group); }
  bool has(RequestId id) const { return has_group(index(id) / kGroupSize); }
  // Steps between two searches for ended groups.
  static constexpr std::int64_t kStepsPerSweep = 256;

 private:
  ChunkedVector<Request> requests_;
};

}  // namespace metronome
