// The inputs that a computing executor needs for a request in addition to its lengths.
#pragma once

#include <cstdint>
#include <vector>

#include "core/engine/request.h"
#include "core/engine/sampling.h"

namespace metronome {

class RequestInput {
 public:
  virtual ~RequestInput() = default;
  // Writes the prompt's ids; their number is the request's prompt tokens.
  virtual void prompt(RequestId request, std::vector<TokenId>& out) const = 0;
  virtual SamplingParams sampling(RequestId request) const = 0;
};

}  // namespace metronome
