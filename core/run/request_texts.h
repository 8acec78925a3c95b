// SPDX-License-Identifier: Apache-2.0
// The token ids of every computed request: its prompt and the tokens sampled so far.
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
    std::size_t num_prompt_tokens = 0;
    std::vector<TokenId> drafts;  // proposed to follow them (speculative decoding)
    SamplingParams sampling;
    bool has_ended = false;  // at the last forget_ended(); its last step may be in flight
  };

  // `input` must outlive this. `eos_token_ids` are the model's.
  RequestTexts(const RequestInput& input, std::vector<std::int32_t> eos_token_ids)
      : input_(input), eos_token_ids_(std::move(eos_token_ids)) {}

  // The text of a request. The first access reads its prompt. The reference is valid until the next
  // call.
  Text& operator[](RequestId request);

  // Whether a sampled token is an end-of-text token or a stop token of its request.
  bool ends_request(RequestId request, TokenId token);

  // Forgets the requests that had already ended at the previous call, because no step in flight
  // names them. Call it from time to time when a step is launched.
  void forget_ended(const RequestTable& requests);

  // See Executor::forget_group().
  void forget_group(std::size_t group);

 private:
  const RequestInput& input_;
  std::vector<std::int32_t> eos_token_ids_;
  // By request id. Empty token_ids: not accessed yet, or forgotten.
  ChunkedVector<Text, RequestTable::kGroupSize> texts_;
  std::vector<RequestId> remembered_;  // requests whose texts are kept
};

}  // namespace metronome
