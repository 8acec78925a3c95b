// A request: what the client asked for, how far it has come, and the states it may pass through.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/base/error.h"
#include "core/base/types.h"

namespace metronome {

// What a client asks for.
struct RequestSpec {
  TimeNs arrival = 0;
  std::int32_t num_prompt_tokens = 0;  // >= 1
  std::int32_t max_output_tokens = 0;  // >= 1
  std::int32_t priority = 0;           // lower values are served first under `priority`
};

// A label for people; the arithmetic knows only num_computed_tokens catching up with num_tokens.
enum class RequestState : std::uint8_t { Waiting, Prefill, Decode, Finished, Failed };

enum class EndReason : std::uint8_t {
  None,        // has not ended
  Length,      // Finished: max_output_tokens reached
  Stop,        // Finished: an end-of-sequence or stop token
  Aborted,     // Failed: the client went away
  QueueFull,   // Failed at submission: max_waiting_requests
  NeverFits,   // Failed at submission: longer than max_model_len or the whole KV cache
  StepFailed,  // Failed: a step that computed it failed
  Errored,     // Failed: a server answered its client with an error, or stopped answering
};
constexpr std::size_t kNumEndReasons = 8;

std::string_view to_string(RequestState state);
std::string_view to_string(EndReason reason);

// The transition table.
bool may_follow(RequestState from, RequestState to);

// The physical blocks of one request, in order of position.
using BlockTable = std::vector<BlockId>;

// The counts come first: planning a decode touches one cache line.
struct alignas(64) Request {
  RequestId id = kNoRequest;
  RequestState state = RequestState::Waiting;
  EndReason end_reason = EndReason::None;
  // Changes when the request is preempted or ends: tells chunks planned before from later ones.
  std::uint8_t generation = 0;
  std::int32_t num_prompt_tokens = 0;
  std::int32_t max_output_tokens = 0;
  std::int32_t priority = 0;
  // What will be cached when the request finishes: its last token is sampled, never computed.
  std::int32_t num_final_tokens = 0;

  // Tokens whose KV a launched step computes or has computed. Advances when a plan is made, so a
  // decode can be planned while the token it computes is still in flight.
  std::int32_t num_computed_tokens = 0;
  // Tokens whose KV collected steps have written. Equals num_computed_tokens when nothing of the
  // request is in flight.
  std::int32_t num_cached_tokens = 0;
  std::int32_t num_output_tokens = 0;  // returned by collected steps
  // Positions it may compute without asking the cache again; never more than its blocks hold.
  std::int32_t kv_ready_tokens = 0;
  std::int32_t num_preemptions = 0;
  // Prompt tokens found in the cache when it was first admitted (OpenAI's cached_tokens).
  std::int32_t num_prefix_hit_tokens = 0;
  TimeNs arrival = 0;
  BlockTable block_table;
  // Blocks of the sliding-window layers of a hybrid model; null blocks behind the window.
  BlockTable window_table;
  std::vector<TokenId> output_token_ids;  // empty when the executor returns lengths only

  std::int32_t num_tokens() const { return num_prompt_tokens + num_output_tokens; }
  // What is left of a prompt (after a preemption: of prompt and output).
  std::int32_t num_uncomputed_tokens() const { return num_tokens() - num_computed_tokens; }
  // Its prompt is done and its last token is neither here nor in flight.
  bool is_decodable() const {
    return state == RequestState::Decode && num_computed_tokens < num_final_tokens;
  }
  bool has_last_token_in_flight() const {
    return state == RequestState::Decode && num_computed_tokens == num_final_tokens;
  }
  bool has_ended() const {
    return state == RequestState::Finished || state == RequestState::Failed;
  }

  // Requires may_follow(state, next).
  void transition_to(RequestState next);
};

// Every request of a run, by id. References stay valid as the table grows.
class RequestTable {
 public:
  Request& add(const RequestSpec& spec);
  Request& operator[](RequestId id) { return requests_[index(id)]; }
  const Request& operator[](RequestId id) const { return requests_[index(id)]; }
  std::size_t size() const { return requests_.size(); }  // the forgotten included

  // Where requests come without end, those that ended long ago are forgotten, a group of
  // consecutive ids at a time: whoever keeps something by request id frees the same.
  static constexpr std::size_t kGroupSize = ChunkedVector<Request>::kElementsPerChunk;
  void forget_group(std::size_t group) { requests_.forget_chunk(group); }
  bool has_group(std::size_t group) const { return requests_.has_chunk(group); }
  bool has(RequestId id) const { return has_group(index(id) / kGroupSize); }
  // Requests that are over are looked for once in so many steps.
  static constexpr std::int64_t kStepsPerSweep = 256;

 private:
  ChunkedVector<Request> requests_;
};

}  // namespace metronome
