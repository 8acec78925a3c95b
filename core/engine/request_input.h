// What an executor that computes has to know of a request beside its lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/sampling.h"

namespace metronome {

class RequestInput {
 public:
  virtual ~RequestInput() = default;
  // Writes the prompt, as many ids as the request has prompt tokens.
  virtual void prompt(RequestId request, std::vector<TokenId>& out) const = 0;
  virtual SamplingParams sampling(RequestId request) const = 0;
};

}  // namespace metronome
