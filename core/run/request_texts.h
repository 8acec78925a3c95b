// The text of every request that an executor computes: its prompt and what was sampled so far.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/chunked_vector.h"
#include "core/engine/request.h"
#include "core/engine/request_input.h"

namespace metronome {

class RequestTexts {
 public:
  struct Text {
    std::vector<TokenId> token_ids;  // prompt and output
    SamplingParams sampling;
    bool has_ended = false;  // when last looked at; its last step may still be in flight
  };

  // `input` outlives this. `eos_token_ids` are the model's.
  RequestTexts(const RequestInput& input, std::vector<std::int32_t> eos_token_ids)
      : input_(input), eos_token_ids_(std::move(eos_token_ids)) {}

  // The text of a request, its prompt read when it is first asked for. The reference holds until
  // the next call.
  Text& operator[](RequestId request);

  // Whether a sampled token is an end-of-text or a stop token of its request.
  bool ends_request(RequestId request, TokenId token);

  // Forgets the requests that had ended at the call before, too: no step in flight names them. To
  // be called now and then when a step is launched.
  void forget_ended(const RequestTable& requests);

  // See Executor::forget_group().
  void forget_group(std::size_t group);

 private:
  const RequestInput& input_;
  std::vector<std::int32_t> eos_token_ids_;
  // By request id; no ids: not seen yet, or over.
  ChunkedVector<Text, RequestTable::kGroupSize> texts_;
  std::vector<RequestId> remembered_;  // whose texts are kept
};

}  // namespace metronome
