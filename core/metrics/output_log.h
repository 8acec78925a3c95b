// SPDX-License-Identifier: Apache-2.0
// The output tokens of a run's requests, from backends that compute.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/engine/event.h"
#include "core/engine/sampling.h"

namespace metronome {

class OutputLog final : public EventSink {
 public:
  struct Output {
    std::vector<TokenId> token_ids;
    std::vector<std::vector<TokenLogprob>> logprobs;  // one per token if requested, else empty
  };

  void on_event(const Event&, const Request&) override {}
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

  const std::vector<Output>& outputs() const { return outputs_; }  // by request id

  // A fingerprint of all tokens of all requests, independent of their times. Two runs of one
  // workload have the same digest exactly when every request got the same tokens. 16 lower-case hex
  // digits; empty when no step gave tokens.
  std::string digest() const;

  // Bytes of memory of what was recorded.
  std::size_t num_bytes() const { return outputs_.size() * sizeof(Output) + num_token_bytes_; }

 private:
  std::vector<Output> outputs_;
  bool has_tokens_ = false;
  std::size_t num_token_bytes_ = 0;
};

}  // namespace metronome
