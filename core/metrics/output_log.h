// What the requests of a run said: the tokens of backends that compute.
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
    std::vector<std::vector<TokenLogprob>> logprobs;  // one a token where asked for, else empty
  };

  void on_event(const Event&, const Request&) override {}
  void on_step(const StepRecord& step, std::span<const ScheduledChunk> chunks,
               const RequestTable& requests) override;

  const std::vector<Output>& outputs() const { return outputs_; }  // by request id

  // A fingerprint of all tokens of all requests, whenever they came: two runs of one workload have
  // it in common exactly when every request got the same tokens. 16 lower-case digits; empty when
  // no step gave tokens.
  std::string digest() const;

 private:
  std::vector<Output> outputs_;
  bool has_tokens_ = false;
};

}  // namespace metronome
